"""Serving an ASGI app on listeners that already exist, within an event loop that belongs to somebody else."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence

import anyio
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536
HEAD_SECONDS = 15.0
MAX_CONNECTIONS = 256
#: How long answers may still take once the server was told to stop, and how long stopping may take in all.
GRACE_SECONDS = 1
STOP_SECONDS = 5.0


async def serve_on(
    sockets: Sequence[socket.socket],
    app: ASGIApp,
    *,
    ready: anyio.Event | None = None,
    before_stop: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve HTTP on `sockets`, which must be bound, until cancelled; then close them.

    `ready` is set once the app has started. On cancellation `before_stop` runs first, so that an app can end what it
    holds open; the rest is over within `STOP_SECONDS`. Installs no signal handler and writes no access log. Raises
    RuntimeError when the app does not start.
    """
    server = _Server(_config(app), ready or anyio.Event())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run_shielded, list(sockets))
        try:
            await server.ended.wait()
        finally:
            with anyio.move_on_after(STOP_SECONDS, shield=True):
                try:
                    if before_stop is not None:
                        await before_stop()
                finally:
                    server.should_exit = True
                await server.ended.wait()
    if server.failed:
        raise RuntimeError("the HTTP server did not start")


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_BoundedHead,
        ws="none",
        lifespan="on",
        log_config=None,  # a library does not configure the host's logging
        log_level="error",  # below it, the server repeats what any client brings about, one line a request
        access_log=False,  # a query may hold what somebody took for the right place of a token
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        reset_contextvars=True,
    )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: anyio.Event) -> None:
        super().__init__(config)
        self._ready = ready
        self.ended = anyio.Event()
        self.failed = False

    async def run_shielded(self, sockets: list[socket.socket]) -> None:
        """Serve until `should_exit`. Shielded: the server has to close its connections itself."""
        try:
            with anyio.CancelScope(shield=True):
                await self.serve(sockets)
        except SystemExit:  # how this server says that the app did not start
            pass
        finally:
            self.failed = not self.started
            for listener in sockets:
                listener.close()
            self.ended.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to the command that runs the loop.
        yield


class _BoundedHead(HttpToolsProtocol):
    """The parser, with the bounds that it lacks: bytes and time of a request's head, before any check can run."""

    _head_number = 0  # 0 between heads
    _heads = 0
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._head_number
        super().data_received(data)
        # All of it belongs to one unfinished head, or may follow the end of an earlier body: then it does not count.
        if self._head_number and (before == self._head_number or self._heads == 1):
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._heads += 1
        self._head_number, self._head_bytes = self._heads, 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def on_headers_complete(self) -> None:
        self._head_number = 0
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
