"""AX-31: what the front door answers to whom, one row each, and that the next request works (R-174..R-179)."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest

from hostside.edges.http_front import MAX_BODY_BYTES
from tests.support.http_edges import (
    LEGACY,
    TOKEN_1,
    Endpoint,
    answer_of,
    endpoint,
    initialize_body,
    modern_body,
    modern_headers,
)

pytestmark = pytest.mark.anyio

CALL = modern_body("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
HEADERS = modern_headers(CALL)
Send = Callable[[Endpoint], Awaitable[httpx.Response]]


def posted(body: object = CALL, *, token: str | None = TOKEN_1, **headers: str) -> Send:
    return lambda door: door.post(body, token=token, **{**HEADERS, **headers})


def requested(method: str, path: str = "/mcp", **headers: str) -> Send:
    return lambda door: door.client.request(method, door.url.replace("/mcp", path), headers=door.headers(**headers))


ROWS: list[tuple[str, Send, int]] = [
    ("no token", posted(token=None), 401),
    ("wrong token", posted(token="hst_wrong"), 401),
    ("basic instead of bearer", posted(authorization=f"Basic {TOKEN_1}"), 401),
    ("two words after bearer", posted(authorization=f"Bearer {TOKEN_1} {TOKEN_1}"), 401),
    ("bearer in lower case", posted(authorization=f"bearer {TOKEN_1}"), 200),
    ("no token and a body that is no JSON", posted(b"{", token=None), 401),
    ("foreign origin", posted(origin="http://evil.example.invalid"), 403),
    ("origin null", posted(origin="null"), 403),
    ("foreign host", posted(host="evil.example.invalid"), 421),
    ("host without the port", posted(host="127.0.0.1"), 421),
    ("GET", requested("GET"), 405),
    ("HEAD", requested("HEAD"), 405),
    ("OPTIONS", requested("OPTIONS"), 405),
    ("PUT", requested("PUT"), 405),
    ("other path", requested("POST", "/"), 404),
    ("path with a slash more", requested("POST", "/mcp/"), 404),
    ("discovery of an authorization server", requested("GET", "/.well-known/oauth-protected-resource"), 404),
    ("text", posted(content_type="text/plain"), 415),
    ("another charset", posted(content_type="application/json; charset=latin1"), 415),
    ("charset named", posted(content_type='application/json; charset="UTF-8"'), 200),
    ("compressed", posted(content_encoding="gzip"), 415),
    ("5 MiB", posted(b"x" * (5 << 20)), 413),
    ("no JSON", posted(b"{"), 400),
    ("duplicate key", posted(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}'), 400),
    ("batch", posted([CALL]), 400),
    ("empty body", posted(b""), 400),
    ("answer is not acceptable", posted(accept="text/plain"), 406),
    ("method differs from its header", posted(mcp_method="tools/list"), 400),
    ("name differs from its header", posted(mcp_name="other"), 400),
    ("version differs from its header", posted(mcp_protocol_version="2099-01-01"), 400),
    ("notification", posted({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}), 202),
    ("modern body without its version header", lambda door: door.post(CALL), 400),
    ("modern body under an older header", lambda door: door.post(CALL, mcp_protocol_version=LEGACY), 400),
    ("no session", lambda door: door.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), 400),
    ("DELETE without a session", requested("DELETE"), 400),
    ("an older session header beside a modern request", posted(mcp_session_id="never-issued"), 200),
]


@pytest.mark.parametrize(("send", "status"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_the_door_answers_as_agreed_and_stays_open(send: Send, status: int) -> None:
    async with endpoint() as door:
        before = len(door.one.tools.calls)
        answer = await send(door)
        assert answer.status_code == status, answer.text
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
        if status == 405:
            assert answer.headers["allow"] == "DELETE, POST"
        if status == 202:
            assert answer.content == b""
        if status not in (200,):
            assert len(door.one.tools.calls) == before
            assert TOKEN_1 not in answer.text
        assert answer_of(await door.post(CALL, **HEADERS))["result"]["structuredContent"] == {"text": "hi"}


async def test_a_token_is_checked_before_the_body_is_read() -> None:
    async with endpoint() as door, await door.connect() as connection:
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: {door.host}\r\nauthorization: Bearer hst_wrong\r\n"
            "content-type: application/json\r\ncontent-length: 4000000\r\n\r\n"
        )
        await connection.send(head.encode())
        with anyio.fail_after(5):
            assert (await connection.receive()).startswith(b"HTTP/1.1 401 ")


async def test_a_body_without_a_length_is_cut_off_at_the_limit() -> None:
    async def pieces() -> Any:
        for _ in range(MAX_BODY_BYTES // 65_536 + 2):
            yield b" " * 65_536

    async with endpoint() as door:
        answer = await door.client.post(door.url, content=pieces(), headers=door.headers(**HEADERS))
        assert answer.status_code == 413


async def test_a_body_of_just_the_limit_is_read() -> None:
    body = json.dumps(CALL).encode()
    async with endpoint(max_body_bytes=len(body)) as door:
        assert (await door.post(body, **HEADERS)).status_code == 200
        assert (await door.post(body + b" ", **HEADERS)).status_code == 413


DOUBLED = {"host": 421, "authorization": 401, "content-type": 415, "mcp-name": 400, "mcp-method": 400, "origin": 403}


@pytest.mark.parametrize(("doubled", "status"), DOUBLED.items())
async def test_a_header_that_comes_twice_is_refused(doubled: str, status: int) -> None:
    async with endpoint() as door:
        usual = door.headers(**HEADERS) | {"host": door.host}
        repeated = (doubled, usual.get(doubled, "http://evil.example.invalid"))
        answer = await door.raw(CALL, [*usual.items(), repeated])
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert door.one.tools.calls == []


async def test_blanks_around_a_header_value_do_not_count() -> None:
    async with endpoint() as door:
        usual = door.headers(**HEADERS) | {"host": door.host}
        answer = await door.raw(CALL, [(name, f" \t {value}\t ") for name, value in usual.items()])
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_an_origin_that_is_listed_passes() -> None:
    async with endpoint(allowed_origins={"http://panel.example.invalid"}) as door:
        assert (await posted(origin="http://panel.example.invalid")(door)).status_code == 200
        assert (await posted(origin="http://panel.example.invalid.evil")(door)).status_code == 403


async def test_a_token_that_cannot_be_checked_opens_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(dict[str, Any]):
        def get(self, *_arguments: object) -> Any:
            raise OSError("the store is gone")

    async with endpoint() as door:
        door.edge._resolve = lambda token: Broken().get(token)
        assert (await posted()(door)).status_code == 503
        assert door.one.tools.calls == []
    assert TOKEN_1 not in caplog.text


async def test_the_handshake_of_each_known_revision_is_answered_and_an_unknown_one_gets_the_latest() -> None:
    async with endpoint() as door:
        agreed = {}
        for asked in ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY, "1999-01-01"):
            answer = await door.post(initialize_body(asked))
            agreed[asked] = answer_of(answer)["result"]["protocolVersion"]
        known = {version: version for version in ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY)}
        assert agreed == known | {"1999-01-01": LEGACY}
