"""What an MCP edge owes its session: bounded answers, the host's own limit, its range of codes, and nothing beside its tools
(AX-58, R-134, R-164, R-161, R-165, R-166, R-181)."""

import ast
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import mcp_types
import pytest

import hostside
from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.core.policy import Policy
from hostside.edges.mcp_http import http_app
from tests.support.gateways import make_gateway, make_host
from tests.support.http_edges import ACCEPT, TOKEN_1, TOKEN_2, answer_of, endpoint, modern_body, modern_headers, serving
from tests.support.stdio_channel import channel
from tests.support.tools import Recorder, a_tool, a_write_spec, never, schema

pytestmark = pytest.mark.anyio
SECRET = "canary-0123456789"


class Door:
    """One endpoint; `ask` sends a call of 2026-07-28 with a token and returns its result."""

    def __init__(self, port: int, client: httpx.AsyncClient) -> None:
        self.port, self._client = port, client

    async def call(self, tool: str, token: str = TOKEN_1) -> dict[str, Any]:
        """Return the result of a call that needs no arguments."""
        body = modern_body("tools/call", {"name": tool, "arguments": {}})
        names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
        headers = {"authorization": f"Bearer {token}", "accept": ACCEPT, **names}
        answer = await self._client.post(f"http://127.0.0.1:{self.port}/mcp", json=body, headers=headers)
        found: dict[str, Any] = answer_of(answer)["result"]
        return found

    async def failure(self, tool: str, token: str = TOKEN_1) -> dict[str, Any] | None:
        """Return the failure of a call, None for a success."""
        result = await self.call(tool, token)
        if not result["isError"]:
            return None
        found: dict[str, Any] = json.loads(result["content"][0]["text"])["failure"]
        return found


@asynccontextmanager
async def door(**gateways: Gateway) -> AsyncIterator[Door]:
    """Serve gateways by their tokens."""

    async def resolve(token: str) -> Gateway | None:
        return gateways.get(token)

    async with (
        serving(lambda port: http_app(resolve, allowed_hosts={f"127.0.0.1:{port}"})) as port,
        httpx.AsyncClient(trust_env=False, timeout=20.0) as client,
    ):
        yield Door(port, client)


async def test_a_call_that_needs_a_person_ends_at_once_where_nobody_can_answer() -> None:
    spec = a_write_spec(confirm_on=frozenset({"http"}))
    gateway = make_gateway([a_tool(never, spec=spec), a_tool(Recorder())], edge="http")
    async with door(**{TOKEN_1: gateway}) as opened:
        with anyio.fail_after(5):
            failure = await opened.failure("demo_write")
        assert failure is not None
        assert (failure["code"], failure["effect"], bool(failure["remedy"])) == ("approval_denied", "none", True)
        assert await opened.failure("demo_get") is None


async def test_the_hosts_limit_counts_each_session_by_itself_and_names_the_host() -> None:
    tools = [a_tool(Recorder())]
    one, two = [
        make_gateway(tools, edge="http", session_id=name, policy=Policy(calls_per_minute=2)) for name in ("s-1", "s-2")
    ]
    async with door(**{TOKEN_1: one, TOKEN_2: two}) as opened:
        first = [await opened.failure("demo_get") for _ in range(4)]
        other = [await opened.failure("demo_get", TOKEN_2) for _ in range(2)]
    assert [failure and failure["code"] for failure in first] == [None, None, "rate_limited", "rate_limited"]
    assert other == [None, None]
    refused = first[2]
    assert refused is not None
    assert (refused["effect"], refused["details"][0]["blocker"]) == ("none", "host_rate")
    assert 0 < refused["retry_after_ms"] <= 60_000


async def test_an_answer_leaves_without_secrets_in_bounds_and_means_what_the_tool_said() -> None:
    words = f"a\x1b[31m\u202eb\u2028 {SECRET} <&> \ufeff"

    async def speak(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        return ToolResult(structured={"text": words})

    async def shout(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        return ToolResult(structured={"text": "é" * 60_000, "truncated": False})

    output = schema({"text": {"type": "string"}, "truncated": {"type": "boolean"}})
    tools = [a_tool(speak, output_schema=output), a_tool(shout, name="shout", output_schema=output)]
    gateway = make_gateway(tools, edge="http", host=make_host(secrets=[SECRET]))
    async with door(**{TOKEN_1: gateway}) as opened:
        spoken, shouted = await opened.call("demo_get"), await opened.call("shout")
    text: str = spoken["content"][0]["text"]
    assert json.loads(text) == spoken["structuredContent"] == {"text": words.replace(SECRET, "[redacted]")}
    assert not any(character in text for character in "\x1b\u202e\u2028\ufeff")
    assert len(shouted["content"][0]["text"].encode()) <= 40_000
    assert shouted["structuredContent"]["truncated"] is True


async def test_every_answer_of_the_newest_revision_says_its_kind_and_a_listing_how_long_it_keeps() -> None:
    async with channel() as client:
        asked = [("tools/list", {}), ("tools/call", {"name": "demo_noarg"}), ("tools/call", {"name": "demo_get"})]
        answers = [(await client.ask(method, params))["result"] for method, params in [*asked, ("server/discover", {})]]
    assert [answer["resultType"] for answer in answers] == ["complete"] * 4
    assert answers[2]["isError"] is True
    assert (answers[0]["cacheScope"], 0 < answers[0]["ttlMs"] <= 3_600_000) == ("private", True)


def test_no_code_of_the_reserved_range_is_made_up_here() -> None:
    ours = {
        -node.operand.value
        for path in (Path(hostside.__file__).parent).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int)
    }
    defined = {value for name, value in vars(mcp_types).items() if name.isupper() and isinstance(value, int)}
    codes = {code for code in ours if -32_768 <= code <= -32_000}
    assert codes
    assert {code for code in codes if code >= -32_099} == set()
    assert codes <= defined


@pytest.mark.parametrize("target", ["http://example.invalid/mcp", "//example.invalid/mcp", "/mcp/../etc/passwd"])
async def test_the_endpoint_neither_forwards_nor_serves_a_file(target: str) -> None:
    async with endpoint() as opened, await opened.connect() as connection:
        head = f"POST {target} HTTP/1.1\r\nhost: example.invalid\r\nauthorization: Bearer {TOKEN_1}\r\n"
        await connection.send(f"{head}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        with anyio.fail_after(5):
            answer = await connection.receive()
        assert answer.split(b" ")[1] in {b"400", b"404", b"421"}
        assert opened.one.receipts.events == []
