"""MCP over stdio, byte by byte: framing, both eras, cancellation, the end of input (AX-30, R-168..R-172, C-17)."""

import json
import os
from typing import Any

import anyio
import pytest

from hostside.core.receipt import Outcome
from hostside.edges.descriptors import read_some, write_all
from hostside.edges.frames import MAX_FRAME_BYTES
from hostside.edges.mcp_stdio import serve_frames
from hostside.errors import Effect, FailureCode
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway
from tests.support.http_edges import modern_body
from tests.support.memory_receipts import MemoryReceipts
from tests.support.stdio_channel import channel

pytestmark = pytest.mark.anyio


def an_echo(text: str, *, id: object = 1) -> dict[str, Any]:
    return modern_body("tools/call", {"name": "echo", "arguments": {"text": text}}, id=id)


def echoed(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["structuredContent"]["text"]
    return text


async def test_both_eras_list_and_call() -> None:
    async with channel() as modern, channel() as legacy:
        await legacy.shake_hands()
        discovered = (await modern.ask("server/discover"))["result"]
        assert (discovered["supportedVersions"], discovered["cacheScope"]) == (["2026-07-28"], "private")
        await legacy.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        names = [
            [tool["name"] for tool in answer["result"]["tools"]]
            for answer in (await modern.ask("tools/list"), await legacy.next())
        ]
        assert names[0] == names[1] == sorted(names[0])
        call = {"name": "echo", "arguments": {"text": "x"}}
        await legacy.say({"jsonrpc": "2.0", "id": "three", "method": "tools/call", "params": call})
        answers = [await modern.ask("tools/call", call, id="three"), await legacy.next()]
        assert [(answer["id"], echoed(answer)) for answer in answers] == [("three", "x")] * 2


@pytest.mark.parametrize("arguments", [None, [], "", "{}", 0, False], ids=repr)
async def test_arguments_that_are_no_object_reach_the_boundary_and_get_a_receipt(arguments: object) -> None:
    async with channel() as client:
        answer = await client.ask("tools/call", {"name": "demo_noarg", "arguments": arguments})
        failure = json.loads(answer["result"]["content"][0]["text"])["failure"]
        assert (answer["result"]["isError"], failure["code"]) == (True, "invalid_arguments")
        assert [end.outcome for end in client.receipts.ends] == [Outcome.REFUSED]
        assert client.tools.calls == []
        missing = await client.ask("tools/call", {"name": "demo_noarg"})
        assert missing["result"]["structuredContent"] == {"done": True}


async def test_an_unknown_tool_is_a_protocol_error_with_a_receipt() -> None:
    async with channel() as client:
        assert (await client.ask("tools/call", {"name": "ecko"}))["error"]["code"] == -32602
        assert [end.code for end in client.receipts.ends] == [FailureCode.UNKNOWN_TOOL]


async def test_hidden_characters_and_carriage_returns_never_leave_raw() -> None:
    async with channel() as client:
        await client.shake_hands()
        words = "a\u2028b\u0085c\u202ed\r\x1b"
        call = {"name": "echo", "arguments": {"text": words}}
        await client.send(
            json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}).encode() + b"\r\n"
        )
        assert echoed(await client.next()) == words
        assert not set("\u2028\u0085\u202e\r\x1b") & set(client.raw.decode())


async def test_pieces_joins_and_cuts_inside_a_character_make_no_difference() -> None:
    async with channel() as client:
        frames = [json.dumps(an_echo(f"é🦀{number}", id=number), ensure_ascii=False).encode() for number in range(3)]
        await client.send(frames[0] + b"\n" + frames[1] + b"\n")
        for index in range(len(frames[2])):
            await client.send(frames[2][index : index + 1])
        await client.send(b"\n")
        found = {answer["id"]: echoed(answer) for answer in [await client.next() for _ in range(3)]}
        assert found == {number: f"é🦀{number}" for number in range(3)}


async def test_broken_frames_get_one_error_each_and_the_loop_goes_on() -> None:
    async with channel() as client:
        broken = [b"{", b"\xff", b'{"a":1,"a":2}', b"[]", b'{"jsonrpc":"2.0","id":3,"method":4}']
        await client.send(b"\n".join(broken) + b"\n\n\r\n")
        errors = [await client.next() for _ in broken]
        assert [(error["error"]["code"], error["id"]) for error in errors] == [
            (-32700, None),
            (-32700, None),
            (-32700, None),
            (-32600, None),
            (-32600, 3),
        ]
        assert echoed(await client.ask("tools/call", {"name": "echo", "arguments": {"text": "on"}})) == "on"


async def test_a_frame_of_several_mebibytes_works_and_one_over_the_limit_gets_one_error() -> None:
    async with channel() as client:
        big = "a" * (3 * 1024 * 1024)
        answers: list[dict[str, Any]] = []

        async def read(count: int) -> None:
            answers.extend([await client.next() for _ in range(count)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, 3)
            await client.say(an_echo(big, id=1))
            await client.send(b"a" * (MAX_FRAME_BYTES + 2) + b"\n")
            await client.say(an_echo("next", id=2))
        assert [answer["id"] for answer in answers] == [1, None, 2]
        # The host's own limit on a result, not the frame's: the call itself was carried out.
        assert len(client.tools.calls[0][1]["text"]) == len(big)  # type: ignore[arg-type]
        assert answers[1]["error"]["code"] == -32600
        assert echoed(answers[2]) == "next"


async def test_a_cancel_notification_suppresses_the_answer() -> None:
    async with channel() as client:
        body = modern_body("tools/call", {"name": "steady", "_meta": {"progressToken": "p"}}, id=7)
        await client.say(body)
        with anyio.fail_after(5):
            await client.tools.started.wait()
        assert (await client.next())["method"] == "notifications/progress"
        await client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        await client.say(an_echo("after", id=8))
        answer = await client.next()
        while answer.get("method") == "notifications/progress":
            answer = await client.next()
        assert (answer["id"], echoed(answer)) == (8, "after")
        assert client.tools.cancelled == ["steady"]
        assert [end.code for end in client.receipts.ends] == [FailureCode.CANCELLED, None]
        assert (await client.ask("tools/call", {"name": "demo_noarg"}, id=7))["id"] == 7


async def test_an_id_in_flight_cannot_be_used_again() -> None:
    async with channel() as client:
        await client.say(modern_body("tools/call", {"name": "endless"}, id=1))
        with anyio.fail_after(5):
            await client.tools.started.wait()
        refused = await client.ask("tools/call", {"name": "demo_noarg"}, id="1")
        assert (refused["id"], refused["error"]["code"]) == ("1", -32600)
        client.tools.release.set()
        assert (await client.next())["result"]["structuredContent"] == {"done": True}


async def test_a_call_in_flight_at_the_end_of_input_may_finish() -> None:
    async with channel() as client:
        await client.say(modern_body("tools/call", {"name": "slow_write"}, id=1))
        with anyio.fail_after(5):
            await client.tools.started.wait()
        client.hang_up()
        client.tools.release.set()
        assert (await client.next())["result"]["structuredContent"] == {"done": True}
    assert [end.outcome for end in client.receipts.ends] == [Outcome.OK]


async def test_a_call_that_does_not_end_in_time_is_cancelled_with_its_receipt() -> None:
    tools, sent = EdgeTools(), []
    receipts = MemoryReceipts()
    gateway = make_gateway(tools.all(), receipts=receipts)
    incoming = [json.dumps(modern_body("tools/call", {"name": "slow_write"})).encode() + b"\n", b""]

    async def receive() -> bytes:
        return incoming.pop(0)

    async def send(data: bytes) -> None:
        sent.append(data)

    with anyio.fail_after(5):
        await serve_frames(gateway, receive, send, drain_seconds=0.05)
    (end,) = receipts.ends
    assert (end.code, end.effect) == (FailureCode.CANCELLED, Effect.UNKNOWN)
    assert all(json.loads(frame).get("result") is None for frame in sent)


async def test_a_frame_without_its_line_end_is_not_run() -> None:
    async with channel() as client:
        await client.send(json.dumps(an_echo("cut")).encode())
        client.hang_up()
        assert (await client.next())["error"]["code"] == -32700
    assert client.tools.calls == []


async def test_a_client_that_stops_reading_ends_the_server_and_the_call_has_its_receipt() -> None:
    async with channel() as client:
        await client.say(modern_body("tools/call", {"name": "slow_write"}, id=1))
        with anyio.fail_after(5):
            await client.tools.started.wait()
        client.stop_reading()
        await client.send(b"{\n")
        with anyio.fail_after(5):
            await client.ended.wait()
    assert [end.code for end in client.receipts.ends] == [FailureCode.CANCELLED]


async def test_a_file_can_be_the_input(tmp_path: Any) -> None:
    script = tmp_path / "frames"
    script.write_bytes(b"".join(json.dumps(an_echo(str(n), id=n)).encode() + b"\n" for n in range(5)))
    tools, sent = EdgeTools(), []
    fd = os.open(script, os.O_RDONLY)

    async def send(data: bytes) -> None:
        sent.append(data)

    try:
        with anyio.fail_after(5):
            await serve_frames(make_gateway(tools.all()), lambda: read_some(fd), send)
    finally:
        os.close(fd)
    assert sorted(echoed(json.loads(frame)) for frame in sent) == ["0", "1", "2", "3", "4"]


async def test_writing_to_a_slow_reader_does_not_stop_the_loop() -> None:
    read_fd, write_fd = os.pipe()
    data, got = os.urandom(1_000_000), bytearray()
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_all, write_fd, data)
                await anyio.wait_all_tasks_blocked()  # the pipe is full, and this task still runs
                while len(got) < len(data):
                    got += await read_some(read_fd)
    finally:
        os.close(read_fd)
        os.close(write_fd)
    assert bytes(got) == data
