"""MCP, whatever carries it: descriptors, results, and the protocol server of a gateway (R-157..R-164, D17, D22).

Built on the SDK's lowlevel server, which speaks both eras and validates nothing; the boundary validates. The edge hands
the raw `arguments` of a call around the SDK in an `Inbound`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, cast
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from hostside.core.call import Progress, ToolCall, ToolResult, no_progress
from hostside.core.canonical import JsonValue, parse, snapshot
from hostside.core.gateway import Gateway
from hostside.core.registry import RegisteredTool
from hostside.errors import FailureCode

SERVER_NAME = "hostside"
META = "dev.hostside/"
IDEMPOTENCY_KEY = f"{META}idempotency-key"
#: Claude's id of one tool use: the same when it sends a call again after a reconnect (D23).
DELIVERY_KEY = "claudecode/toolUseId"
#: Where an HTTP edge puts the Inbound of a request, in its ASGI scope.
INBOUND = "hostside.inbound"
MAX_KEY_CHARACTERS = 200
MAX_TTL_SECONDS = 3_600.0
#: Claude gives up after 300 s without a message; comments on the stream do not count, progress does.
BEAT_SECONDS = 20.0
_STEP = 0.001

_Context = ServerRequestContext[Any, Any]


@dataclass(slots=True, kw_only=True)
class Inbound:
    """What an edge knows of one request and the SDK would lose.

    `arguments` are raw. `running` is True while the call runs; what `on_end` holds then is run once it has ended.
    """

    arguments: JsonValue
    running: bool = False
    on_end: list[Callable[[], None]] = field(default_factory=list)


def mcp_server(gateway_of: Callable[[], Gateway]) -> Server[Any]:
    """Return a protocol server for the gateway that `gateway_of` names at the time of each request.

    The transport must give each tool call its Inbound: as the message's `request_context`, or under `INBOUND` in the
    ASGI scope of the request. A call without one is refused.
    """
    return _GatewayServer(gateway_of)


def descriptor(item: RegisteredTool) -> types.Tool:
    """Return what `tools/list` says of a tool: its contract as registered, nothing cut or renamed."""
    spec = item.spec
    return types.Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=_object(item.advertised_input),
        output_schema=_object(item.output.document),
        annotations=types.ToolAnnotations(
            title=spec.title,
            read_only_hint=spec.read_only,
            destructive_hint=spec.destructive,
            idempotent_hint=spec.idempotent,
            open_world_hint=spec.open_world,
        ),
        _meta={
            f"{META}locality": spec.locality.value,
            f"{META}capability": spec.capability.value,
            f"{META}side_effect": spec.side_effect.value,
            f"{META}version": spec.version,
        },
    )


def call_result(result: ToolResult) -> types.CallToolResult:
    """Return the MCP form of a result: the same JSON as text and as `structuredContent`; a failure as text alone (D22).

    Raises MCPError(-32602) for an unknown tool (D17). The receipt's id is in `_meta`, never in the text.
    """
    failure = result.failure
    if failure is not None and failure.code is FailureCode.UNKNOWN_TOOL:
        raise MCPError(
            code=types.INVALID_PARAMS, message=f"{failure.message} {failure.remedy}", data=parse(result.text())
        )
    meta = {f"{META}receipt-id": result.receipt_id, f"{META}replay-of": result.replay_of}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.text())],
        structured_content=None if failure is not None else result.structured,
        is_error=failure is not None,
        _meta={key: value for key, value in meta.items() if value is not None},
    )


class _GatewayServer(Server[Any]):
    def __init__(self, gateway_of: Callable[[], Gateway]) -> None:
        super().__init__(
            SERVER_NAME,
            version=version("hostside"),
            on_list_tools=self._list,
            on_call_tool=self._call,
            # No tool mirrors an argument into a header; without this hook the SDK lists all tools before each call.
            get_tool_input_schema=lambda _name: None,
        )
        self.add_request_handler("server/discover", types.RequestParams, self._discover)
        self._gateway_of = gateway_of
        self._listings: WeakKeyDictionary[Gateway, list[types.Tool]] = WeakKeyDictionary()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        # Runs once for each handshake, so the instructions are those of the caller's own session.
        options = super().create_initialization_options(notification_options, experimental_capabilities, extensions)
        return options.model_copy(update={"instructions": self._gateway_of().session.instructions()})

    async def _discover(self, ctx: _Context, _params: types.RequestParams) -> types.DiscoverResult:
        gateway = self._gateway_of()
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=gateway.session.instructions(),
            ttl_ms=_ttl_ms(gateway),
            cache_scope="private",
        )

    async def _list(self, _ctx: _Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        gateway = self._gateway_of()
        tools = self._listings.get(gateway)
        if tools is None:
            tools = self._listings[gateway] = [descriptor(item) for item in gateway.session.listing()]
        return types.ListToolsResult(tools=list(tools), ttl_ms=_ttl_ms(gateway), cache_scope="private")

    async def _call(self, ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        inbound = _inbound(ctx.request)
        meta = cast("Mapping[str, object]", ctx.meta or {})
        inbound.running = True
        try:
            async with _progress(ctx, meta) as progress:
                call = ToolCall(
                    name=params.name,
                    arguments=inbound.arguments,
                    idempotency_key=_key(meta, IDEMPOTENCY_KEY),
                    delivery_key=_key(meta, DELIVERY_KEY),
                    progress=progress,
                )
                result = await self._gateway_of().call(call)
            return call_result(result)
        finally:
            inbound.running = False
            for ended in inbound.on_end:
                ended()


def _object(value: JsonValue) -> dict[str, Any]:
    copy = snapshot(value)
    assert isinstance(copy, dict)
    return copy


def _ttl_ms(gateway: Gateway) -> int:
    left = (gateway.session.expires_at - datetime.now(UTC)).total_seconds()
    return int(max(0.0, min(left, MAX_TTL_SECONDS)) * 1_000)


def _inbound(request: object) -> Inbound:
    scope = getattr(request, "scope", None)
    found = scope.get(INBOUND) if isinstance(scope, Mapping) else request
    if not isinstance(found, Inbound):
        # The SDK's own view of `arguments` is not what the caller sent, so there is nothing to fall back to.
        raise MCPError(code=types.INTERNAL_ERROR, message="The edge lost this call's arguments; nothing was done.")
    return found


def _key(meta: Mapping[str, object], name: str) -> str | None:
    value = meta.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARACTERS:
        raise MCPError(
            code=types.INVALID_PARAMS, message=f"_meta {name} must be text of 1 to {MAX_KEY_CHARACTERS} characters"
        )
    return value


@asynccontextmanager
async def _progress(ctx: _Context, meta: Mapping[str, object]) -> AsyncIterator[Progress]:
    """Yield the progress port of a call. A caller that asked for progress also gets a beat, so that it keeps waiting."""
    if "progress_token" not in meta and "progressToken" not in meta:
        yield no_progress
        return
    report = _Increasing(ctx.session.report_progress)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_beat, report)
        yield report
        tasks.cancel_scope.cancel()


async def _beat(report: "_Increasing") -> None:
    while True:
        await anyio.sleep(BEAT_SECONDS)
        await report(0.0, None, "still running")


class _Increasing:
    """Progress as MCP wants it: each value above the one before."""

    def __init__(self, report: Progress) -> None:
        self._report = report
        self._last = 0.0

    async def __call__(self, done: float, total: float | None, message: str) -> None:
        self._last = max(float(done), self._last + _STEP)
        # A lone surrogate cannot be written to the wire, and progress is not worth a broken stream.
        await self._report(self._last, total, message.encode("utf-8", "replace").decode())
