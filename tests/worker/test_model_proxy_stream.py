"""What passes through the model proxy: event by event, whole or broken off, bounded, never with the host's key (D9, D10)."""

import logging
import socket
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from hostside.worker.model_headers import KeyMask
from hostside.worker.model_provider import ANTHROPIC, OPENAI, ModelProvider
from hostside.worker.model_proxy import ModelAccess, ModelProxy, ModelUpstream
from hostside.worker.model_usage import ModelBudget, ModelMeter
from tests.support.model_proxies import KEY, TOKEN, Answer, events, pieces, proxied

pytestmark = pytest.mark.anyio
MASKED = "*" * len(KEY)
STREAM = {"x-api-key": TOKEN}


def saying(*chunks: bytes, status: int = 200, **headers: str) -> Answer:
    """An upstream that answers with these chunks."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(_request: Request) -> Response:
        return StreamingResponse(pieces(chunks), status, named)

    return answer


@pytest.mark.parametrize(("provider", "path"), [(ANTHROPIC, "/v1/messages"), (OPENAI, "/v1/responses")])
async def test_each_event_arrives_before_the_next_is_made(provider: ModelProvider, path: str) -> None:
    # Each ends with what may be the key's first byte, or has the words that the counting looks for.
    script = events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": KEY[:1]}},
        {"type": "response.output_text.delta", "delta": '"usage"'},
        {"type": "message_delta", "usage": {"output_tokens": 9}},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 5, "output_tokens": 9}}},
    )
    arrived = [anyio.Event() for _ in script]

    async def chunks() -> AsyncIterator[bytes]:
        for chunk, seen in zip(script, arrived, strict=True):
            yield chunk
            await seen.wait()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks(), media_type="text/event-stream")

    async with (
        proxied(answer, provider=provider) as world,
        world.client.stream("POST", path, content=b"{}", headers=STREAM) as reply,
    ):
        stream = reply.aiter_raw()
        for chunk, seen in zip(script, arrived, strict=True):
            assert await anext(stream) == chunk
            seen.set()
        assert [piece async for piece in stream] == []
    assert world.meter.as_object()["output_tokens"] == 9


async def test_an_answer_passes_unchanged_but_for_what_is_the_connections_own() -> None:
    headers = {
        "x_request_id": "r1",
        "connection": "x-hop",
        "x_hop": "1",
        "set_cookie": "a=b",
        "alt_svc": "h3",
        "retry_after": "7",
        "content_type": "application/json",
    }
    async with proxied(saying(b"\x00\xff", b"{}", status=418, **headers)) as world:
        answer = await world.ask()
    assert (answer.status_code, answer.content) == (418, b"\x00\xff{}")
    kept = {name: answer.headers.get(name) for name in ("x-request-id", "retry-after", "content-type")}
    assert kept == {"x-request-id": "r1", "retry-after": "7", "content-type": "application/json"}
    assert answer.headers.keys().isdisjoint({"x-hop", "set-cookie", "alt-svc"})


@pytest.mark.parametrize("status", [200, 401, 500])
async def test_the_key_is_masked_wherever_the_upstream_repeats_it(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hostside")
    half = len(KEY) // 2
    chunks = (f"a {KEY} b {KEY}{KEY[:half]}".encode(), f"{KEY[half:]} {KEY[:-1]}".encode(), KEY[:3].encode())
    whole = b"".join(chunks)
    async with proxied(saying(*chunks, status=status, x_echo=f"Bearer {KEY}", content_length=str(len(whole)))) as world:
        answer = await world.ask()
    assert (answer.status_code, answer.content) == (status, whole.replace(KEY.encode(), MASKED.encode()))
    assert answer.headers["x-echo"] == f"Bearer {MASKED}"
    assert KEY not in repr(world.events) + caplog.text + answer.text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_the_mask_finds_the_key_however_the_stream_is_cut(size: int) -> None:
    text = b"sk-ssk-sk-sk-key!sk-sk-key"
    mask = KeyMask("sk-sk-key")
    got = b"".join(mask.feed(text[at : at + size]) for at in range(0, len(text), size)) + mask.end()
    assert got == text.replace(b"sk-sk-key", b"*" * 9)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (saying(b"x", content_encoding="gzip"), "upstream_encoding"),
        (saying(b"x", content_encoding="identity, br"), "upstream_encoding"),
    ],
)
async def test_an_answer_that_the_host_cannot_read_is_not_passed_on(answer: Answer, code: str) -> None:
    async with proxied(answer) as world:
        reply = await world.ask()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, code)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_not_shown(status: int) -> None:
    async def answer(request: Request) -> Response:
        return RedirectResponse(f"{request.base_url}elsewhere", status)

    async with proxied(answer) as world:
        reply = await world.ask()
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_redirect")
    assert (len(world.seen), "location" in reply.headers) == (1, False)


async def test_a_stream_that_breaks_off_upstream_breaks_off_here() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError("cut on purpose")

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks())

    async with proxied(answer) as world:
        with pytest.raises(httpx.RemoteProtocolError):
            await world.ask()


async def test_an_agent_that_hangs_up_ends_the_upstream_request() -> None:
    ended = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks())

    async with proxied(answer) as world:
        async with world.client.stream("POST", "/v1/messages", content=b"{}", headers=STREAM) as reply:
            assert await anext(reply.aiter_raw()) == b"one"
        with anyio.fail_after(5):
            await ended.wait()


async def test_the_end_of_the_run_ends_every_open_answer() -> None:
    ended = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks())

    async with anyio.create_task_group() as tasks:
        open_now = anyio.Event()

        async def read(client: httpx.AsyncClient) -> None:
            async with client.stream("POST", "/v1/messages", content=b"{}", headers=STREAM) as reply:
                async for _ in reply.aiter_raw():
                    open_now.set()

        async def listen(client: httpx.AsyncClient) -> None:
            with pytest.raises(httpx.RemoteProtocolError):
                await read(client)

        async with proxied(answer) as world:
            client = httpx.AsyncClient(trust_env=False, base_url=world.client.base_url)
            tasks.start_soon(listen, client)
            await open_now.wait()
        with anyio.fail_after(5):
            await ended.wait()
    await client.aclose()


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_beyond_the_limit_is_refused(announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.worker.model_proxy.MAX_BODY_BYTES", 100_000)
    body = b"x" * 100_001
    content = body if announced else pieces([body[at : at + 10_000] for at in range(0, len(body), 10_000)])
    async with proxied(saying(b"{}")) as world:
        reply = await world.client.post("/v1/messages", content=content, headers=STREAM)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")
        assert (world.seen, world.meter.tokens.total) == ([], 0)
        assert (await world.ask(body=b"x" * 100_000)).status_code == 200


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.worker.model_exchange.BODY_SECONDS", 0.2)
    async with proxied(saying(b"{}")) as world:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:{world.port}\r\nx-api-key: {TOKEN}\r\n"
        answer = await world.raw(f"{head}content-length: 10\r\n\r\nhalf".encode())
    assert (answer.split(b" ")[1], b"body_too_slow" in answer, world.seen) == (b"408", True, [])


async def test_an_upstream_that_is_not_there_is_502_without_its_address_and_counts_nothing() -> None:
    listener, nobody = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    address, port = listener.getsockname(), nobody.getsockname()[1]
    nobody.close()
    meter = ModelMeter(ModelBudget())

    async def authenticate(_token: str) -> bool:
        return True

    proxy = ModelProxy(
        listener,
        address=address,
        upstream=ModelUpstream(provider=OPENAI, url=f"http://127.0.0.1:{port}", key=KEY),
        access=ModelAccess(token=TOKEN, authenticate=authenticate, meter=meter),
        event=lambda _name, _facts: None,
    )
    with anyio.fail_after(30):
        async with proxy, httpx.AsyncClient(trust_env=False) as client:
            url = f"http://127.0.0.1:{address[1]}/v1/responses"
            reply = await client.post(url, json={}, headers={"authorization": f"Bearer {TOKEN}"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert (str(port) in reply.text, meter.as_object(), listener.fileno()) == (False, {}, -1)


async def test_more_open_requests_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.worker.model_proxy.MAX_OPEN_REQUESTS", 1)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"one"
        await anyio.sleep_forever()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks())

    async with (
        proxied(answer) as world,
        world.client.stream("POST", "/v1/messages", content=b"{}", headers=STREAM) as reply,
    ):
        assert await anext(reply.aiter_raw()) == b"one"
        second = await world.ask()
        assert (second.status_code, second.json()["error"]["code"]) == (429, "too_many_open_requests")
        assert second.headers["x-should-retry"] == "true"
    assert len(world.seen) == 1
