"""A server for the MCP conformance suite, behind the product's own HTTP edge. Prints its port, serves until killed.

    python -m tests.support.conformance_server fixtures    every fixture that the suite names, on the SDK's server
    python -m tests.support.conformance_server edge        a gateway, as the product serves it

The suite cannot send a token, so one is added to each request, and nothing else is changed.
"""

import json
import socket
import sys
import warnings
from typing import Any, get_args

import anyio
import mcp_types as t
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventId, EventMessage, EventStore, StreamId
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from hostside.core.gateway import Gateway
from hostside.edges.http_server import serve_on
from hostside.edges.mcp_http import HttpEdge, http_app, session_manager
from tests.support.conformance_rounds import NAME, elicit
from tests.support.conformance_tools import IMAGE, TOOLS, Context, Result, bus, resource, text
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway

TOKEN = "hst_" + "c" * 43
STATIC: dict[str, tuple[str, str | None]] = {
    "test://static-text": ("text/plain", "This is the content of the static text resource."),
    "test://static-binary": ("image/png", None),
    "test://watched-resource": ("text/plain", "Watched"),
}
PROMPT_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_tools(_context: Context, _params: object) -> t.ListToolsResult:
    tools = [t.Tool(name=name, description=name, input_schema=item.schema) for name, item in TOOLS.items()]
    return t.ListToolsResult(tools=tools)


async def call_tool(context: Context, params: t.CallToolRequestParams) -> Result:
    if params.name not in TOOLS:
        raise MCPError(code=t.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    return await TOOLS[params.name].handler(context, params)


async def list_resources(_context: Context, _params: object) -> t.ListResourcesResult:
    found = [t.Resource(uri=uri, name=uri.split("//")[1], mime_type=kind) for uri, (kind, _) in STATIC.items()]
    return t.ListResourcesResult(resources=found)


async def list_templates(_context: Context, _params: object) -> t.ListResourceTemplatesResult:
    template = t.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", mime_type="application/json"
    )
    return t.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_context: Context, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    uri = str(params.uri)
    if uri.startswith("test://template/"):
        item = uri.split("/")[3]
        value = json.dumps({"id": item, "templateTest": True, "data": f"Data for ID: {item}"})
        return t.ReadResourceResult(
            contents=[t.TextResourceContents(uri=uri, mime_type="application/json", text=value)]
        )
    if uri not in STATIC:
        raise MCPError(code=t.INVALID_PARAMS, message="Resource not found", data={"uri": uri})
    kind, words = STATIC[uri]
    if words is None:
        return t.ReadResourceResult(contents=[t.BlobResourceContents(uri=uri, mime_type=kind, blob=IMAGE)])
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type=kind, text=words)])


async def list_prompts(_context: Context, _params: object) -> t.ListPromptsResult:
    prompts = [
        t.Prompt(name=name, description=name, arguments=[t.PromptArgument(name=key, required=True) for key in keys])
        for name, keys in PROMPT_ARGUMENTS.items()
    ]
    return t.ListPromptsResult(prompts=prompts)


async def get_prompt(_context: Context, params: t.GetPromptRequestParams) -> t.GetPromptResult | t.InputRequiredResult:
    given = params.arguments or {}
    if params.name == "test_input_required_result_prompt" and "user_context" not in (params.input_responses or {}):
        return t.InputRequiredResult(input_requests={"user_context": elicit("context?", NAME)})
    said: dict[str, list[t.ContentBlock]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            resource(given.get("resourceUri", "test://none"), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [
            t.ImageContent(type="image", data=IMAGE, mime_type="image/png"),
            text("Please analyze the image above."),
        ],
        "test_input_required_result_prompt": [text("context received")],
    }
    if params.name not in said:
        raise MCPError(code=t.INVALID_PARAMS, message="Unknown prompt")
    return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=block) for block in said[params.name]])


async def complete(_context: Context, _params: object) -> t.CompleteResult:
    return t.CompleteResult(completion=t.Completion(values=[], total=0, has_more=False))


async def nothing(_context: Context, _params: object) -> t.EmptyResult:
    return t.EmptyResult()


class Events(EventStore):
    """Events kept in memory, in order of arrival."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, t.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: t.JSONRPCMessage | None) -> EventId:
        """Keep an event; its id is its number."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: EventId, send_callback: Any) -> StreamId | None:
        """Send what came after an event on its stream."""
        first = int(last_event_id)
        stream = self._events[first - 1][0]
        for number, (found, message) in enumerate(self._events[first:], first + 1):
            if found == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def fixture_server() -> Server[Any]:
    """Return the SDK's server with every fixture."""
    server: Server[Any] = Server(
        "fixtures",
        version="0.1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=nothing,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(bus),
        cache_hints={method: CacheHint(ttl_ms=60_000) for method in get_args(CacheableMethod)},
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="fixtures"))
    return server


def the_app(what: str, port: int) -> HttpEdge:
    """Return the edge that serves `fixtures` or a gateway."""
    gateway = make_gateway(EdgeTools().all(), edge="http")

    async def resolve(token: str) -> Gateway | None:
        return gateway if token == TOKEN else None

    hosts = {f"localhost:{port}", f"127.0.0.1:{port}"}
    origins = {f"http://{host}" for host in hosts}
    if what == "edge":
        return http_app(resolve, allowed_hosts=hosts, allowed_origins=origins)
    manager = session_manager(fixture_server(), event_store=Events(), retry_interval=100)
    return HttpEdge(resolve, manager, allowed_hosts=hosts, allowed_origins=origins)


async def serve(what: str) -> None:
    """Serve until killed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        edge = the_app(what, port)

        async def with_token(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]
            await edge(scope, receive, send)

        print(port, flush=True)
        await serve_on([listener], with_token)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the suite asks for parts of the protocol that are deprecated
    anyio.run(serve, sys.argv[1])
