"""MCP over standard input and output: our framing around the SDK's server, both eras (R-168..R-172, C-16, C-17).

The SDK drops a broken line without a word and loses in-flight work at the end of input; so frames are cut, checked and
answered here, and it only gets messages that passed.
"""

import logging
from collections.abc import Awaitable, Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.jsonrpc import (
    INTERNAL_ERROR,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from hostside.core.canonical import escape_hidden
from hostside.core.gateway import Gateway
from hostside.edges.descriptors import move_away, read_some, write_all
from hostside.edges.frames import (
    INVALID_REQUEST,
    MAX_FRAME_BYTES,
    PARSE_ERROR,
    Frame,
    FrameKind,
    FrameRejected,
    FrameSplitter,
    read_frame,
)
from hostside.edges.mcp import Inbound, mcp_server

#: How long calls in flight may still run once the input has ended.
DRAIN_SECONDS = 2.0
MAX_IN_FLIGHT = 256
_log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[bytes]]
SendBytes = Callable[[bytes], Awaitable[None]]


async def serve_stdio(gateway: Gateway, *, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
    """Serve one client until its input ends or it stops reading.

    Moves descriptors 0 and 1 away for good (see `move_away`); a command that already did passes the private ones. At the
    end of input, calls in flight get `DRAIN_SECONDS` to end and are then cancelled; each has its receipt on return.
    """
    wire = move_away(stdin_fd, stdout_fd)
    try:
        await serve_frames(gateway, lambda: read_some(wire.read_fd), lambda data: write_all(wire.write_fd, data))
    except* (BrokenPipeError, ConnectionResetError):
        _log.info("the client stopped reading")


async def serve_frames(
    gateway: Gateway,
    receive: Receive,
    send: SendBytes,
    *,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    drain_seconds: float = DRAIN_SECONDS,
) -> None:
    """Serve newline-delimited frames over any byte channel. `receive` returns no bytes at the end of input.

    Every whole frame to send is one `send`, in order, never two at a time. What `send` raises ends the service, in an
    exception group.
    """
    await _Channel(gateway, receive, send, max_frame_bytes, drain_seconds).serve()


class _Channel:
    def __init__(
        self, gateway: Gateway, receive: Receive, send: SendBytes, max_frame_bytes: int, drain_seconds: float
    ) -> None:
        self._gateway = gateway
        self._receive = receive
        self._send = send
        self._max_frame_bytes = max_frame_bytes
        self._drain_seconds = drain_seconds
        self._writing = anyio.Lock()
        self._pending: set[str] = set()
        self._idle = anyio.Event()

    async def serve(self) -> None:
        server = mcp_server(lambda: self._gateway)
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, from_server)
            tasks.start_soon(self._read, to_server)
            await server.run(from_client, to_client, server.create_initialization_options())
            # The server ends when the reader has closed its stream; the writer still empties the other one.

    async def _read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        splitter = FrameSplitter(self._max_frame_bytes)
        async with to_server:
            while data := await self._receive():
                for line in splitter.feed(data):
                    await self._line(line, to_server)
            if splitter.unfinished:
                # It may have been cut: what has no line end is not a frame, and nothing of it runs.
                await self._answer(FrameRejected(PARSE_ERROR, "Parse error: the last frame has no line end"))
            with anyio.move_on_after(self._drain_seconds):
                while self._pending:
                    self._idle = anyio.Event()
                    await self._idle.wait()

    async def _line(self, line: bytes | None, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        try:
            if line is None:
                raise FrameRejected(INVALID_REQUEST, f"Invalid request: a frame of over {self._max_frame_bytes} bytes")
            if not line.strip():
                return
            frame = read_frame(line)
            self._admit(frame)
        except FrameRejected as rejected:
            await self._answer(rejected)
            return
        message = jsonrpc_message_adapter.validate_python(frame.message, by_name=False)
        metadata = ServerMessageMetadata(request_context=Inbound(arguments=frame.arguments))
        await to_server.send(SessionMessage(message, metadata))
        if frame.method == "notifications/cancelled":
            self._settle(frame.params.get("requestId"))  # it will not be answered

    def _admit(self, frame: Frame) -> None:
        if frame.kind is not FrameKind.REQUEST:
            return
        key = str(frame.request_id)
        if key in self._pending:
            raise FrameRejected(
                INVALID_REQUEST, "Invalid request: this id belongs to a request in flight", frame.request_id
            )
        if len(self._pending) >= MAX_IN_FLIGHT:
            raise FrameRejected(
                INVALID_REQUEST, f"Invalid request: {MAX_IN_FLIGHT} requests are in flight", frame.request_id
            )
        self._pending.add(key)

    async def _write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for item in from_server:
                if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                    self._settle(item.message.id)  # before the client can use the id again
                await self._put(_text(item.message))

    async def _answer(self, rejected: FrameRejected) -> None:
        await self._put(rejected.as_bytes().decode())

    async def _put(self, text: str) -> None:
        async with self._writing:
            await self._send(escape_hidden(text).encode() + b"\n")

    def _settle(self, request_id: object) -> None:
        self._pending.discard(str(request_id))
        if not self._pending:
            self._idle.set()


def _text(message: JSONRPCMessage) -> str:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:  # what cannot be written must not take the channel down with it
        _log.exception("a message could not be written")
        request_id = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        return (
            FrameRejected(INTERNAL_ERROR, "Internal error: the answer could not be written", request_id)
            .as_bytes()
            .decode()
        )
