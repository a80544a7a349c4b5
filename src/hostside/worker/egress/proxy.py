"""A run's only way out: one listener that speaks the HTTP proxy protocol, and one policy (D25)."""

import contextlib
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from hostside.core.redaction import Redactor
from hostside.worker.egress.client_connection import ClientConnection, ClientGone
from hostside.worker.egress.decisions import Decide, Recorder
from hostside.worker.egress.dispatch import RequestHandler
from hostside.worker.egress.policy import EgressLimits, EgressPolicy
from hostside.worker.egress.presets import Registries
from hostside.worker.egress.refusals import EgressRefused
from hostside.worker.egress.registry_proxy import RegistryProxy
from hostside.worker.egress.resolver import Connector, Dialer, Resolver, SystemResolver, TcpConnector
from hostside.worker.egress.run_authority import RunAuthority
from hostside.worker.egress.upstream import Upstream

_log = logging.getLogger(__name__)
_BACKLOG = 512


def _now() -> datetime:
    return datetime.now(UTC)


class EgressProxy:
    """Serves on `listener`, which it owns from `__aenter__` on and closes. `address` is where the clients find it.

    What passes: CONNECT to listed endpoints (a tunnel, nothing in it is seen); GET and HEAD in plain HTTP of listed
    endpoints; GET and HEAD of the listed presets' registries, by the proxy's own paths (`registry_paths`), by their plain
    HTTP address, or by CONNECT where `authority` is given. The rest is refused before any name is looked up, with a body
    and an `X-Hostside-Reason` that name host, policy and the line that would allow it, and an `X-Hostside-Code`:
    `not_listed` 403, `preset_not_listed` 403, `method_refused` 405, `body_refused` 400, `malformed` 400, `head_too_long`
    431, `head_too_slow` 408, `not_served` 404, `too_many_connections` 503. After the look-up: `private_address` 403,
    `redirect_refused` 403, `file_not_named` 403, `answer_too_large` 403, `name_not_found`, `upstream_unreachable`,
    `upstream_failed`, `upstream_untrusted`, `upstream_unreadable`, `too_many_redirects` 502, `name_slow`,
    `upstream_slow` 504.

    `registry_tokens`: by preset, a token or `user:password`; it goes to the registry's own host alone. `decide` gets every
    decision and must neither block nor raise. Raises ConfigError (`invalid_configuration`) when the policy lists a preset
    whose registry `registries` does not know; nothing is served then.
    """

    def __init__(
        self,
        listener: socket.socket,
        policy: EgressPolicy,
        *,
        address: tuple[str, int],
        registries: Registries,
        decide: Decide,
        redactor: Redactor,
        registry_tokens: Mapping[str, str],
        authority: RunAuthority | None = None,
        resolver: Resolver | None = None,
        connector: Connector | None = None,
        limits: EgressLimits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        now: Callable[[], datetime] = _now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        registries.check(policy.presets)
        self._listener = listener
        self._limits = limits or EgressLimits()
        self._recorder = Recorder(policy.name, decide, redactor, now, monotonic)
        self._dialer = Dialer(policy, resolver or SystemResolver(), connector or TcpConnector(), self._limits)
        self._upstream = Upstream(self._dialer, self._limits, ssl_context)
        registry_proxy = RegistryProxy(
            policy=policy,
            registries=registries,
            upstream=self._upstream,
            limits=self._limits,
            tokens=registry_tokens,
            address=address,
            recorder=self._recorder,
        )
        self._handler = RequestHandler(
            policy=policy,
            registries=registries,
            registry_proxy=registry_proxy,
            upstream=self._upstream,
            dialer=self._dialer,
            recorder=self._recorder,
            limits=self._limits,
            authority=authority,
            address=address,
        )
        self._policy = policy
        self._open = 0
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
        # The launcher inside opened it with a shorter queue than a package manager's burst of connections.
        self._listener.listen(_BACKLOG)
        try:
            async with (
                await anyio.abc.SocketListener.from_socket(self._listener) as listener,
                self._upstream,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(listener.serve, self._serve, tasks)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self._recorder.finish()

    async def _serve(self, stream: anyio.abc.ByteStream) -> None:
        self._open += 1
        try:
            async with stream:
                await self._converse(stream)
        except ClientGone:
            pass
        except Exception:
            # A client inside sends what it likes: a fault that this brings to light costs it its connection, not the
            # run. The traceback may quote what was sent, so only the kind is told.
            _log.exception("a connection of a run's network proxy failed", exc_info=False)
        finally:
            self._open -= 1

    async def _converse(self, stream: anyio.abc.ByteStream) -> None:
        connection = ClientConnection(stream, self._limits)
        if self._open > self._limits.connections:
            await self._refuse_connection(connection)
            return
        first = True
        while await self._handler.serve_one(connection, first=first):
            first = False

    async def _refuse_connection(self, connection: ClientConnection) -> None:
        case = self._recorder.open()
        text = f"hostside: this run has more than {self._limits.connections} connections open"
        case.reason, case.status = "too_many_connections", 503
        try:
            await connection.refuse(EgressRefused(503, case.reason, text), self._policy.name)
        finally:
            self._recorder.closed(case)
