"""Parts of the MCP edge alone: protocol sessions, progress, and what a call without its arguments gets."""

from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client.client import Client

from hostside.core.call import ToolResult
from hostside.edges import mcp as mcp_edge
from hostside.edges.legacy_sessions import MAX_PER_OWNER, LegacySessions, Owner
from hostside.edges.mcp import call_result, mcp_server
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway
from tests.support.http_edges import modern_body
from tests.support.stdio_channel import channel

ONE, TWO = Owner(digest="1", session_id="s-1"), Owner(digest="2", session_id="s-2")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def sessions(clock: list[float]) -> LegacySessions:
    now: Callable[[], float] = lambda: clock[0]  # noqa: E731
    return LegacySessions(now, idle_seconds=10)


def test_a_session_is_known_to_its_owner_alone(sessions: LegacySessions) -> None:
    sessions.add("a", ONE)
    assert [sessions.owned("a", ONE), sessions.owned("a", TWO), sessions.owned("b", ONE)] == [True, False, False]


def test_an_owner_s_oldest_session_makes_room_and_no_other_owner_s(sessions: LegacySessions) -> None:
    assert sessions.add("other", TWO) == ()
    ended = [sessions.add(str(number), ONE) for number in range(MAX_PER_OWNER + 1)]
    assert ended == [()] * MAX_PER_OWNER + [("0",)]


def test_an_idle_session_is_ended_unless_a_request_is_in_flight(sessions: LegacySessions, clock: list[float]) -> None:
    sessions.add("idle", ONE)
    sessions.add("busy", ONE)
    assert sessions.begin("busy", 1)
    clock[0] = 11.0
    assert sessions.add("new", TWO) == ("idle",)


def test_an_id_is_in_flight_until_its_request_has_ended(sessions: LegacySessions) -> None:
    sessions.add("a", ONE)
    assert [sessions.begin("a", 1), sessions.begin("a", "1"), sessions.begin("a", 2)] == [True, False, True]
    sessions.end("a", 1)
    assert sessions.begin("a", "1")
    sessions.forget("a")
    sessions.end("a", 2)
    assert sessions.all() == ()


@pytest.mark.anyio
async def test_a_call_that_says_nothing_still_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_edge, "BEAT_SECONDS", 0.01)
    async with channel() as client:
        await client.say(modern_body("tools/call", {"name": "endless", "_meta": {"progressToken": 5}}))
        beats = [await client.next() for _ in range(3)]
        client.tools.release.set()
        values = [beat["params"]["progress"] for beat in beats]
        assert {(beat["method"], beat["params"]["progressToken"]) for beat in beats} == {("notifications/progress", 5)}
        assert values == sorted(set(values))
        answer = await client.next()
        while "method" in answer:
            answer = await client.next()
        assert answer["result"]["structuredContent"] == {"done": True}


@pytest.mark.anyio
async def test_a_call_whose_raw_arguments_were_lost_is_refused() -> None:
    tools = EdgeTools()
    gateway = make_gateway(tools.all())
    async with Client(mcp_server(lambda: gateway)) as client:
        with anyio.fail_after(5), pytest.raises(MCPError) as caught:
            await client.call_tool("demo_noarg", {})
    assert caught.value.error.code == types.INTERNAL_ERROR
    assert tools.calls == []


def test_null_and_exact_numbers_survive_in_a_result() -> None:
    structured: dict[str, Any] = {"a": None, "n": 2**53 + 1, "l": [None], "o": {"x": None}}
    sent = call_result(ToolResult(structured=structured)).model_dump(by_alias=True, mode="json", exclude_none=True)
    assert sent["structuredContent"] == structured
    assert sent["content"] == [{"type": "text", "text": '{"a":null,"n":9007199254740993,"l":[null],"o":{"x":null}}'}]
