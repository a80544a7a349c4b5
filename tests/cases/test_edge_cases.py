"""C-05: the frame itself. C-13: whose session. C-14: the front door. C-15: two clients, one id."""

import json
import logging
from typing import Any

import anyio
import httpx
import pytest

from tests.cases.rows import Row, rows
from tests.support.http_edges import (
    LEGACY,
    TOKEN_1,
    TOKEN_2,
    Endpoint,
    answer_of,
    endpoint,
    modern_headers,
)
from tests.support.stdio_channel import channel

pytestmark = pytest.mark.anyio


def of_component(component: str, *prefixes: str) -> list[Row]:
    return [row for row in rows(*prefixes) if row.component == component]


@pytest.mark.parametrize("carrier", ["stdio", "http modern", "http legacy"])
@pytest.mark.parametrize("row", of_component("edges", "C-05"), ids=lambda row: row.id)
async def test_a_frame_with_a_duplicate_key_is_refused_before_anything_else(row: Row, carrier: str) -> None:
    frame = row.input["raw_frame"].encode()
    if carrier == "stdio":
        async with channel() as client:
            await client.shake_hands()
            await client.send(frame + b"\n")
            answer = await client.next()
            called = client.tools.calls or client.receipts.events
    else:
        async with endpoint() as door:
            headers = (
                (await door.begin()).headers
                if carrier == "http legacy"
                else modern_headers({"method": "tools/call", "params": {"name": "demo_get"}})
            )
            response = await door.post(frame, **headers)
            assert response.status_code == 400
            answer, called = response.json(), door.one.tools.calls or door.one.receipts.events
    assert answer["error"]["code"] in row.expect["jsonrpc_error"]
    assert answer["id"] is None
    # A frame that cannot be read is nobody's call: it leaves no receipt (D7).
    assert not called


def filled(value: Any, names: dict[str, str]) -> Any:
    """Return a row's value with the world's names in it."""
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    if isinstance(value, str):
        for name, real in names.items():
            value = value.replace(name, real)
    return value


@pytest.mark.parametrize("row", rows("C-13"), ids=lambda row: row.id)
async def test_a_session_is_its_own_token_s_alone(row: Row) -> None:
    async with endpoint() as door:
        owner = await door.begin()
        names = {"TOKEN_R1": TOKEN_1, "TOKEN_R2": TOKEN_2, "SESSION_R1": owner.session_id}
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        headers |= {"mcp-protocol-version": LEGACY} | {
            name.lower(): value for name, value in filled(row.input["headers"], names).items()
        }
        content = json.dumps(row.input["body"]) if "body" in row.input else None
        answer = await door.client.request(row.input["method"], door.url, headers=headers, content=content)
        assert answer.status_code in row.expect["http_status"], answer.text
        if "response_header" in row.expect:
            assert row.expect["response_header"] in answer.headers
        assert not answer.headers.get("content-type", "").startswith(row.expect.get("content_type_not", "none"))
        assert "result" not in answer.text or answer.status_code == 200
        assert (await owner.request("tools/list")).status_code == 200  # the victim's session is unharmed


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("row", rows("C-14"), ids=lambda row: row.id)
async def test_host_origin_and_the_place_of_the_token(row: Row, era: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with endpoint() as door:
        usual = (await door.begin()).headers if era == "legacy" else modern_headers(CALL)
        names = {"TOKEN_R1": TOKEN_1, "PORT": str(door.port)}
        headers = door.headers(None, **usual) | {
            name.lower(): value for name, value in filled(row.input["headers"], names).items()
        }
        url = door.url.replace("/mcp", filled(row.input.get("url", "/mcp"), names))
        body = CALL if era == "modern" else {**CALL, "params": {"name": "demo_noarg", "arguments": {}}}
        answer = await door.client.post(url, content=json.dumps(body), headers=headers)
        assert answer.status_code in row.expect["http_status"], answer.text
        assert bool(door.one.tools.calls) == (answer.status_code == 200)
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not any(TOKEN_1 in record.getMessage() for record in ours)


CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "demo_noarg",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


async def slow_echo(door: Endpoint, token: str, text: str, ms: int, id: object) -> Any:
    answer = answer_of(
        await door.modern(
            "tools/call", {"name": "slow_echo", "arguments": {"text": text, "ms": ms}}, id=id, token=token
        )
    )
    return answer["id"], answer["result"]["structuredContent"]["text"]


async def test_two_runs_with_one_id_each_get_their_own_answer_the_slower_one_first() -> None:
    (row,) = rows("C-15.a")
    tokens = {"R1": TOKEN_1, "R2": TOKEN_2}
    found: dict[str, Any] = {}
    async with endpoint() as door:

        async def one(call: dict[str, Any]) -> None:
            given = call["arguments"]
            found[call["run"]] = await slow_echo(door, tokens[call["run"]], given["text"], given["ms"], call["id"])

        async with anyio.create_task_group() as tasks:
            for call in row.input["parallel"]:
                tasks.start_soon(one, call)
    assert found == {"R1": (2, row.expect["R1_gets"]), "R2": (2, row.expect["R2_gets"])}


async def test_fifty_calls_with_one_id_are_not_mixed_up_when_the_other_client_leaves() -> None:
    (row,) = rows("C-15.b")
    count, id = row.input["parallel_calls"], row.input["same_id"]
    found: dict[str, list[Any]] = {TOKEN_1: [], TOKEN_2: []}
    async with endpoint() as door:
        gone = anyio.CancelScope()

        async def one(token: str, number: int) -> None:
            try:
                found[token].append((number, *await slow_echo(door, token, f"{token}-{number}", number % 9 * 5, id)))
            except httpx.HTTPError:
                assert gone.cancel_called
            if len(found[TOKEN_1]) == 10:
                gone.cancel()

        async def all_of(token: str) -> None:
            with gone if token == TOKEN_1 else anyio.CancelScope():
                async with anyio.create_task_group() as tasks:
                    for number in range(count):
                        tasks.start_soon(one, token, number)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(all_of, TOKEN_1)
                tasks.start_soon(all_of, TOKEN_2)
    wrong = [
        entry for token, answers in found.items() for entry in answers if entry != (entry[0], id, f"{token}-{entry[0]}")
    ]
    assert (wrong, sorted(number for number, *_ in found[TOKEN_2])) == ([], list(range(count)))
