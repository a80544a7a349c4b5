"""MCP over HTTP: one endpoint, both eras, one token one session (R-173..R-183, D10, D11, C-13..C-15).

The token of each request is resolved on each request, and again while its answer is open, so that a revocation holds at
once. Behind the front door stands the SDK's session manager.
"""

import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import HEADER_MISMATCH, PROTOCOL_VERSION_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Message, Receive, Scope, Send

from hostside.core.gateway import Gateway
from hostside.edges.frames import INVALID_REQUEST, Frame, FrameKind, FrameRejected, read_frame, wire_bytes
from hostside.edges.http_front import (
    MAX_BODY_BYTES,
    Answer,
    Disconnected,
    FrontDoor,
    Refused,
    body_first,
    one_value,
    unauthorized,
    values,
    without_blanks,
)
from hostside.edges.legacy_sessions import LegacySessions, Owner
from hostside.edges.mcp import INBOUND, Inbound, mcp_server

ENDPOINT = "/mcp"
MAX_LEGACY_SESSIONS = 100
LEGACY_IDLE_SECONDS = 600.0
#: How soon a revocation that nobody told this process of ends what is open. Events are checked when they are sent.
RECHECK_SECONDS = 1.0
_FRESH_SECONDS = 0.05
_END_SECONDS = 2.0
_REUSE_SECONDS = 0.2
_SESSION_HEADER = b"mcp-session-id"
_log = logging.getLogger(__name__)

Resolve = Callable[[str], Awaitable[Gateway | None]]
_gateway: ContextVar[Gateway] = ContextVar("hostside_http_gateway")


def http_app(
    resolve: Resolve,
    *,
    allowed_hosts: Collection[str],
    allowed_origins: Collection[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    sessions_expire: bool = True,
) -> "HttpEdge":
    """Return the ASGI app of an MCP endpoint at `/mcp`, for the gateways that `resolve` finds.

    `resolve` returns the gateway that a token is good for now, or None; what it raises answers 503. `allowed_hosts` are
    exact `host:port` values, `allowed_origins` exact origins; with none, a request that names an origin is refused.

    A silent protocol session of the older era ends after `LEGACY_IDLE_SECONDS`; not so without `sessions_expire`, for an
    edge that lives no longer than its client.
    """
    idle_seconds = LEGACY_IDLE_SECONDS if sessions_expire else None
    manager = session_manager(mcp_server(_gateway.get), max_body_bytes=max_body_bytes, idle_seconds=idle_seconds)
    return HttpEdge(
        resolve,
        manager,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        max_body_bytes=max_body_bytes,
        idle_seconds=idle_seconds,
    )


def session_manager(
    server: Server[Any],
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    idle_seconds: float | None = LEGACY_IDLE_SECONDS,
    **options: Any,
) -> StreamableHTTPSessionManager:
    """Return the SDK's transport for `server` with this product's limits; `options` are the SDK's own."""
    return StreamableHTTPSessionManager(
        app=server,
        json_response=False,  # with it a client that goes away would not cancel its call (facts on MCP, §3)
        max_request_body_size=max_body_bytes,
        session_idle_timeout=idle_seconds,
        max_sessions=MAX_LEGACY_SESSIONS,
        **options,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    """One request behind the front door. It stays open until its call has ended, also when its client has left."""

    token: str = field(repr=False)
    owner: Owner
    checked: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class HttpEdge:
    """An ASGI app that needs the lifespan protocol. One instance serves one listener, once."""

    def __init__(
        self,
        resolve: Resolve,
        manager: StreamableHTTPSessionManager,
        *,
        allowed_hosts: Collection[str],
        allowed_origins: Collection[str] = (),
        max_body_bytes: int = MAX_BODY_BYTES,
        idle_seconds: float | None = LEGACY_IDLE_SECONDS,
    ) -> None:
        """`manager` is the protocol behind the door; see `http_app` for the rest."""
        self._resolve = resolve
        self._manager = manager
        self._front = FrontDoor(
            path=ENDPOINT,
            methods=frozenset({"POST", "DELETE"}),
            allowed_hosts=frozenset(host.lower() for host in allowed_hosts),
            allowed_origins=frozenset(allowed_origins),
            max_body_bytes=max_body_bytes,
        )
        self._legacy = LegacySessions(time.monotonic, idle_seconds=math.inf if idle_seconds is None else idle_seconds)
        self._open: set[_Request] = set()
        self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection. Raises nothing that a client could cause."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(without_blanks(scope), receive, Answer(send))
        else:
            await send({"type": "websocket.close"})

    async def drop(self, session_id: str) -> None:
        """End all that a host session has open here: its answers, its calls in flight, its protocol sessions."""
        await self._drop(*(owner for owner in self._owners() if owner.session_id == session_id))

    async def close(self) -> None:
        """Refuse everything from now on, and end all that is open."""
        self._closed = True
        await self._drop(*self._owners())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._manager.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.close()
            tasks.cancel_scope.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        try:
            if self._closed:
                raise Refused(503, "this endpoint is closing")
            await self._admitted(scope, receive, answer)
        except Refused as refused:
            await answer.refuse(refused)
        except Disconnected:
            return
        except Exception:  # the door stays open for the next request, whatever this one did
            _log.exception("the HTTP edge failed")
            await answer.refuse(Refused(500, "internal error"))

    async def _admitted(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        token = self._front.admit(scope)
        gateway = await self._gateway_of(token)
        owner = Owner(digest=hashlib.sha256(token.encode()).hexdigest(), session_id=gateway.session.session_id)
        request = _Request(token=token, owner=owner, checked=time.monotonic())
        inbound = Inbound(arguments={})
        self._open.add(request)
        try:
            with request.scope:
                _gateway.set(gateway)
                if scope["method"] == "DELETE":
                    await self._delete(scope, receive, answer, request)
                else:
                    await self._post(scope, receive, answer, request, inbound)
        finally:
            if inbound.running:  # a client before 2026-07-28 has left, and its call goes on
                inbound.on_end.append(lambda: self._open.discard(request))
            else:
                self._open.discard(request)
        if request.scope.cancelled_caught:
            raise unauthorized()

    async def _gateway_of(self, token: str) -> Gateway:
        try:
            gateway = await self._resolve(token)
        except Exception:
            _log.exception("a token could not be checked")
            raise Refused(503, "the token cannot be checked at the moment") from None
        if gateway is None:
            raise unauthorized()
        return gateway

    async def _delete(self, scope: Scope, receive: Receive, answer: Answer, request: _Request) -> None:
        legacy_id = self._legacy_id(scope, request.owner, None)
        await self._manager.handle_request(scope, receive, answer.send)
        self._legacy.forget(legacy_id)

    async def _post(self, scope: Scope, receive: Receive, answer: Answer, request: _Request, inbound: Inbound) -> None:
        self._front.check_body_headers(scope)
        body = await self._front.read_body(receive)
        try:
            frame = read_frame(body)
        except FrameRejected as rejected:
            raise _refused(400, rejected) from None
        inbound.arguments = frame.arguments
        receive = body_first(wire_bytes(frame.message) if frame.altered else body, receive)
        scope = {**scope, INBOUND: inbound}

        async def send(message: Message) -> None:
            if answer.streaming:
                await self._recheck(request)
            await answer.send(message)

        if _is_legacy(scope):
            await self._legacy_post(scope, receive, send, answer, request, frame, inbound)
        else:
            await self._manager.handle_request(scope, receive, send)

    async def _legacy_post(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        answer: Answer,
        request: _Request,
        frame: Frame,
        inbound: Inbound,
    ) -> None:
        if frame.method == "initialize" and not values(scope, _SESSION_HEADER):
            await self._handshake(scope, receive, send, request.owner)
            return
        legacy_id = self._legacy_id(scope, request.owner, frame)
        request_id = frame.request_id if frame.kind is FrameKind.REQUEST else None
        if request_id is not None and not await self._claim(legacy_id, request_id):
            raise _refused(400, "this id belongs to a request in flight", frame)
        try:
            await self._manager.handle_request(scope, receive, send)
        finally:
            self._settle(legacy_id, request_id, inbound)
        if answer.status == 404:  # the SDK let it expire
            self._legacy.forget(legacy_id)

    def _settle(self, legacy_id: str, request_id: str | int | None, inbound: Inbound) -> None:
        if request_id is None:
            return
        if inbound.running:
            inbound.on_end.append(lambda: self._legacy.end(legacy_id, request_id))
        else:
            self._legacy.end(legacy_id, request_id)

    def _legacy_id(self, scope: Scope, owner: Owner, frame: Frame | None) -> str:
        legacy_id = one_value(scope, _SESSION_HEADER)
        if legacy_id is None:
            if frame is not None and _has_envelope(frame):
                raise _refused(400, "the MCP-Protocol-Version header does not match the body", frame, HEADER_MISMATCH)
            raise _refused(400, "the Mcp-Session-Id header is missing", frame)
        if not self._legacy.owned(legacy_id, owner):
            # The same for a stranger's session as for none (C-13).
            raise _refused(404, "Session not found", frame)
        return legacy_id

    async def _claim(self, legacy_id: str, request_id: str | int) -> bool:
        # A client that has its answer may use the id again while that answer is still being ended here.
        with anyio.move_on_after(_REUSE_SECONDS):
            while not self._legacy.begin(legacy_id, request_id):
                await anyio.sleep(_REUSE_SECONDS / 20)
            return True
        return False

    async def _handshake(self, scope: Scope, receive: Receive, send: Send, owner: Owner) -> None:
        outdated: tuple[str, ...] = ()

        async def noting(message: Message) -> None:
            nonlocal outdated
            if message["type"] == "http.response.start" and message["status"] == 200:
                # Before the client reads the id: it may use it while this answer is still being ended.
                for name, value in message["headers"]:
                    if name.lower() == _SESSION_HEADER:
                        outdated = self._legacy.add(value.decode("latin-1"), owner)
            await send(message)

        await self._manager.handle_request(scope, receive, noting)
        await self._end_legacy(*outdated)

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(RECHECK_SECONDS)
            for owner, request in {request.owner: request for request in self._open}.items():
                if not await self._good(request):
                    await self._drop(owner)

    async def _recheck(self, request: _Request) -> None:
        if time.monotonic() - request.checked > _FRESH_SECONDS and not await self._good(request):
            await self._drop(request.owner)
            await anyio.lowlevel.checkpoint()  # cancelled here, before the event is sent

    async def _good(self, request: _Request) -> bool:
        try:
            await self._gateway_of(request.token)
        except Refused:
            return False
        request.checked = time.monotonic()
        return True

    def _owners(self) -> set[Owner]:
        return {request.owner for request in self._open} | {owner for _, owner in self._legacy.all()}

    async def _drop(self, *owners: Owner) -> None:
        for request in tuple(self._open):
            if request.owner in owners:
                request.scope.cancel()
        await self._end_legacy(*(legacy_id for owner in owners for legacy_id in self._legacy.of(owner)))

    async def _end_legacy(self, *legacy_ids: str) -> None:
        for legacy_id in legacy_ids:
            self._legacy.forget(legacy_id)
        with anyio.move_on_after(_END_SECONDS, shield=True):
            async with anyio.create_task_group() as tasks:
                for legacy_id in legacy_ids:
                    # The SDK ends a session, and cancels its calls, when its client says DELETE; so the host says it.
                    tasks.start_soon(self._manager.handle_request, _delete_scope(legacy_id), _no_message, _ignore)


def _is_legacy(scope: Scope) -> bool:
    versions = values(scope, b"mcp-protocol-version")
    return not versions or versions[0].decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS


def _has_envelope(frame: Frame) -> bool:
    meta = frame.params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


def _refused(status: int, why: FrameRejected | str, frame: Frame | None = None, code: int = INVALID_REQUEST) -> Refused:
    rejected = why
    if isinstance(rejected, str):
        rejected = FrameRejected(code, rejected, None if frame is None else frame.request_id)
    return Refused(status, rejected.message, body=rejected.as_bytes())


def _delete_scope(legacy_id: str) -> Scope:
    headers = [(_SESSION_HEADER, legacy_id.encode("latin-1"))]
    return {"type": "http", "method": "DELETE", "path": ENDPOINT, "query_string": b"", "headers": headers}


async def _no_message() -> Message:
    return {"type": "http.disconnect"}


async def _ignore(_message: Message) -> None:
    return None
