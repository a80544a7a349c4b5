"""What the scripted models share: a loopback server, the script's progress, and the record of what was asked."""

import asyncio
import contextlib
import json
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.support.agent_script import (
    SPENT,
    Cut,
    Hang,
    HttpError,
    JsonObject,
    OfferedTool,
    Part,
    Say,
    Script,
    Slow,
    Step,
    ToolAnswer,
    Turn,
    parts_of,
    settle,
)

_STOP_WITHIN = 5.0
_BROKEN = HttpError(400, "the script raised an exception")


class Event(NamedTuple):
    """One server-sent event; its data carries the kind as `type`, as both providers do."""

    kind: str
    data: JsonObject

    def encode(self) -> bytes:
        return f"event: {self.kind}\ndata: {json.dumps({'type': self.kind, **self.data})}\n\n".encode()


class EventStream(Response):
    """Server-sent events, whole or broken off: returning before the last chunk makes the server drop the connection."""

    def __init__(self, events: Sequence[Event], *, cut: bool) -> None:
        super().__init__(media_type="text/event-stream")
        self._events, self._cut = events, cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in self._events:
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        if not self._cut:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Server(uvicorn.Server):
    """uvicorn inside somebody else's event loop: it says when it listens, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request for the model's next turn, and the headers it came with (names in lower case)."""

    headers: Mapping[str, str]
    body: JsonObject


class ScriptedModel(ABC):
    """A provider's API on loopback that plays a script and records every request.

    `async with` starts and stops it. It serves on `listener` (bound, listening or not; closed at the end), which may
    come from another network namespace, else on a free port of 127.0.0.1. An exception raised by a turn's callable
    ends the script: this request and all later ones get 400, and it is raised again when the context ends.
    """

    def __init__(self, script: Script, *, listener: socket.socket | None = None) -> None:
        self._turns: Iterator[Turn] = iter(script)
        self._listener = listener
        self._arrived = asyncio.Condition()
        self._closing = asyncio.Event()
        self._broken: BaseException | None = None
        self._called: dict[str, str] = {}
        self._pending: tuple[str, ...] = ()
        self._answers: dict[tuple[str, int], ToolAnswer] = {}
        self._ids = 0
        self.received: list[Received] = []
        self.unexpected: list[str] = []
        self.requests_beyond_script = 0

    # -- life

    async def __aenter__(self) -> Self:
        listener = self._listener or socket.create_server(("127.0.0.1", 0))
        self._address: tuple[str, int] = listener.getsockname()[:2]
        routes = [
            *self._routes(),
            Route("/{path:path}", self._refuse, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            lifespan="off",
            ws="none",
            log_config=None,
            log_level=60,  # a cut stream is meant here; the server would report it as an error
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        listening = asyncio.create_task(self._server.listening.wait())
        await asyncio.wait({self._serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if self._serving.done():
            self._serving.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.should_exit = True
        async with asyncio.timeout(_STOP_WITHIN):
            await self._serving
        if self._broken is not None and error is None:
            raise self._broken

    @property
    def origin(self) -> str:
        """`http://host:port`, as seen from the listener's own network namespace."""
        host, port = self._address
        return f"http://{host}:{port}"

    # -- what was asked

    @property
    def requests(self) -> list[JsonObject]:
        """The body of every request for a turn, in order of arrival."""
        return [received.body for received in self.received]

    def tool_results(self) -> list[ToolAnswer]:
        """Every tool answer that the model has read so far, in order, each once."""
        return list(self._answers.values())

    @abstractmethod
    def offered_tools(self) -> list[OfferedTool]:
        """The tools of the first scripted request. Raises `LookupError` before there is one."""

    async def arrival(self, number: int, *, within: float = 30.0) -> Received:
        """Wait for the request with this number, counted from 1. Raises `TimeoutError`."""
        async with asyncio.timeout(within), self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= number)
        return self.received[number - 1]

    # -- one request

    @abstractmethod
    def _routes(self) -> list[Route]: ...

    @abstractmethod
    def _answers_in(self, body: JsonObject) -> list[tuple[str, ToolAnswer]]:
        """The tool answers that this request carries, with their call ids."""

    @abstractmethod
    def _error_body(self, error: HttpError) -> JsonObject: ...

    @abstractmethod
    def _reply(self, body: JsonObject, parts: tuple[Part, ...]) -> Response | list[Event]:
        """The provider's answer with these parts."""

    async def _ask(self, request: Request) -> Response:
        """Record a request for a turn and answer it."""
        try:
            body: Any = json.loads(await request.body())
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self.unexpected.append(f"{request.method} {request.url.path} without a JSON object")
            return self._fail(HttpError(400, "the body is not a JSON object"))
        self.received.append(Received(headers=dict(request.headers), body=body))
        async with self._arrived:
            self._arrived.notify_all()
        return await self._play(body)

    async def _play(self, body: JsonObject) -> Response:
        """Answer with the next turn of the script."""
        answers = self._collect(body)
        if self._broken is not None:
            return self._fail(_BROKEN)
        try:
            turn = next(self._turns)
        except StopIteration:
            self.requests_beyond_script += 1
            turn = Say(SPENT)
        try:
            return await self._perform(body, turn, answers)
        except Exception as error:
            self._broken = error
            return self._fail(_BROKEN)

    async def _perform(self, body: JsonObject, turn: Turn, answers: list[ToolAnswer]) -> Response:
        step = settle(turn, answers)
        while isinstance(step, Hang | Slow):
            if not await self._wait(step):
                return EventStream([], cut=True)
            step = settle(step.then, answers)
        if isinstance(step, HttpError):
            return self._fail(step)
        if isinstance(step, Cut):
            return self._stream(body, settle(step.then, answers), keep=step.events)
        return self._stream(body, step, keep=None)

    def _stream(self, body: JsonObject, step: Step, *, keep: int | None) -> Response:
        before = self._pending
        reply = self._reply(body, parts_of(step))
        if keep is not None:  # the client may have got far enough to make the calls, or will never
            self._pending = before + self._pending
        if isinstance(reply, Response):
            return reply if keep is None else EventStream([], cut=True)
        return EventStream(reply[:keep], cut=keep is not None)

    async def _wait(self, step: Hang | Slow) -> bool:
        """Whether the answer may go out now; false when it was never released or the server is closing."""
        event, seconds = (step.release, step.at_most) if isinstance(step, Hang) else (asyncio.Event(), step.seconds)
        waits = {asyncio.create_task(event.wait()), asyncio.create_task(self._closing.wait())}
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return not self._closing.is_set() and (isinstance(step, Slow) or event.is_set())

    def _collect(self, body: JsonObject) -> list[ToolAnswer]:
        """Keep the answers not seen before; return those to the calls of the previous turn."""
        seen: Counter[str] = Counter()
        previous = []
        for call_id, answer in self._answers_in(body):
            self._answers.setdefault((call_id, seen[call_id]), answer)
            seen[call_id] += 1
            if call_id in self._pending:
                previous.append(answer)
        return previous

    def _open_calls(self, calls: Sequence[tuple[str, str]]) -> None:
        """Remember `(call id, tool)` of the turn that now goes out."""
        self._called.update(calls)
        self._pending = tuple(call_id for call_id, _ in calls)

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids:06d}"

    def _fail(self, error: HttpError) -> Response:
        seconds = error.retry_after_seconds
        headers = {} if seconds is None else {"retry-after": f"{seconds:g}"}
        return JSONResponse(self._error_body(error), status_code=error.status, headers=headers)

    async def _refuse(self, request: Request) -> Response:
        self.unexpected.append(f"{request.method} {request.url.path}")
        return JSONResponse(self._error_body(HttpError(404, "no such path")), status_code=404)
