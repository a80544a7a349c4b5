"""AX-28: the official client of both eras, over HTTP: what it lists, calls and is refused (R-157..R-164, D17, D22)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import MCPError
from mcp.client.client import Client, ConnectMode
from mcp.client.streamable_http import streamable_http_client

from hostside.core.canonical import snapshot
from tests.support.http_edges import TOKEN_1, Endpoint, answer_of, endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("era", ["legacy", "auto"])]


@asynccontextmanager
async def connected(door: Endpoint, era: ConnectMode, token: str = TOKEN_1) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=20.0, trust_env=False) as http,
        Client(streamable_http_client(door.url, http_client=http), mode=era) as client,
    ):
        yield client


async def test_the_server_says_who_it_is_and_what_is_bound(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as client:
        assert client.server_info is not None
        assert client.server_info.name == "hostside"
        assert client.instructions == door.one.gateway.session.instructions()
        assert client.server_capabilities.model_dump(exclude_none=True) == {"tools": {"list_changed": False}}


async def test_the_list_is_the_session_s_own_in_name_order_and_twice_the_same(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as client:
        first, second = [await client.list_tools(cache_mode="bypass") for _ in range(2)]
        assert first == second
        assert [tool.name for tool in first.tools] == [item.spec.name for item in door.one.gateway.session.listing()]
        for tool, item in zip(first.tools, door.one.gateway.session.listing(), strict=True):
            assert tool.input_schema == snapshot(item.advertised_input)
            assert tool.output_schema == snapshot(item.output.document)
        if era != "legacy":
            assert first.cache_scope == "private"
            assert 0 < (first.ttl_ms or 0) <= 3_600_000


async def test_a_tool_is_described_with_its_safety_facts(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as client:
        found = {tool.name: tool for tool in (await client.list_tools()).tools}["slow_write"]
        assert found.model_dump(by_alias=True, exclude_none=True) == {
            "name": "slow_write",
            "title": "Demo",
            "description": "A tool for tests.",
            "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
            "outputSchema": {
                "type": "object",
                "properties": {"done": {"type": "boolean"}},
                "additionalProperties": False,
                "required": ["done"],
            },
            "annotations": {
                "title": "Demo",
                "readOnlyHint": False,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
            "_meta": {
                "dev.hostside/locality": "remotable",
                "dev.hostside/capability": "write",
                "dev.hostside/side_effect": "mutation",
                "dev.hostside/version": "1",
            },
        }


async def test_a_success_is_the_same_json_as_text_and_as_structure(era: ConnectMode) -> None:
    words = "a\u2028b\u0085c\u202ed \x1b[31m \x7f é 🦀"
    async with endpoint() as door, connected(door, era) as client:
        result = await client.call_tool("echo", {"text": words})
        assert result.structured_content == {"text": words}
        assert not result.is_error
        (block,) = result.content
        assert json.loads(getattr(block, "text", "")) == result.structured_content
        assert getattr(block, "text", "").count("\u2028") == 0


async def test_a_refusal_is_one_text_that_names_pointer_and_rule_and_has_a_receipt(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as client:
        result = await client.call_tool("demo_get", {"issue": "7"})
        assert result.is_error
        assert result.structured_content is None
        (block,) = result.content
        failure: dict[str, Any] = json.loads(getattr(block, "text", ""))["failure"]
        assert (failure["code"], failure["effect"]) == ("invalid_arguments", "none")
        assert failure["details"][0]["pointer"] == "/issue"
        assert failure["receipt_id"] == door.one.receipts.ends[0].receipt_id
        assert (result.meta or {})["dev.hostside/receipt-id"] == failure["receipt_id"]


async def test_an_unknown_tool_is_a_protocol_error_and_still_has_a_receipt(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("ecko", {})
        assert caught.value.error.code == -32602
        assert "echo" in caught.value.error.message
        (end,) = door.one.receipts.ends
        assert caught.value.error.data["failure"]["receipt_id"] == end.receipt_id
        assert (await client.call_tool("demo_noarg", {})).structured_content == {"done": True}


async def test_a_tool_s_bug_shows_nothing_of_itself(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as client:
        result = await client.call_tool("broken", {})
        assert result.is_error
        assert "CANARY" not in result.model_dump_json()
        assert '"code":"tool_crashed"' in getattr(result.content[0], "text", "")


async def test_an_unknown_method_is_minus_32601(era: ConnectMode) -> None:
    async with endpoint() as door:
        if era == "legacy":
            answer = await (await door.begin()).request("no/such")
        else:
            answer = await door.modern("no/such")
            assert answer.status_code == 404
        assert answer_of(answer)["error"]["code"] == -32601


async def test_two_clients_of_two_tokens_see_their_own_session(era: ConnectMode) -> None:
    async with endpoint() as door, connected(door, era) as one, connected(door, era, door.two.token) as two:
        await one.call_tool("echo", {"text": "1"})
        await two.call_tool("echo", {"text": "2"})
        assert [door.one.tools.calls, door.two.tools.calls] == [[("echo", {"text": "1"})], [("echo", {"text": "2"})]]
