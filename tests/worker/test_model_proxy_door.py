"""Who gets through the model proxy, where to, and with which credential (D9, D10, R-214, R-217, R-221)."""

import json
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hostside.errors import ConfigError
from hostside.worker.model_provider import ANTHROPIC, OPENAI, ModelProvider, presented_token
from hostside.worker.model_proxy import ModelUpstream
from tests.support.model_proxies import KEY, TOKEN, proxied, serving

pytestmark = pytest.mark.anyio
OTHER = "hst_" + "o" * 43


async def ok(_request: Request) -> Response:
    return Response(b"{}", media_type="application/json")


@pytest.mark.parametrize(
    ("provider", "path", "headers", "upstream", "sent"),
    [
        (ANTHROPIC, "/v1/messages?beta=true", {"x-api-key": TOKEN}, "/base/v1/messages?beta=true", ("x-api-key", KEY)),
        (ANTHROPIC, "/v1/messages", {"authorization": f"Bearer {TOKEN}"}, "/base/v1/messages", ("x-api-key", KEY)),
        (
            ANTHROPIC,
            "/v1/messages/count_tokens",
            {"authorization": f"bearer {TOKEN}", "x-api-key": TOKEN},
            "/base/v1/messages/count_tokens",
            ("x-api-key", KEY),
        ),
        (
            OPENAI,
            "/v1/responses",
            {"authorization": f"Bearer {TOKEN}"},
            "/base/responses",
            ("authorization", f"Bearer {KEY}"),
        ),
    ],
)
async def test_the_hosts_key_takes_the_place_of_the_token(
    provider: ModelProvider, path: str, headers: dict[str, str], upstream: str, sent: tuple[str, str]
) -> None:
    extra = {
        "cookie": "a=b",
        "openai-organization": "org-other",
        "openai-project": "p-other",
        "x-forwarded-for": "192.0.2.1",
        "accept-encoding": "gzip, br",
        "connection": "x-hop",
        "x-hop": "1",
        "te": "trailers",
        "proxy-authorization": "Basic eA==",
        "anthropic-beta": "some-beta",
    }
    async with proxied(ok, provider=provider, path="/base/") as world:
        answer = await world.client.post(path, content=b'{"a":1}', headers={**headers, **extra})
    assert answer.status_code == 200, answer.text
    (request,) = world.seen
    got = dict(request.headers)
    assert str(request.url).removeprefix(f"http://{got['host']}") == upstream
    assert got[sent[0]] == sent[1]
    assert (got["accept-encoding"], got["anthropic-beta"], got["content-length"]) == ("identity", "some-beta", "7")
    dropped = {
        "cookie",
        "openai-organization",
        "openai-project",
        "x-forwarded-for",
        "x-hop",
        "te",
        "proxy-authorization",
    }
    assert dropped & got.keys() == set()
    assert TOKEN not in repr(got)
    assert (await request.body()) == b'{"a":1}'
    assert got["host"] != f"127.0.0.1:{world.port}"


async def test_a_login_is_sent_as_a_bearer_token_and_no_key_as_nothing() -> None:
    async with proxied(ok, login=True) as world:
        await world.ask()
    assert (world.seen[0].headers["authorization"], "x-api-key" in world.seen[0].headers) == (f"Bearer {KEY}", False)
    async with proxied(ok, key=None) as world:
        assert (await world.ask()).status_code == 200
        assert (await world.ask(token=None)).status_code == 401
    assert {"authorization", "x-api-key"}.isdisjoint(world.seen[0].headers.keys())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([("x-api-key", OTHER)], 401),
        ([("x-api-key", KEY)], 401),
        ([("x-api-key", "")], 401),
        ([("authorization", f"Basic {TOKEN}")], 401),
        ([("authorization", TOKEN)], 401),
        ([("x-api-key", TOKEN), ("authorization", f"Bearer {OTHER}")], 401),
        ([("x-api-key", TOKEN), ("x-api-key", OTHER)], 401),
        ([("x-api-key", OTHER), ("x-api-key", TOKEN)], 401),
        ([("x-api-key", TOKEN), ("authorization", "Basic eA==")], 401),
        ([("x-api-key", TOKEN), ("x-api-key", TOKEN)], 200),
    ],
)
async def test_every_credential_of_a_request_must_be_the_runs_model_token(
    headers: list[tuple[str, str]], status: int
) -> None:
    async with proxied(ok) as world:
        answer = await world.client.post("/v1/messages", content=b"{}", headers=headers)
        assert (answer.status_code, len(world.seen)) == (status, 1 if status == 200 else 0)
    if status == 401:
        assert answer.json()["error"] == {
            "type": "authentication_error",
            "message": "this is no live model token of this run",
            "code": "model_token_refused",
        }
        assert world.told("model_request_refused") == [{"code": "model_token_refused", "status": 401}]
        assert not any(secret in repr(world.events) + answer.text for secret in (TOKEN, OTHER, KEY))


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/v1/messages", "GET", 405),
        ("/v1/messages", "PUT", 405),
        ("/v1/messages", "OPTIONS", 405),
        ("/v1/models", "POST", 405),
        ("/v1/models", "GET", 200),
        ("/v1/models/x", "GET", 404),
        ("/v1/messages/", "POST", 404),
        ("/v1//messages", "POST", 404),
        ("/v1/%6dessages", "POST", 404),
        ("/v1/x/../messages", "POST", 404),
        ("/v1/messages/batches", "POST", 404),
        ("/v1/files", "POST", 404),
        ("/v1/organizations/me", "GET", 404),
        ("/v1/responses", "POST", 404),
        ("/v1/messages%2f..%2ffiles", "POST", 404),
        ("//evil.example/v1/messages", "POST", 404),
        ("/", "GET", 404),
        ("*", "OPTIONS", 404),
    ],
)
async def test_only_the_few_paths_of_the_one_api_are_served(target: str, method: str, status: int) -> None:
    async with proxied(ok) as world:
        request = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1:{world.port}\r\nx-api-key: {TOKEN}\r\n"
        answer = await world.raw(f"{request}connection: close\r\ncontent-length: 0\r\n\r\n".encode())
    assert (answer.split(b" ")[1], len(world.seen)) == (str(status).encode(), 1 if status == 200 else 0), answer


async def test_no_other_upstream_is_reached_by_any_form_of_naming_one() -> None:
    reached: list[str] = []

    async def elsewhere(request: Request) -> Response:
        reached.append(str(request.url))
        return Response(b"elsewhere")

    async with serving(elsewhere) as evil, proxied(ok) as world:
        own, other = f"127.0.0.1:{world.port}", f"127.0.0.1:{evil}"
        targets = [
            (f"http://{other}/v1/messages", own, 200),
            (f"http://{other}/v1/messages", other, 421),
            ("/v1/messages", other, 421),
            ("/v1/messages", f"{own}\r\nhost: {other}", 421),
            ("/v1/messages", f"{own}\r\nx-forwarded-host: {other}\r\nforwarded: host={other}", 200),
            (f"/v1/messages?url=http://{other}/", own, 200),
            (f"/v1/messages#@{other}", own, 200),
        ]
        found = []
        for target, host, _ in targets:
            head = f"POST {target} HTTP/1.1\r\nhost: {host}\r\nx-api-key: {TOKEN}\r\nconnection: close\r\n"
            found.append(int((await world.raw(f"{head}content-length: 2\r\n\r\n{{}}".encode())).split(b" ")[1]))
        head = f"CONNECT {other} HTTP/1.1\r\nhost: {other}\r\nx-api-key: {TOKEN}\r\nconnection: close\r\n\r\n"
        connect = int((await world.raw(head.encode())).split(b" ")[1])
    assert found == [status for _, _, status in targets]
    assert (connect >= 400, reached) == (True, [])
    # Whatever the request named, the one upstream was asked for the one path.
    assert {request.url.path for request in world.seen} == {"/v1/messages"}
    assert {request.headers["host"] for request in world.seen}.isdisjoint({other, own})


async def test_a_revoked_token_is_refused_on_the_connection_that_it_opened() -> None:
    async with proxied(ok) as world:
        assert (await world.ask()).status_code == 200
        world.good.clear()
        assert (await world.ask()).status_code == 401
    assert len(world.seen) == 1


@pytest.mark.parametrize("moves", [True, False])
async def test_a_revocation_ends_an_answer_that_is_open(moves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # One that moves is checked as it does, without the clock.
    monkeypatch.setattr("hostside.worker.model_proxy.RECHECK_SECONDS", 3_600 if moves else 0.05)
    ended, first = anyio.Event(), anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await first.wait()
            while moves:
                yield b"data: more\n\n"
                await anyio.sleep(0.01)
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks(), media_type="text/event-stream")

    async with proxied(answer) as world:
        headers = {"x-api-key": TOKEN}
        async with world.client.stream("POST", "/v1/messages", content=b"{}", headers=headers) as reply:
            stream = reply.aiter_raw()
            assert await anext(stream) == b"data: 1\n\n"
            world.good.clear()
            first.set()
            with pytest.raises(httpx.RemoteProtocolError):
                await _to_its_end(stream)
        await ended.wait()


async def _to_its_end(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        pass


async def test_a_store_that_cannot_tell_lets_nobody_in() -> None:
    async with proxied(ok) as world:
        world.broken_store = True
        answer = await world.ask()
    assert (answer.status_code, answer.json()["error"]["code"], world.seen) == (503, "token_not_checked", [])


async def test_refusals_are_told_a_bounded_number_of_times() -> None:
    async with proxied(ok) as world:
        for _ in range(25):
            await world.ask(token=OTHER)
    assert len(world.told("model_request_refused")) == 20


def test_a_refusal_has_the_form_of_the_provider() -> None:
    assert json.loads(OPENAI.refusal(429, "host_budget", "no more")) == {
        "error": {"message": "no more", "type": "insufficient_quota", "param": None, "code": "host_budget"}
    }
    assert json.loads(ANTHROPIC.refusal(429, "host_budget", "no more")) == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "no more", "code": "host_budget"},
    }


def test_a_token_is_read_from_either_header_and_from_nothing_else() -> None:
    assert presented_token([(b"authorization", b"Bearer  x ")]) == "x"
    assert presented_token([(b"api-key", b"x"), (b"cookie", b"x")]) is None


@pytest.mark.parametrize(
    "url", ["", "example.com/v1", "ftp://h/v1", "http://", "http://u:p@h/v1", "http://h/v1?key=1", "http://h/#x"]
)
def test_an_address_that_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        ModelUpstream(provider=OPENAI, url=url)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "é-key"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ModelUpstream(provider=OPENAI, url="http://h", key=key)
    assert key not in str(refused.value) + refused.value.remedy
    assert KEY not in repr(ModelUpstream(provider=OPENAI, url="http://h", key=KEY))
