"""One connection of a client inside the run: requests in, answers out, and a watch for a hang-up."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import anyio.abc
import h11

from hostside.worker.egress.policy import EgressLimits
from hostside.worker.egress.refusals import EgressRefused, Header, answer

CHUNK_BYTES = 65_536
#: What a client may send ahead while its answer is under way. More of it is read later.
AHEAD_BYTES = 65_536
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 1_048_576


class ClientGone(Exception):
    """The client hung up: nobody is there to be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request's head. Header names are in lower case."""

    method: str
    target: str
    headers: tuple[Header, ...]

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    @property
    def has_body(self) -> bool:
        """It announces one, in whatever way."""
        return bool(self.values(b"transfer-encoding")) or any(value != b"0" for value in self.values(b"content-length"))


class ClientConnection:
    """Use it from one task. `malformed` is the head that could not be understood, for the record."""

    def __init__(self, stream: anyio.abc.ByteStream, limits: EgressLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._ahead = 0
        self._began = False
        self.status: int | None = None

    async def next_request(self, *, first: bool) -> ClientRequest | None:
        """Return the next request's head; None when the client has ended or is silent between two requests.

        Raises EgressRefused (400, 408, 431) for what is no request, and ClientGone.
        """
        self._began, self.status = False, None
        wait = self._limits.head_seconds if first else self._limits.keep_alive_seconds
        try:
            with anyio.fail_after(wait):
                event = await self._next_event()
        except TimeoutError:
            if first:
                raise EgressRefused(408, "head_too_slow", "hostside: the request did not arrive in time") from None
            return None
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            code = "head_too_long" if status == 431 else "malformed"
            raise EgressRefused(status, code, f"hostside: this is no HTTP request: {error}") from None
        if not isinstance(event, h11.Request):
            return None
        method, target = event.method.decode("ascii"), event.target.decode("latin-1")
        return ClientRequest(
            method=method, target=target, headers=tuple((name, value) for name, value in event.headers)
        )

    async def finish_request(self) -> bool:
        """Make ready for the next request. Return whether the client may send one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def end_of_request(self) -> None:
        """Read the end of a request without a body."""
        with anyio.fail_after(self._limits.head_seconds):
            event = await self._next_event()
        if not isinstance(event, h11.EndOfMessage):
            raise EgressRefused(400, "body_refused", "hostside: a request's body is not passed on")

    async def while_connected(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work`, unless the client hangs up first: then it is cancelled. Raises what `work` raises, and ClientGone."""
        failure: EgressRefused | None = None
        gone, done = False, False

        async def watch() -> None:
            nonlocal gone
            with contextlib.suppress(ClientGone):
                while data := await self._receive():
                    self._http.receive_data(data)
                    self._ahead += len(data)
                    if self._ahead > AHEAD_BYTES:
                        return
            gone = True
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                await work()
                # A client that hangs up once it has everything has missed nothing.
                done = True
            except EgressRefused as refused:
                failure = refused
            except ClientGone:
                gone = True
            tasks.cancel_scope.cancel()
        if gone and not done:
            raise ClientGone
        if failure is not None:
            raise failure

    async def start(self, status: int, headers: list[Header], reason: bytes = b"") -> None:
        """Send an answer's head. Raises ClientGone."""
        self._began, self.status = True, status
        await self._send(self._http.send(h11.Response(status_code=status, headers=headers, reason=reason)))

    async def body(self, data: bytes) -> None:
        await self._send(self._http.send(h11.Data(data=data)))

    async def end(self) -> None:
        await self._send(self._http.send(h11.EndOfMessage()))

    async def switch(self) -> tuple[anyio.abc.ByteStream, bytes]:
        """Say yes to CONNECT. Return the raw stream, and what the client has sent ahead on it."""
        await self.end_of_request()
        await self.start(200, [(b"X-Hostside-Code", b"connected")], b"Connection established")
        return self._stream, bytes(self._http.trailing_data[0])

    async def refuse(self, refused: EgressRefused, policy: str, *, as_json: bool = False) -> None:
        """Answer with a refusal; when an answer has begun, break it off instead."""
        if self._began:
            raise ClientGone
        reason, headers, body = answer(refused, policy, as_json=as_json)
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            await self.start(refused.status, headers, reason)
            await self.body(body)
            await self.end()
            await self._linger()
        else:
            raise ClientGone

    async def _linger(self) -> None:
        """Let the client read a refusal that came while it was still sending: a reset would take it away."""
        with anyio.move_on_after(_LINGER_SECONDS), contextlib.suppress(ClientGone, OSError, anyio.BrokenResourceError):
            await self._stream.send_eof()
            read = 0
            while read < _LINGER_BYTES and (data := await self._receive()):
                read += len(data)

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED] | None:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._receive())
        self._ahead = 0
        return event

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(CHUNK_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ClientGone from None

    async def _send(self, data: bytes | None) -> None:
        if not data:
            return
        try:
            with anyio.fail_after(self._limits.idle_seconds):
                await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            raise ClientGone from None
