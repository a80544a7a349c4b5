"""Calls in flight over HTTP: who gets which answer, what ends with whom, and what a revocation ends (C-15, D10, R-180)."""

import json
from typing import Any

import anyio
import httpx
import pytest

from hostside.core.receipt import Outcome
from hostside.edges import mcp_http
from hostside.errors import Effect, FailureCode
from tests.support.http_edges import (
    LEGACY,
    MODERN,
    TOKEN_1,
    TOKEN_2,
    Endpoint,
    LegacyClient,
    answer_of,
    endpoint,
    events_of,
    modern_body,
    modern_headers,
)

pytestmark = pytest.mark.anyio


def a_call(tool: str, *, id: object = 1, progress: object = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if progress is not None:
        params["_meta"] = {"progressToken": progress}
    return modern_body("tools/call", params, id=id)


async def until_recorded(receipts: Any, ends: int) -> None:
    with anyio.fail_after(5):
        while len(receipts.ends) < ends:
            await anyio.sleep(0.01)


async def hold(door: Endpoint, tool: str, started: Any, *, token: str = TOKEN_1, progress: object = None) -> Any:
    """Send one call and leave its connection when `started` is set."""
    body = a_call(tool, progress=progress)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                await started.wait()
                scope.cancel()

            tasks.start_soon(leave)
            await door.post(body, token=token, **modern_headers(body))
            tasks.cancel_scope.cancel()


async def test_a_client_that_leaves_cancels_its_call_and_the_receipt_says_what_is_known() -> None:
    async with endpoint() as door:
        with anyio.fail_after(10):
            await hold(door, "slow_write", door.one.tools.started)
            await until_recorded(door.one.receipts, 1)
        (end,) = door.one.receipts.ends
        assert (end.outcome, end.code, end.effect) == (Outcome.FAILED, FailureCode.CANCELLED, Effect.UNKNOWN)
        assert door.one.tools.cancelled == ["endless"]
        assert (await door.modern("tools/call", {"name": "demo_noarg"})).status_code == 200


async def test_a_client_of_an_earlier_revision_that_leaves_does_not_cancel_its_call() -> None:
    async with endpoint() as door:
        client = await door.begin()
        with anyio.fail_after(10), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def leave() -> None:
                    await door.one.tools.started.wait()
                    scope.cancel()

                tasks.start_soon(leave)
                await client.request("tools/call", {"name": "endless", "arguments": {}}, id=5)
        assert door.one.tools.cancelled == []
        again = await client.request("ping", id=5)
        assert answer_of(again)["error"]["message"].startswith("this id belongs to a request in flight")
        door.one.tools.release.set()
        await until_recorded(door.one.receipts, 1)
        assert door.one.receipts.ends[0].outcome is Outcome.OK
        assert answer_of(await client.request("ping", id=5))["result"] == {}


async def test_a_cancel_notification_ends_the_call_of_an_earlier_revision() -> None:
    async with endpoint() as door:
        client = await door.begin()
        answers: list[httpx.Response] = []
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    answers.append(await client.request("tools/call", {"name": "endless"}, id=7))

                tasks.start_soon(call)
                await door.one.tools.started.wait()
                told = await client.notify("notifications/cancelled", {"requestId": 7, "reason": "user"})
        assert (told.status_code, told.content) == (202, b"")
        assert "result" not in answer_of(answers[0])
        assert door.one.tools.cancelled == ["endless"]
        assert [end.code for end in door.one.receipts.ends] == [FailureCode.CANCELLED]


async def test_a_client_that_always_counts_from_one_is_answered_each_time() -> None:
    async with endpoint() as door:
        client = await door.begin()
        for _ in range(20):
            await client.notify("notifications/cancelled", {"requestId": 99})
            assert answer_of(await client.request("ping", id=1)) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def fifty(door: Endpoint, token: str, name: str, ids: Any, client: LegacyClient | None = None) -> list[Any]:
    answers: list[Any] = [None] * 50

    async def one(number: int) -> None:
        arguments = {"text": f"{name}-{number}", "ms": (50 - number) % 7 * 5}
        params = {"name": "slow_echo", "arguments": arguments}
        if client is not None:
            response = await client.request("tools/call", params, id=ids(number))
        else:
            response = await door.modern("tools/call", params, id=ids(number), token=token)
        answer = answer_of(response)
        answers[number] = (answer["id"], answer["result"]["structuredContent"]["text"])

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    return answers


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_fifty_parallel_calls_of_two_runs_with_the_same_ids_each_get_their_own_answer(era: str) -> None:
    async with endpoint() as door:
        found: dict[str, list[Any]] = {}
        clients = {token: await door.begin(token) if era == "legacy" else None for token in (TOKEN_1, TOKEN_2)}

        async def run(token: str, name: str) -> None:
            found[name] = await fifty(door, token, name, lambda number: number, clients[token])

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, TOKEN_1, "one")
                tasks.start_soon(run, TOKEN_2, "two")
        assert found == {name: [(number, f"{name}-{number}") for number in range(50)] for name in ("one", "two")}


async def streamed(door: Endpoint, tool: str, **headers: str) -> tuple[int, list[Any]]:
    """Open a call that reports progress; return the status and every message until the stream ends."""
    body = a_call(tool, progress="p")
    async with door.client.stream(
        "POST", door.url, content=json.dumps(body), headers=door.headers(**modern_headers(body), **headers)
    ) as response:
        text = "".join([piece async for piece in response.aiter_text()])
        return response.status_code, events_of(text)


async def test_progress_streams_rising_and_the_answer_comes_last() -> None:
    async with endpoint() as door:
        found: list[Any] = []
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    found.extend((await streamed(door, "steady"))[1])

                tasks.start_soon(call)
                await door.one.tools.started.wait()
                await door.modern("tools/call", {"name": "slow_echo", "arguments": {"text": "", "ms": 60}})
                door.one.tools.release.set()
        *progress, answer = found
        assert answer["result"]["structuredContent"] == {"done": True}
        values = [event["params"]["progress"] for event in progress]
        assert len(values) > 1
        assert values == sorted(set(values))
        assert {event["params"]["progressToken"] for event in progress} == {"p"}


@pytest.mark.parametrize("how", ["dropped", "revoked", "closed"])
async def test_an_open_stream_ends_with_its_token(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "RECHECK_SECONDS", 60.0)  # the next event is soon enough
    async with endpoint() as door:
        found: list[Any] = []
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    found.append(await streamed(door, "steady"))

                tasks.start_soon(call)
                await door.one.tools.started.wait()
                if how == "dropped":
                    await door.edge.drop("s-1")
                elif how == "revoked":
                    del door.good[TOKEN_1]
                else:
                    await door.edge.close()
        ((_status, events),) = found
        assert [event for event in events if "result" in event] == []
        assert door.one.tools.cancelled == ["steady"]
        assert [end.code for end in door.one.receipts.ends] == [FailureCode.CANCELLED]
        if how != "closed":
            other = await door.modern("tools/call", {"name": "demo_noarg"}, token=TOKEN_2)
            assert other.status_code == 200


async def test_a_silent_call_ends_too_when_its_token_is_revoked_elsewhere() -> None:
    async with endpoint() as door:
        statuses: list[int] = []
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    statuses.append((await door.modern("tools/call", {"name": "endless"})).status_code)

                tasks.start_soon(call)
                await door.one.tools.started.wait()
                del door.good[TOKEN_1]
        assert statuses == [401]
        assert door.one.tools.cancelled == ["endless"]


@pytest.mark.parametrize("how", ["dropped", "revoked"])
async def test_what_a_client_left_running_ends_with_its_token(how: str) -> None:
    async with endpoint() as door:
        client = await door.begin()
        with anyio.fail_after(10), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def leave() -> None:
                    await door.one.tools.started.wait()
                    scope.cancel()

                tasks.start_soon(leave)
                await client.request("tools/call", {"name": "endless"}, id=5)
        if how == "dropped":
            await door.edge.drop("s-1")
        else:
            del door.good[TOKEN_1]
        await until_recorded(door.one.receipts, 1)
        assert door.one.tools.cancelled == ["endless"]
        assert (await client.request("ping", id=6)).status_code == (404 if how == "dropped" else 401)
        assert (await (await door.begin(TOKEN_2)).request("ping")).status_code == 200


async def test_a_revoked_token_is_refused_at_once_and_another_goes_on() -> None:
    async with endpoint() as door:
        client, other = await door.begin(), await door.begin(TOKEN_2)
        del door.good[TOKEN_1]
        assert (await client.request("tools/list")).status_code == 401
        assert (await door.modern("tools/list")).status_code == 401
        assert (await other.request("tools/list")).status_code == 200


async def test_one_token_cannot_use_up_the_sessions_of_all() -> None:
    async with endpoint() as door:
        clients = [await door.begin() for _ in range(12)]
        other = await door.begin(TOKEN_2)
        statuses = [(await client.request("ping")).status_code for client in clients]
        assert statuses == [404] * 4 + [200] * 8
        assert (await other.request("ping")).status_code == 200


async def test_a_call_sent_twice_by_its_delivery_key_runs_once_and_says_so() -> None:
    async with endpoint() as door:
        params = {"name": "slow_write", "_meta": {"claudecode/toolUseId": "toolu_1"}}
        door.one.tools.release.set()
        first, second = [answer_of(await door.modern("tools/call", params))["result"] for _ in range(2)]
        assert len(door.one.tools.calls) == 1
        assert second["structuredContent"] == first["structuredContent"]
        assert second["_meta"]["dev.hostside/replay-of"] == first["_meta"]["dev.hostside/receipt-id"]


@pytest.mark.parametrize("key", ["dev.hostside/idempotency-key", "claudecode/toolUseId"])
@pytest.mark.parametrize("value", [1, "", "k" * 201, ["k"], {"k": 1}])
async def test_a_key_that_is_no_short_text_is_a_malformed_request(key: str, value: object) -> None:
    async with endpoint() as door:
        answer = await door.modern("tools/call", {"name": "demo_noarg", "_meta": {key: value}})
        assert (answer.status_code, answer_of(answer)["error"]["code"]) == (400, -32602)
        assert door.one.tools.calls == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_hidden_characters_leave_escaped(era: str) -> None:
    words = "a\u2028b\u0085c\u202ed\x7f"
    call = {"name": "echo", "arguments": {"text": words}}
    async with endpoint() as door:
        if era == "legacy":
            answer = await (await door.begin()).request("tools/call", call)
        else:
            answer = await door.modern("tools/call", call)
        assert answer_of(answer)["result"]["structuredContent"] == {"text": words}
        assert not set(answer.text) & set(words) - set("abcd")


@pytest.mark.parametrize("version", [None, LEGACY])
async def test_a_modern_body_under_another_version_header_is_a_header_mismatch(version: str | None) -> None:
    async with endpoint() as door:
        headers = {} if version is None else {"mcp_protocol_version": version}
        answer = await door.post(modern_body("tools/list", id="x"), **headers)
        assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, "x", -32020)


async def test_the_version_header_says_which_era_answers() -> None:
    async with endpoint() as door:
        unknown = await door.modern(
            "tools/list",
            {"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}},
            mcp_protocol_version="2099-01-01",
        )
        error = answer_of(unknown)["error"]
        assert (unknown.status_code, error["code"], error["data"]["supported"]) == (400, -32022, [MODERN])
