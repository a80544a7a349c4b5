"""A session keeps the tools with which it was opened, on every edge; the next one has the new ones (A0-12, R-021, R-022)."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest

from hostside.core.call import ToolResult
from hostside.core.gateway import Gateway
from hostside.core.registry import Registry
from hostside.edges.codex import dynamic_tools, to_call, to_reply
from hostside.edges.function_shapes import Dialect
from hostside.edges.functions import FunctionEdge
from hostside.edges.mcp_http import http_app
from hostside.edges.mcp_stdio import serve_frames
from tests.support.function_wire import ask, call_item
from tests.support.gateways import make_gateway
from tests.support.http_edges import ACCEPT, TOKEN_1, answer_of, modern_body, modern_headers, serving
from tests.support.tools import Recorder, a_tool, schema

pytestmark = pytest.mark.anyio

#: Names and input schemas as listed, then the text that a call of `kept` and of `removed` gets.
Seen = tuple[list[tuple[str, Any]], dict[str, Any], str | None]
#: Lists and calls over one edge.
Look = Callable[[Gateway], Awaitable[Seen]]


def answering(who: str) -> Recorder:
    return Recorder(ToolResult(structured={"who": who}))


def a_registry() -> Registry:
    return Registry([a_tool(answering("first"), name="kept"), a_tool(answering("first"), name="removed")])


def change(registry: Registry) -> None:
    """Everything that a reload may do: other words, another executor, one tool less, one more."""
    registry.remove("removed")
    registry.remove("kept")
    words = schema({"more": {"type": "string"}})
    registry.register(a_tool(answering("second"), name="kept", input_schema=words, description="Other words."))
    registry.register(a_tool(answering("second"), name="added"))


def code_of(value: dict[str, Any]) -> str | None:
    code: str | None = value.get("failure", {}).get("code")
    return code


async def over_codex(gateway: Gateway) -> Seen:
    listed: list[Any] = dynamic_tools(gateway.session) or []
    told = []
    for name in ("kept", "removed"):
        reply: dict[str, Any] = to_reply(await gateway.call(to_call({"tool": name, "arguments": {}})))
        told.append(json.loads(reply["contentItems"][0]["text"]))
    return [(tool["name"], tool["inputSchema"]) for tool in listed], told[0], code_of(told[1])


async def over_functions(gateway: Gateway) -> Seen:
    dialect: Dialect = "messages"
    listed: list[Any] = FunctionEdge(gateway, dialect).tools()
    told = []
    for name in ("kept", "removed"):
        (answer,) = await ask(gateway, dialect, call_item(dialect, name, {}))
        told.append(json.loads(answer.text))
    return [(tool["name"], tool["input_schema"]) for tool in listed], told[0], code_of(told[1])


def of_mcp(listed: dict[str, Any], kept: dict[str, Any], removed: dict[str, Any]) -> Seen:
    tools = [(tool["name"], tool["inputSchema"]) for tool in listed["result"]["tools"]]
    told = json.loads(removed["result"]["content"][0]["text"]) if "result" in removed else removed["error"]["data"]
    return tools, kept["result"]["structuredContent"], code_of(told)


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    *(("tools/call", {"name": name, "arguments": {}}) for name in ("kept", "removed")),
]


async def over_stdio(gateway: Gateway) -> Seen:
    frames = [
        json.dumps(modern_body(method, params, id=n)).encode() + b"\n" for n, (method, params) in enumerate(REQUESTS)
    ]
    sent: dict[int, dict[str, Any]] = {}

    async def receive() -> bytes:
        return frames.pop(0) if frames else b""

    async def send(data: bytes) -> None:
        answer = json.loads(data)
        sent[answer["id"]] = answer

    with anyio.fail_after(10):
        await serve_frames(gateway, receive, send)
    return of_mcp(sent[0], sent[1], sent[2])


async def over_http(gateway: Gateway) -> Seen:
    async def resolve(_token: str) -> Gateway:
        return gateway

    answers = []
    async with (
        serving(lambda port: http_app(resolve, allowed_hosts={f"127.0.0.1:{port}"})) as port,
        httpx.AsyncClient(trust_env=False, timeout=20.0) as client,
    ):
        for method, params in REQUESTS:
            body = modern_body(method, params)
            names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
            headers = {"authorization": f"Bearer {TOKEN_1}", "accept": ACCEPT, **names}
            answers.append(answer_of(await client.post(f"http://127.0.0.1:{port}/mcp", json=body, headers=headers)))
    return of_mcp(answers[0], answers[1], answers[2])


EDGES: dict[str, Look] = {"codex": over_codex, "functions": over_functions, "stdio": over_stdio, "run-http": over_http}


@pytest.mark.parametrize("edge", EDGES)
async def test_a_session_lists_and_runs_what_it_was_opened_with_and_a_new_one_the_change(edge: str) -> None:
    registry, look = a_registry(), EDGES[edge]
    running = make_gateway(registry, edge=edge)
    before = await look(running)
    change(registry)
    after, new = await look(running), await look(make_gateway(registry, edge=edge, session_id="s-2"))
    assert before == after
    assert ([name for name, _ in after[0]], after[1:]) == (["kept", "removed"], ({"who": "first"}, None))
    assert ([name for name, _ in new[0]], new[1:]) == (["added", "kept"], ({"who": "second"}, "unknown_tool"))
    assert dict(new[0])["kept"] != dict(after[0])["kept"]
