"""The run's way to its model: the agent presents a token that is good for this alone, the host adds the provider's key (D10).

It serves the few paths of one API on a listener that only this run reaches, towards one upstream (D9). What passes is not
changed but for the credential: no event waits for the next one, and a stream that breaks off upstream breaks off here.
"""

import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import httpx

from hostside.core.gateway import EventSink
from hostside.edges.http_server import serve_on
from hostside.errors import ConfigError, HostsideError
from hostside.worker.model_exchange import ClientGone, Exchange, ModelRefused, Revoked
from hostside.worker.model_headers import request_headers
from hostside.worker.model_provider import ModelProvider, Route, presented_token
from hostside.worker.model_usage import BudgetExhausted, Metered, ModelMeter, UsageReader

MAX_BODY_BYTES = 32 * 1024 * 1024
#: Bounds what the answers under way may add to a budget that is reached meanwhile.
MAX_OPEN_REQUESTS = 16
MAX_TOLD_REFUSALS = 20
#: How soon a revocation ends an answer in which nothing moves. One that moves is checked as it does.
RECHECK_SECONDS = 1.0
_FRESH_SECONDS = 0.05
_TIMEOUTS = {"connect": 10.0, "read": 900.0, "write": 60.0, "pool": 60.0}
_CONNECTIONS = 64
_log = logging.getLogger(__name__)

Authenticate = Callable[[str], Awaitable[bool]]
_Scope = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """A run's access to its model. `authenticate` says of a presented text whether it is the session's live model token,
    and is asked on every request; `meter` counts for the whole run."""

    token: str = field(repr=False)
    authenticate: Authenticate
    meter: ModelMeter


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUpstream:
    """Where the model is, and what the host presents there. `key` None: a model that needs none.

    Raises `ConfigError` (`invalid_configuration`) for a URL that is no plain http or https URL, and for a key that no
    header can carry.
    """

    provider: ModelProvider
    url: str
    key: str | None = field(default=None, repr=False)
    login: bool = False

    def __post_init__(self) -> None:
        self.address()
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise _wrong("the model's key has characters that no key has", "Check what agent.key refers to.")

    def address(self) -> httpx.URL:
        """Return the parsed URL."""
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            raise _wrong(
                "the model's base URL is no plain http or https URL",
                "Write it as https://host/path, without user, query or fragment.",
            )
        return url


def agent_base_url(address: tuple[str, int], provider: ModelProvider) -> str:
    """Return the base URL that the agent is told, where the proxy answers at `address`."""
    return f"http://{address[0]}:{address[1]}{provider.base_path}"


class ModelProxy:
    """Serves on `listener`, which it owns from `__aenter__` on and closes. `address` is where the agent finds it.

    Refusals, in this order, each with a body in the provider's form that names a `code`: 404 `path_not_served`, 405
    `method_not_served`, 421 `host_not_served`, 401 `model_token_refused` (503 `token_not_checked` when the store cannot
    tell), 413 `body_too_large`, 429 `too_many_open_requests` and `host_budget`: nothing of these went upstream. Then 408
    `body_too_slow`, 502 `upstream_unreachable`, `upstream_failed`, `upstream_redirect`, `upstream_encoding`.

    Events: `model_request_refused` (the first 20: code, status), `model_budget_exhausted` (once for a run).
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        address: tuple[str, int],
        upstream: ModelUpstream,
        access: ModelAccess,
        event: EventSink,
    ) -> None:
        self._listener = listener
        self._hosts = {f"{address[0]}:{address[1]}", f"localhost:{address[1]}"}
        self._upstream = upstream
        self._provider = upstream.provider
        self._target = upstream.address()
        self._access = access
        self._event = event
        self._told = 0
        self._in_flight = 0
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

        # No proxy and no netrc of the host's environment, no redirect, no cookies: the upstream is the operator's word.
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
        exchange = Exchange(receive, send, limit=MAX_BODY_BYTES)
        try:
            route, token = await self._admit(scope)
            metered = self._count()
        except ModelRefused as refused:
            await self._refuse(exchange, refused)
            return
        self._in_flight += 1
        try:
            await self._pass_on(exchange, self._request(scope, route, exchange), _Alive(token, self._access), metered)
        finally:
            self._in_flight -= 1
            if route.asks and exchange.may_cost:
                metered.estimate(sent=exchange.sent, received=exchange.received)

    async def _admit(self, scope: _Scope) -> tuple[Route, str]:
        route = self._provider.routes.get(scope["raw_path"].decode("latin-1"))
        if route is None:
            raise ModelRefused(404, "path_not_served", "the host does not serve this path to a run")
        if scope["method"] != route.method:
            raise ModelRefused(405, "method_not_served", "the host does not serve this method here")
        hosts = [value.decode("latin-1").strip().lower() for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise ModelRefused(421, "host_not_served", "this host name is not served here")
        token = presented_token(scope["headers"])
        if token is None or not await self._is_good(token):
            raise ModelRefused(401, "model_token_refused", "this is no live model token of this run")
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > MAX_BODY_BYTES:
                raise ModelRefused(413, "body_too_large", f"a request has at most {MAX_BODY_BYTES} bytes")
        return route, token

    async def _is_good(self, token: str) -> bool:
        try:
            return await self._access.authenticate(token)
        except HostsideError:
            # What cannot be checked is not let through.
            raise ModelRefused(503, "token_not_checked", "the host cannot check the token now", again=True) from None

    def _count(self) -> Metered:
        if self._in_flight >= MAX_OPEN_REQUESTS:
            raise ModelRefused(429, "too_many_open_requests", "too many requests of this run are open", again=True)
        meter = self._access.meter
        known = meter.exhausted
        try:
            return meter.admit()
        except BudgetExhausted as exhausted:
            if known is None:
                self._event("model_budget_exhausted", {"setting": exhausted.setting, "limit": exhausted.limit})
            used_up = f"the host's budget for this run is used up: {exhausted} in hostside.toml"
            raise ModelRefused(429, "host_budget", used_up) from None

    async def _pass_on(self, exchange: Exchange, request: httpx.Request, alive: "_Alive", metered: Metered) -> None:
        async with anyio.create_task_group() as tasks:
            self._open.add(tasks.cancel_scope)
            try:
                tasks.start_soon(exchange.watch, tasks.cancel_scope)
                tasks.start_soon(alive.watch, tasks.cancel_scope)
                await exchange.forward(
                    self._transport,
                    request,
                    key=self._upstream.key,
                    reader=partial(UsageReader, self._provider.read_usage, metered),
                    alive=alive.check,
                )
            except (ClientGone, Revoked):
                pass  # nobody is there to be answered; an answer that has begun breaks off
            except ModelRefused as refused:
                await self._refuse(exchange, refused)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                metered.refund()
                unreachable = "the model's provider could not be reached"
                await self._refuse(exchange, ModelRefused(502, "upstream_unreachable", unreachable, again=True))
            except httpx.HTTPError as error:
                # The text of these errors may name the upstream's address: only their kind leaves the host.
                _log.warning("model request failed: %s", type(error).__name__)
                failed = "the model's provider did not answer as HTTP asks for"
                await self._refuse(exchange, ModelRefused(502, "upstream_failed", failed, again=True))
            finally:
                self._open.discard(tasks.cancel_scope)
                tasks.cancel_scope.cancel()

    def _request(self, scope: _Scope, route: Route, exchange: Exchange) -> httpx.Request:
        query: bytes = scope["query_string"]
        path = self._target.raw_path.rstrip(b"/") + route.upstream.encode("ascii")
        headers = [*request_headers(scope["headers"]), (b"accept-encoding", b"identity")]
        if self._upstream.key is not None:
            headers.append(self._provider.credential(self._upstream.key, login=self._upstream.login))
        has_body = not {name for name, _ in scope["headers"]}.isdisjoint({b"content-length", b"transfer-encoding"})
        if not has_body:
            exchange.no_body()
        return httpx.Request(
            route.method,
            self._target.copy_with(raw_path=path + (b"?" + query if query else b"")),
            headers=headers,
            content=exchange.body() if has_body else None,
            extensions={"timeout": _TIMEOUTS},
        )

    async def _refuse(self, exchange: Exchange, refused: ModelRefused) -> None:
        if self._told < MAX_TOLD_REFUSALS:
            self._told += 1
            self._event("model_request_refused", {"code": refused.code, "status": refused.status})
        await exchange.refuse(refused, self._provider)


class _Alive:
    """Whether the token of an open answer still holds."""

    def __init__(self, token: str, access: ModelAccess) -> None:
        self._token = token
        self._access = access
        self._checked = anyio.current_time()

    async def check(self) -> bool:
        """Return whether it holds. Asked for each piece of an answer, it looks at most 20 times a second."""
        now = anyio.current_time()
        if now - self._checked < _FRESH_SECONDS:
            return True
        self._checked = now
        try:
            return await self._access.authenticate(self._token)
        except HostsideError:
            return False

    async def watch(self, exchange: anyio.CancelScope) -> None:
        """Cancel the exchange once the token is dead."""
        while await self.check():
            await anyio.sleep(RECHECK_SECONDS)
        exchange.cancel()


async def _live(receive: Any, send: Any) -> None:
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})


def _wrong(message: str, remedy: str) -> ConfigError:
    return ConfigError("invalid_configuration", message, remedy=remedy)
