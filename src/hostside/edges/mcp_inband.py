"""MCP without a port: the messages of a `type: sdk` server inside Claude Code's control protocol (D24, R-202, R-209).

The client puts each JSON-RPC message into a control request and waits for the control response with the same id. The
messages take the way of the stdio edge: same frames, same limits, same server. Here they only change envelopes.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio

from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, parse
from hostside.core.gateway import Gateway
from hostside.edges.frames import (
    INVALID_REQUEST,
    MAX_FRAME_BYTES,
    MAX_ID_CHARACTERS,
    PARSE_ERROR,
    Frame,
    FrameKind,
    FrameRejected,
    read_frame,
    wire_bytes,
)
from hostside.edges.mcp import SERVER_NAME
from hostside.edges.mcp_stdio import MAX_IN_FLIGHT, serve_frames

EDGE = "inband"
_MCP = "mcp_message"
#: What the client wants to hear of a message that has no answer.
_TAKEN: JsonObject = {"jsonrpc": "2.0", "result": {}}
_log = logging.getLogger(__name__)


class InbandEdge:
    """The tools of one gateway for one client.

    `put` gets whole lines for the client, in order, and must not wait. `refused` is told why a control request was not
    taken (D7); the text may repeat what the client wrote. Every control request that can be read gets one answer, also
    one that this host does not serve: the client waits without a limit. Only a cancelled call has none, as in MCP.
    """

    def __init__(self, gateway: Gateway, put: Callable[[bytes], None], *, refused: Callable[[str], None]) -> None:
        self._gateway = gateway
        self._put = put
        self._refused = refused
        self._frames: deque[bytes] = deque()
        self._arrived = anyio.Event()
        self._waiting: dict[str, str] = {}
        self._notified = 0
        self._ended = False

    async def serve(self) -> None:
        """Serve until cancelled. Calls in flight are cancelled then, and each has its receipt on return."""
        try:
            await serve_frames(self._gateway, self._next_frame, self._send)
        finally:
            self._ended = True

    def take(self, line: bytes) -> None:
        """Take one control request, as the line that it came in. Never waits, never raises for what the client wrote."""
        try:
            envelope = _envelope(line)
        except FrameRejected as rejected:
            self._refuse(_loose_id(line), rejected.message)
            return
        control_id = _control_id(envelope)
        try:
            self._admit(control_id, envelope.get("request"))
        except FrameRejected as rejected:
            # As a control error: an answer whose JSON-RPC id the client does not know would leave its call waiting.
            self._refuse(control_id, rejected.message)

    def _admit(self, control_id: str | None, request: JsonValue) -> None:
        if control_id is None:
            raise FrameRejected(INVALID_REQUEST, "Invalid request: a control request needs an id")
        if not isinstance(request, dict) or request.get("subtype") != _MCP:
            raise FrameRejected(INVALID_REQUEST, "Invalid request: this host answers MCP messages alone")
        if request.get("server_name") != SERVER_NAME:
            raise FrameRejected(INVALID_REQUEST, f"Invalid request: the only server here is {SERVER_NAME}")
        message = request.get("message")
        if not isinstance(message, dict):
            raise FrameRejected(INVALID_REQUEST, "Invalid request: a message is one JSON-RPC object")
        data = wire_bytes(message)
        if len(data) > MAX_FRAME_BYTES:
            raise FrameRejected(INVALID_REQUEST, f"Invalid request: a frame of over {MAX_FRAME_BYTES} bytes")
        # The channel checks it too, but answers there what has no id that could be told apart.
        frame = read_frame(data)
        self._check_room(frame)
        self._pass_on(control_id, frame, data)

    def _check_room(self, frame: Frame) -> None:
        if self._ended:
            raise FrameRejected(INVALID_REQUEST, "Invalid request: the session is over")
        if len(self._frames) >= MAX_IN_FLIGHT or len(self._waiting) >= MAX_IN_FLIGHT:
            raise FrameRejected(INVALID_REQUEST, f"Invalid request: {MAX_IN_FLIGHT} requests are in flight")
        if frame.kind is FrameKind.REQUEST and str(frame.request_id) in self._waiting:
            raise FrameRejected(INVALID_REQUEST, "Invalid request: this id belongs to a request in flight")

    def _pass_on(self, control_id: str, frame: Frame, data: bytes) -> None:
        if frame.kind is FrameKind.REQUEST:
            self._waiting[str(frame.request_id)] = control_id
        else:
            if frame.method == "notifications/cancelled":
                self._waiting.pop(str(frame.params.get("requestId")), None)
            self._respond(control_id, _TAKEN)
        self._frames.append(data + b"\n")
        self._arrived.set()

    async def _next_frame(self) -> bytes:
        while not self._frames:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._frames.popleft()

    async def _send(self, data: bytes) -> None:
        message: dict[str, Any] = json.loads(data)
        if "method" in message:
            self._notified += 1
            request: JsonObject = {"subtype": _MCP, "server_name": SERVER_NAME, "message": message}
            self._write({"type": "control_request", "request_id": f"host-{self._notified}", "request": request})
            return
        control_id = self._waiting.pop(str(message.get("id")), None)
        if control_id is None:
            _log.debug("an answer that nobody waits for any more")
            return
        self._respond(control_id, message)

    def _respond(self, control_id: str, message: JsonObject) -> None:
        answer: JsonObject = {"subtype": "success", "request_id": control_id, "response": {"mcp_response": message}}
        self._write({"type": "control_response", "response": answer})

    def _refuse(self, control_id: str | None, message: str) -> None:
        self._refused(message)
        if control_id is not None:
            answer: JsonObject = {"subtype": "error", "request_id": control_id, "error": message}
            self._write({"type": "control_response", "response": answer})

    def _write(self, message: JsonObject) -> None:
        self._put(wire_bytes(message) + b"\n")


def _envelope(line: bytes) -> JsonObject:
    try:
        value = parse(line)
    except JsonRejected as exc:
        raise FrameRejected(PARSE_ERROR, f"Parse error: {exc}") from None
    if not isinstance(value, dict):
        raise FrameRejected(INVALID_REQUEST, "Invalid request: a control request is one JSON object")
    return value


def _control_id(envelope: JsonObject | dict[str, Any]) -> str | None:
    value = envelope.get("request_id")
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARACTERS else None


def _loose_id(line: bytes) -> str | None:
    """Whom to tell that the line was refused. Nothing else of such a line is ever used."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _control_id(value) if isinstance(value, dict) else None
