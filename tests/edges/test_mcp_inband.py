"""MCP inside Claude Code's control protocol, line by line: envelopes, equality with stdio, cancellation, hostile lines."""

import json
import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hostside.edges.frames import MAX_FRAME_BYTES
from hostside.edges.mcp_stdio import MAX_IN_FLIGHT
from hostside.errors import FailureCode
from tests.support.inband_channel import InbandChannel, inband
from tests.support.stdio_channel import channel

pytestmark = pytest.mark.anyio

TAKEN = {"jsonrpc": "2.0", "result": {}}
CALLS: tuple[dict[str, Any], ...] = (
    {"name": "echo", "arguments": {"text": "é|\n“it” \u2028\u202e\x1b"}},
    {"name": "echo", "arguments": {"text": 7, "more": 1}},
    {"name": "echo", "arguments": None},
    {"name": "echo", "arguments": "{}"},
    {"name": "demo_noarg"},
    {"name": "demo_get", "arguments": {"issue": 12.0}},
    {"name": "demo_get", "arguments": {"issue": 12345678901234567890}},
    {"name": "ecko"},
    {"name": "broken"},
)


def call(name: str, id: object, arguments: object = None) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments or {}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def steady(answer: object) -> str:
    """An answer without the ids of its receipt."""
    return re.sub(r"rc-\d+", "rc-*", json.dumps(answer, sort_keys=True))


async def started(client: InbandChannel) -> None:
    with anyio.fail_after(5):
        await client.tools.started.wait()


async def test_handshake_list_and_calls_are_those_of_the_stdio_edge() -> None:
    async with inband(shake_hands=False) as client, channel() as other:
        server = await client.shake_hands()
        assert (server["protocolVersion"], server["serverInfo"]["name"]) == ("2025-11-25", "hostside")
        await other.shake_hands()

        async def of_other(method: str, params: dict[str, Any], id: int) -> dict[str, Any]:
            await other.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            return await other.next()

        asked = [("tools/list", {}), ("ping", {}), ("nope", {}), *(("tools/call", params) for params in CALLS)]
        for number, (method, params) in enumerate(asked, 2):
            mine = await client.ask(method, params, id=number)
            theirs = await of_other(method, params, number)
            # The time that a listing is good for runs down between the two.
            for answer in (mine, theirs):
                answer.get("result", {}).pop("ttlMs", None)
            assert steady(mine) == steady(theirs)
        assert client.tools.calls == other.tools.calls
        ends = [[(end.code, end.outcome) for end in one.receipts.ends] for one in (client, other)]
        assert (ends[0], len(ends[0])) == (ends[1], len(CALLS))
        assert {start.edge for start in client.receipts.starts} == {"inband"}
        assert not set("\u2028\u202e\x1b") & set(client.raw.decode())


async def test_a_slow_call_holds_up_nothing_and_answers_find_their_requests() -> None:
    async with inband() as client:
        slow = client.say(call("endless", 5))
        await started(client)
        assert (await client.ask("tools/call", {"name": "demo_noarg"}, id=6))["id"] == 6
        client.tools.release.set()
        assert (await client.answer(slow))["id"] == 5


async def test_a_cancelled_call_ends_has_a_receipt_and_no_answer() -> None:
    async with inband() as client:
        client.say(call("endless", 7))
        await started(client)
        body = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 7, "reason": "AbortError"},
        }
        assert await client.answer(client.say(body)) == TAKEN
        # Nothing else came before this answer, and the id is free again.
        assert (await client.ask("tools/call", {"name": "demo_noarg"}, id=7))["id"] == 7
        assert client.tools.cancelled == ["endless"]
        assert [end.code for end in client.receipts.ends] == [FailureCode.CANCELLED, None]


async def test_the_end_of_the_service_cancels_calls_and_leaves_receipts() -> None:
    async with inband() as client:
        client.say(call("slow_write", 1))
        await started(client)
    assert [end.code for end in client.receipts.ends] == [FailureCode.CANCELLED]


async def test_after_its_end_every_request_is_told_so() -> None:
    client = InbandChannel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.edge.serve)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert (await client.answer(client.say(call("demo_noarg", 1))))["error"] == "Invalid request: the session is over"
    client.close()


async def test_progress_goes_to_the_client_as_requests_of_the_host() -> None:
    async with inband() as client:
        body = call("steady", 3)
        body["params"]["_meta"] = {"progressToken": "p"}
        control = client.say(body)
        first, second = await client.next(), await client.next()
        assert (first["type"], first["request"]["subtype"], first["request"]["server_name"]) == (
            *("control_request", "mcp_message"),
            "hostside",
        )
        told = [line["request"]["message"] for line in (first, second)]
        assert [message["method"] for message in told] == ["notifications/progress"] * 2
        assert [message["params"]["progressToken"] for message in told] == ["p", "p"]
        assert first["request_id"] != second["request_id"]
        client.tools.release.set()
        last = await client.next()
        while last["type"] == "control_request":
            last = await client.next()
        assert last["response"]["request_id"] == control


GOOD = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}'


def a_line(message: str, *, head: str = '"type":"control_request","request_id":"c"', server: str = "hostside") -> bytes:
    return f'{{{head},"request":{{"subtype":"mcp_message","server_name":"{server}","message":{message}}}}}'.encode()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (a_line(GOOD.replace('{"text":"x"}', '{"text":"x","text":"y"}')), "duplicate key"),
        (a_line(GOOD, head='"type":"control_request","request_id":"c","request_id":"c"'), "duplicate key"),
        (a_line(GOOD.replace('"x"', "NaN")), "NaN"),
        (a_line(GOOD.replace('"x"', "1e400")), "overflows"),
        (a_line(GOOD.replace('"x"', r'"\ud800"')), "surrogate"),
        (a_line(GOOD.replace('"x"', "[" * 100 + "]" * 100)), "nested deeper"),
        (a_line(GOOD.replace('"2.0"', '"1.0"')), "jsonrpc"),
        (a_line(GOOD.replace('"id":1', '"id":{}')), '"id" must be'),
        (a_line("[]"), "one JSON-RPC object"),
        (a_line("null"), "one JSON-RPC object"),
        (a_line(GOOD, server="other"), "only server"),
        (b'{"type":"control_request","request_id":"c","request":{"subtype":"can_use_tool"}}', "MCP messages alone"),
        (b'{"type":"control_request","request_id":"c"}', "MCP messages alone"),
        (a_line(GOOD.replace('"x"', '"' + "x" * MAX_FRAME_BYTES + '"')), "over"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_line_that_could_mean_two_things_or_nothing_is_refused_and_nothing_runs(line: bytes, why: str) -> None:
    async with inband() as client:
        client.edge.take(line)
        # A control error: the client hands its text to the model, and waits for ever for an answer without its id.
        refused = await client.answer("c")
        assert (refused["subtype"], why in refused["error"]) == ("error", True), refused
        assert client.refused == [refused["error"]]
        assert (client.tools.calls, client.receipts.ends) == ([], [])
        assert (await client.ask("tools/call", {"name": "demo_noarg"}))["result"]["structuredContent"] == {"done": True}


@pytest.mark.parametrize("line", [b"{", b"\xff", b"[]", b'{"request_id":7}', b"[" * 100_000], ids=lambda line: line[:9])
async def test_a_line_that_names_nobody_to_answer_is_refused_in_silence(line: bytes) -> None:
    async with inband() as client:
        client.edge.take(line)
        assert len(client.refused) == 1
        assert (await client.ask("tools/call", {"name": "demo_noarg"}))["id"] == 1


async def test_an_id_in_flight_cannot_be_used_again_and_the_first_call_keeps_its_answer() -> None:
    async with inband() as client:
        first = client.say(call("endless", 1))
        await started(client)
        assert "in flight" in (await client.answer(client.say(call("demo_noarg", "1"))))["error"]
        client.tools.release.set()
        assert (await client.answer(first))["result"]["structuredContent"] == {"done": True}


async def test_what_is_in_flight_is_bounded() -> None:
    async with inband() as client:
        for number in range(MAX_IN_FLIGHT):
            client.say(call("endless", number))
        assert "requests are in flight" in (await client.answer(client.say(call("demo_noarg", "more"))))["error"]
        await started(client)
    assert {end.code for end in client.receipts.ends} == {FailureCode.CANCELLED}


async def test_messages_that_want_no_answer_are_taken() -> None:
    async with inband() as client:
        for message in (
            {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            {"jsonrpc": "2.0", "id": 99, "result": {}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 42}},
        ):
            assert await client.answer(client.say(message)) == TAKEN


async def test_a_client_that_shakes_hands_again_goes_on() -> None:
    async with inband() as client:
        await client.shake_hands()
        assert (await client.ask("tools/call", {"name": "demo_noarg"}))["id"] == 1
