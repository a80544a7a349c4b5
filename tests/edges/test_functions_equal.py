"""The same calls over MCP, Codex's dynamic tools and each dialect of function calling: one outcome (R-167, R-209)."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject, compact
from hostside.core.gateway import Gateway
from hostside.core.locality import CallerDisk, Locality, Reach
from hostside.core.policy import Profile
from hostside.core.spec import Capability, Tool
from hostside.edges.codex import dynamic_tools, to_call, to_reply
from hostside.edges.function_shapes import Dialect
from hostside.edges.functions import FunctionEdge
from hostside.edges.mcp_stdio import serve_frames
from hostside.errors import Effect, FailureCode, ToolFailed
from tests.support.function_wire import DIALECTS, ask, call_item
from tests.support.gateways import an_issue, make_gateway
from tests.support.http_edges import modern_body
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import a_post_spec, a_spec, a_tool, a_write_spec, schema

BODY = schema({"body": {"type": "string", "maxLength": 5}}, ("body",))
#: Every kind of outcome: `(tool, arguments)` and the code that the call ends with.
CALLS: tuple[tuple[str, object, str | None], ...] = (
    ("demo_get", {"body": "é\u202e"}, None),
    ("demo_get", {"body": 1.0}, "invalid_arguments"),
    ("demo_get", {"body": "a", "Body": None}, "invalid_arguments"),
    ("demo_get", ["body"], "invalid_arguments"),
    ("demo_get", None, "invalid_arguments"),
    ("demo_gett", {}, "unknown_tool"),
    ("demo_disk", {}, "locality_refused"),
    ("demo_wipe", {}, "capability_denied"),
    ("demo_post", {"body": "hi"}, None),
    ("demo_post", {"body": "hi"}, None),
    ("demo_fail", {}, "tool_failed"),
    ("demo_crash", {}, "tool_crashed"),
    ("demo_write", {}, None),
)

#: What the model reads, and whether it is told of a failure (None: the protocol cannot say).
Told = tuple[str, bool | None]
#: Takes one call and returns what the model is told.
Say = Callable[[str, object], Awaitable[Told]]


async def echo(arguments: JsonObject, _context: CallContext) -> ToolResult:
    return ToolResult(structured={"id": str(arguments.get("body", "none"))}, effect=Effect.REPORTED)


async def fail(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    raise ToolFailed(FailureCode.TOOL_FAILED, "It is not there.", remedy="List first.", effect=Effect.NONE)


async def crash(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    raise RuntimeError("CANARY")


def tools() -> list[Tool]:
    return [
        a_tool(echo, spec=a_spec("demo_get", input_schema=BODY)),
        a_tool(spec=a_spec("demo_disk", locality=Locality.CALLER_FILESYSTEM)),
        a_tool(spec=a_write_spec("demo_wipe", capability=Capability.DESTRUCTIVE)),
        a_tool(echo, spec=a_post_spec("demo_post")),
        a_tool(fail, spec=a_write_spec("demo_fail")),
        a_tool(crash, spec=a_write_spec("demo_crash")),
        a_tool(echo, spec=a_write_spec("demo_write")),
    ]


def session(edge: str, receipts: MemoryReceipts) -> Gateway:
    return make_gateway(
        tools(),
        edge=edge,
        issue=an_issue(),
        profile=Profile.WORKSPACE,
        reach=Reach(caller_disk=CallerDisk.UNPROVEN, server_checkout=False),
        receipts=receipts,
    )


def receipts_of(log: MemoryReceipts) -> list[tuple[object, ...]]:
    """Everything in the receipts but times and the edge's name, in the order of their ids."""
    ends = {end.receipt_id: end for end in log.ends}
    starts = sorted(log.starts, key=lambda start: int(start.receipt_id.removeprefix("rc-")))
    return [
        (
            *(start.receipt_id, start.session_id, start.run_id, start.issue_id, start.principal, start.tool),
            *(start.tool_version, start.registry_fingerprint, start.call_key, start.operation_id, start.replay_of),
            *(start.arguments_fingerprint, compact(start.arguments_redacted)),
            *(end.receipt_id, end.outcome, end.code, end.effect, end.result_sha256, end.result_bytes),
        )
        for start, end in ((start, ends[start.receipt_id]) for start in starts)
    ]


async def converse(say: Say) -> list[Told]:
    return [await say(name, arguments) for name, arguments, _ in CALLS]


async def over_mcp(log: MemoryReceipts) -> list[Told]:
    to_server, from_client = anyio.create_memory_object_stream[bytes](1)
    to_client, from_server = anyio.create_memory_object_stream[bytes](1)

    async def receive() -> bytes:
        try:
            return await from_client.receive()
        except anyio.EndOfStream:
            return b""

    async def say(name: str, arguments: object) -> Told:
        frame = modern_body("tools/call", {"name": name, "arguments": arguments})
        await to_server.send(json.dumps(frame).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await from_server.receive())
        if "error" in answer:  # an unknown tool, which alone is an error of the protocol (D17)
            return compact(answer["error"]["data"]), True
        return answer["result"]["content"][0]["text"], answer["result"]["isError"]

    with anyio.fail_after(10):
        async with to_server, from_client, to_client, from_server, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_frames, session("stdio", log), receive, to_client.send)
            told = await converse(say)
            to_server.close()
        return told


async def over_codex(log: MemoryReceipts) -> list[Told]:
    gateway = session("codex", log)

    async def say(name: str, arguments: object) -> Told:
        params = {"tool": name, "namespace": None, "arguments": arguments}
        reply: dict[str, Any] = to_reply(await gateway.call(to_call(params)))
        return reply["contentItems"][0]["text"], not reply["success"]

    return await converse(say)


def over_functions(dialect: Dialect) -> Callable[[MemoryReceipts], Awaitable[list[Told]]]:
    async def over(log: MemoryReceipts) -> list[Told]:
        gateway = session("functions", log)

        async def say(name: str, arguments: object) -> Told:
            (answer,) = await ask(gateway, dialect, call_item(dialect, name, arguments))
            return answer.text, answer.is_error

        return await converse(say)

    return over


Edge = Callable[[MemoryReceipts], Awaitable[list[Told]]]
EDGES: dict[str, Edge] = {"codex": over_codex, **{dialect: over_functions(dialect) for dialect in DIALECTS}}


@pytest.mark.anyio
@pytest.mark.parametrize("edge", EDGES)
async def test_every_edge_tells_the_model_and_the_receipts_what_mcp_does(edge: str) -> None:
    expected_log, log = MemoryReceipts(), MemoryReceipts()
    expected, told = await over_mcp(expected_log), await EDGES[edge](log)
    assert [code for _, _, code in CALLS] == [json.loads(text).get("failure", {}).get("code") for text, _ in expected]
    assert [text for text, _ in told] == [text for text, _ in expected]
    assert receipts_of(log) == receipts_of(expected_log)
    assert {start.edge for start in log.starts} == {"codex" if edge == "codex" else "functions"}
    if edge in ("codex", "messages"):  # the other two have no mark for a failure
        assert told == expected


@pytest.mark.anyio
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_one_response_with_all_calls_gives_what_one_call_at_a_time_gives(dialect: Dialect) -> None:
    alone, together = MemoryReceipts(), MemoryReceipts()
    expected = await over_functions(dialect)(alone)
    calls = [
        call_item(dialect, name, arguments, id=f"call_{number}") for number, (name, arguments, _) in enumerate(CALLS)
    ]
    answers = await ask(session("functions", together), dialect, *calls)
    assert [(answer.text, answer.is_error) for answer in answers] == expected
    assert [answer.id for answer in answers] == [f"call_{number}" for number in range(len(CALLS))]
    assert receipts_of(together) == receipts_of(alone)


def test_every_edge_lists_the_same_tools_with_the_same_schemas() -> None:
    codex: list[Any] = dynamic_tools(session("codex", MemoryReceipts()).session) or []
    expected = [(tool["name"], tool["description"], tool["inputSchema"]) for tool in codex]
    assert [name for name, _, _ in expected] == ["demo_crash", "demo_fail", "demo_get", "demo_post", "demo_write"]
    for dialect in DIALECTS:
        listed: list[Any] = FunctionEdge(session("functions", MemoryReceipts()), dialect).tools()
        shown = [tool.get("function", tool) for tool in listed]
        assert [
            (tool["name"], tool["description"], tool.get("parameters", tool.get("input_schema"))) for tool in shown
        ] == expected
