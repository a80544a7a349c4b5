"""AX-09 on HTTP: whatever bytes arrive, the answer is a reply or a closed connection, and the next request works."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.http_edges import Endpoint, answer_of, endpoint, modern_body, modern_headers

NESTED = "[" * 10_000 + "]" * 10_000
#: Text of `arguments`, and the JSON-RPC error or failure code that answers it.
ARGUMENTS: list[tuple[str, int | str | None]] = [
    ("null", "invalid_arguments"),
    ("[]", "invalid_arguments"),
    ('["issue"]', "invalid_arguments"),
    ('""', "invalid_arguments"),
    ('"{\\"issue\\":7}"', "invalid_arguments"),
    ("0", "invalid_arguments"),
    ("false", "invalid_arguments"),
    ("{}", "invalid_arguments"),
    ('{"issue":"7"}', "invalid_arguments"),
    ('{"issue":7.5}', "invalid_arguments"),
    ('{"issue":null}', "invalid_arguments"),
    ('{"issue":7,"x":1}', "invalid_arguments"),
    ('{"issue":7}', None),
    ('{"issue":7.0}', None),
    ('{"issue":7,"issue":9}', -32700),
    ('{"issue":NaN}', -32700),
    ('{"issue":1e400}', -32700),
    ('{"issue":"\\ud800"}', -32700),
    ('{"issue":' + NESTED + "}", -32700),
    ('{"issue":' + "9" * 5_000 + "}", -32700),
]


def body_with(arguments: str) -> tuple[bytes, dict[str, str]]:
    body = modern_body("tools/call", {"name": "demo_get", "arguments": "HERE"})
    return json.dumps(body).replace('"HERE"', arguments).encode(), modern_headers(body)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_raw_arguments_reach_the_boundary_as_sent_or_the_frame_is_refused(era: str) -> None:
    async with endpoint() as door:
        client = await door.begin() if era == "legacy" else None
        refused = 0
        for arguments, expected in ARGUMENTS:
            body, headers = body_with(arguments)
            if client is not None:
                body, headers = body.replace(b"2026-07-28", b"2025-11-25"), client.headers
            answer = answer_of(await door.post(body, **headers))
            refused += isinstance(expected, int)
            assert outcome(answer) == expected, arguments
        assert len(door.one.receipts.ends) == len(ARGUMENTS) - refused
        assert door.one.tools.calls == [("done", {"issue": 7})] * 2


def outcome(answer: dict[str, Any]) -> int | str | None:
    if "error" in answer:
        code: int = answer["error"]["code"]
        return code
    result = answer["result"]
    if not result["isError"]:
        return None
    found: str = json.loads(result["content"][0]["text"])["failure"]["code"]
    return found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2, None]),
        "id": st.none() | st.integers() | st.text(max_size=8) | st.floats() | st.booleans(),
        "method": st.sampled_from(["tools/call", "tools/list", "initialize", "ping", "server/discover", "x", 5])
        | st.text(max_size=8),
        "params": JSON
        | st.fixed_dictionaries(
            {}, optional={"name": JSON | st.just("demo_get"), "arguments": JSON, "_meta": JSON, "cursor": JSON}
        ),
        "result": JSON,
        "error": JSON,
    },
)


async def attempt(door: Endpoint, bodies: list[bytes], headers: dict[str, str]) -> None:
    for body in bodies:
        answer = await door.post(body, **headers)
        assert answer.status_code < 500, (body, answer.text)
    good, mirrored = body_with('{"issue":7}')
    assert outcome(answer_of(await door.post(good, **mirrored))) is None


@settings(max_examples=15)
@given(
    st.lists(st.binary(max_size=200) | MESSAGES.map(lambda value: json.dumps(value).encode()), max_size=12),
    st.sampled_from(["modern", "legacy", "none"]),
)
def test_any_body_is_answered_and_the_next_request_works(bodies: list[bytes], era: str) -> None:
    async def run() -> None:
        async with endpoint() as door:
            headers = {"mcp_protocol_version": "2026-07-28"} if era == "modern" else {}
            if era == "legacy":
                headers = (await door.begin()).headers
            await attempt(door, bodies, headers)

    anyio.run(run)


@settings(max_examples=15)
@given(st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=6))
def test_any_bytes_on_a_connection_are_answered_or_closed(chunks: list[bytes]) -> None:
    async def run() -> None:
        async with endpoint() as door:
            for chunk in chunks:
                async with await door.connect() as connection:
                    await connection.send(chunk)
                    await connection.send_eof()
                    with anyio.fail_after(5):
                        b"".join([piece async for piece in connection])
            await attempt(door, [], {})

    anyio.run(run)
