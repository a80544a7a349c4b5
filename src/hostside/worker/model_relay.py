"""The run's way to its model: a relay on a listener that only this run reaches, to one upstream origin (D9).

It is transparent: headers but those of the connection, bodies, encodings and the timing of each chunk pass unchanged,
and a stream that breaks off upstream breaks off here. It adds no credential.
"""

import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import anyio
import httpx

from hostside.edges.http_server import serve_on
from hostside.errors import ConfigError

_log = logging.getLogger(__name__)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    b"host expect".split()
)
_TIMEOUTS = {"connect": 10.0, "read": 900.0, "write": 60.0, "pool": 60.0}
_CONNECTIONS = 64
_STOP_SECONDS = 5.0

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]


class _ClientGone(Exception):
    """The agent hung up while it sent its request."""


class ModelRelay:
    """Serves on `listener`, which it owns from `__aenter__` on and closes, and forwards to the origin of `upstream_url`.

    Only paths below the path of `upstream_url` are served, else 404. An unreachable upstream is 502. Raises
    `ConfigError` (`invalid_configuration`) when `upstream_url` is no plain http or https URL.
    """

    def __init__(self, listener: socket.socket, upstream_url: str) -> None:
        self._listener = listener
        self._upstream = _checked(upstream_url)
        self._prefix = self._upstream.raw_path.rstrip(b"/")
        self._open: set[anyio.CancelScope] = set()
        self._running = self._run()

    async def __aenter__(self) -> Self:
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._running.__aexit__(kind, error, trace)

    @contextlib.asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async def app(scope: _Scope, receive: Any, send: Any) -> None:
            # The server takes a bound method for an application of an older interface.
            await self._serve(scope, receive, send)

        # No proxy and no netrc of the host's environment; the upstream is the operator's own word.
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=8)
        async with httpx.AsyncHTTPTransport(trust_env=False, limits=limits) as self._transport:
            ready = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: serve_on((self._listener,), app, ready=ready, before_stop=self._hang_up))
                try:
                    await ready.wait()
                    yield
                finally:
                    tasks.cancel_scope.cancel()

    async def _hang_up(self) -> None:
        for exchange in self._open:
            exchange.cancel()

    async def _serve(self, scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _reply(send, *refusal)
            return
        exchange = _Exchange(receive, send)
        try:
            async with anyio.create_task_group() as tasks:
                self._open.add(tasks.cancel_scope)
                try:
                    tasks.start_soon(exchange.watch, tasks.cancel_scope)
                    await exchange.forward(self._transport, self._request(scope, exchange))
                finally:
                    self._open.remove(tasks.cancel_scope)
                    tasks.cancel_scope.cancel()
        except* (httpx.HTTPError, _ClientGone) as group:
            # Text of these errors may name the upstream's address: only their kind leaves the host.
            _log.warning("model request failed: %s", type(group.exceptions[0]).__name__)
            if not exchange.began:
                await _reply(send, 502, "the model's address could not be reached")

    def _refusal(self, scope: _Scope) -> tuple[int, str] | None:
        if scope["method"] not in _METHODS:
            return 405, "this method is not served"
        path: bytes = scope["raw_path"]
        below = path == self._prefix or path.startswith(self._prefix + b"/")
        if not below or ".." in unquote(path.decode("latin-1")).split("/"):
            return 404, "this path is not served"
        return None

    def _request(self, scope: _Scope, exchange: "_Exchange") -> httpx.Request:
        query: bytes = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        names = {name for name, _ in scope["headers"]}
        has_body = not names.isdisjoint({b"content-length", b"transfer-encoding"})
        if not has_body:
            exchange.body_read.set()
        return httpx.Request(
            scope["method"],
            self._upstream.copy_with(raw_path=target),
            headers=list(_end_to_end(scope["headers"])),
            content=exchange.body() if has_body else None,
            extensions={"timeout": _TIMEOUTS},
        )


def relayed_base_url(address: tuple[str, int], upstream_url: str) -> str:
    """Return what stands for `upstream_url` inside the run, where the relay answers at `address`.

    Raises `ConfigError` as `ModelRelay` does.
    """
    host, port = address
    path = _checked(upstream_url).raw_path.rstrip(b"/").decode("ascii")
    return f"http://{host}:{port}{path}"


class _Exchange:
    """One request and its response. The body and the watch for a hang-up read the same channel, one after the other."""

    def __init__(self, receive: Any, send: Any) -> None:
        self._receive = receive
        self._send = send
        self.body_read = anyio.Event()
        self.began = False

    async def body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message: _Message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                yield chunk
        self.body_read.set()

    async def watch(self, exchange: anyio.CancelScope) -> None:
        await self.body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        exchange.cancel()

    async def forward(self, transport: httpx.AsyncBaseTransport, request: httpx.Request) -> None:
        response = await transport.handle_async_request(request)
        try:
            self.began = True
            headers = list(_end_to_end(response.headers.raw))
            await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            assert isinstance(response.stream, httpx.AsyncByteStream)
            async for chunk in response.stream:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
                await response.aclose()


async def _live(receive: Any, send: Any) -> None:
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    pairs = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in pairs if name == b"connection" for word in value.split(b",")}
    return ((name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named)


async def _reply(send: Any, status: int, message: str) -> None:
    body = b'{"error":{"type":"relay","message":"' + message.encode("ascii") + b'"}}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _checked(upstream_url: str) -> httpx.URL:
    try:
        url = httpx.URL(upstream_url)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigError(
            "invalid_configuration",
            "the model's base URL is no plain http or https URL",
            remedy="Write it as https://host/path, without user, query or fragment.",
        )
    return url
