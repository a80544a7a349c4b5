"""The fixture tools that the MCP conformance suite calls by name. They stand for a server of somebody else."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as t
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

Context = ServerRequestContext[Any, Any]
Params = t.CallToolRequestParams
Result = t.CallToolResult | t.InputRequiredResult
Handler = Callable[[Context, Params], Awaitable[Result]]
Schema = dict[str, Any]

bus = InMemorySubscriptionBus()


@dataclass(frozen=True, slots=True)
class FixtureTool:
    """One fixture."""

    handler: Handler
    schema: Schema


TOOLS: dict[str, FixtureTool] = {}


def tool(schema: Schema | None = None, *, name: str | None = None) -> Callable[[Handler], Handler]:
    """Register a fixture, as `name` or as its own name after `test_`."""

    def register(handler: Handler) -> Handler:
        TOOLS[name or f"test_{handler.__name__}"] = FixtureTool(handler, schema or {"type": "object"})
        return handler

    return register


def text(value: str) -> t.TextContent:
    """Return a text block."""
    return t.TextContent(type="text", text=value)


def result(*content: t.ContentBlock, is_error: bool = False) -> t.CallToolResult:
    """Return a finished result."""
    return t.CallToolResult(content=list(content), is_error=is_error)


def resource(uri: str, mime_type: str, value: str) -> t.EmbeddedResource:
    """Return an embedded text resource."""
    contents = t.TextResourceContents(uri=uri, mime_type=mime_type, text=value)
    return t.EmbeddedResource(type="resource", resource=contents)


def an_object(required: str | None = None, /, **properties: str | Schema) -> Schema:
    """Return an object schema; a property given as a word is of that type."""
    shapes = {key: {"type": value} if isinstance(value, str) else value for key, value in properties.items()}
    return {"type": "object", "properties": shapes, "required": [required] if required else []}


@tool()
async def simple_text(_context: Context, _params: Params) -> Result:
    return result(text("This is a simple text response for testing."))


@tool()
async def image_content(_context: Context, _params: Params) -> Result:
    return result(t.ImageContent(type="image", data=IMAGE, mime_type="image/png"))


@tool()
async def audio_content(_context: Context, _params: Params) -> Result:
    return result(t.AudioContent(type="audio", data=SOUND, mime_type="audio/wav"))


@tool()
async def embedded_resource(_context: Context, _params: Params) -> Result:
    return result(resource("test://embedded-resource", "text/plain", "This is an embedded resource content."))


@tool()
async def multiple_content_types(_context: Context, _params: Params) -> Result:
    return result(
        text("Multiple content types test:"),
        t.ImageContent(type="image", data=IMAGE, mime_type="image/png"),
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    )


@tool()
async def error_handling(_context: Context, _params: Params) -> Result:
    return result(text("This tool intentionally returns an error for testing"), is_error=True)


async def _log(context: Context, _params: Params) -> Result:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message(level="info", data=line, related_request_id=context.request_id)
        await anyio.sleep(0.05)
    return result(text("ok"))


tool(name="test_tool_with_logging")(_log)
tool(name="test_logging_tool")(_log)


@tool()
async def tool_with_progress(context: Context, _params: Params) -> Result:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(0.05)
    return result(text("ok"))


@tool(an_object(prompt="string"))
async def sampling(context: Context, params: Params) -> Result:
    prompt = str((params.arguments or {})["prompt"])
    answer = await context.session.create_message(
        messages=[t.SamplingMessage(role="user", content=text(prompt))],
        max_tokens=100,
        related_request_id=context.request_id,
    )
    return result(text(f"LLM response: {getattr(answer.content, 'text', '')}"))


async def _ask(context: Context, message: str, schema: Schema) -> Result:
    answer = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return result(text(f"User response: action={answer.action}, content={json.dumps(answer.content)}"))


@tool(an_object(message="string"))
async def elicitation(context: Context, params: Params) -> Result:
    message = str((params.arguments or {})["message"])
    return await _ask(context, message, an_object("response", response="string"))


@tool()
async def elicitation_sep1034_defaults(context: Context, _params: Params) -> Result:
    schema = an_object(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return await _ask(context, "defaults", schema)


@tool()
async def elicitation_sep1330_enums(context: Context, _params: Params) -> Result:
    titled = [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]
    options = {"type": "string", "enum": ["option1", "option2"]}
    schema = an_object(
        untitledSingle=options,
        titledSingle={"type": "string", "oneOf": titled},
        untitledMulti={"type": "array", "items": options},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
        legacyEnum={**options, "enumNames": ["Option One", "Option Two"]},
    )
    return await _ask(context, "enums", schema)


@tool(an_object(region={"type": "string", "x-mcp-header": "Region"}))
async def x_mcp_header(_context: Context, params: Params) -> Result:
    return result(text(str((params.arguments or {}).get("region"))))


async def _nothing(_context: Context, _params: Params) -> Result:
    return result(text("ok"))


tool(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", **an_object(street="string", city="string")}},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    name="json_schema_2020_12_tool",
)(_nothing)


@tool()
async def missing_capability(context: Context, _params: Params) -> Result:
    offered = context.session.client_capabilities
    if offered is None or offered.sampling is None:
        raise MCPError(
            code=t.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="needs sampling",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return result(text("ok"))


@tool()
async def reconnection(context: Context, _params: Params) -> Result:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await anyio.sleep(0.2)
    return result(text("done"))


@tool()
async def trigger_tool_change(_context: Context, _params: Params) -> Result:
    await bus.publish(ToolsListChanged())
    return result(text("ok"))


@tool()
async def trigger_prompt_change(_context: Context, _params: Params) -> Result:
    await bus.publish(PromptsListChanged())
    return result(text("ok"))
