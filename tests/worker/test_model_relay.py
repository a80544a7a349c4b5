"""The relay to the model: one origin, nothing changed, nothing held back (D9)."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hostside.edges.http_server import serve_on
from hostside.errors import ConfigError
from hostside.worker.model_relay import ModelRelay, relayed_base_url

pytestmark = pytest.mark.anyio
Answer = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def relayed(answer: Answer, path: str = "/v1") -> AsyncIterator[httpx.AsyncClient]:
    """A client of a relay to an upstream that gives this answer."""

    async def upstream(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        if scope["type"] == "lifespan":
            for moment in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{moment}.complete"})
            return
        response = await answer(Request(scope, receive))
        await response(scope, receive, send)

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    address, origin = (listener.getsockname() for listener in listeners)
    ready = anyio.Event()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve_on([listeners[1]], upstream, ready=ready))
            await ready.wait()
            url = f"http://127.0.0.1:{origin[1]}{path}"
            base = relayed_base_url(address, url)
            async with ModelRelay(listeners[0], url), httpx.AsyncClient(base_url=base, trust_env=False) as client:
                yield client
            tasks.cancel_scope.cancel()


async def test_a_request_and_its_answer_pass_unchanged() -> None:
    seen: list[tuple[str, str, dict[str, str], bytes]] = []

    async def answer(request: Request) -> Response:
        seen.append((request.method, str(request.url.path), dict(request.headers), await request.body()))
        headers = {"x-request-id": "r1", "connection": "close, x-hop", "x-hop": "1", "content-encoding": "made-up"}
        return Response(b"\x00\xff", 418, headers)

    async with relayed(answer) as client:
        headers = {"authorization": "Bearer k", "accept-encoding": "br", "te": "trailers", "x-own": "é"}
        async with client.stream(
            "POST",
            "/responses?a=%2F&b",
            content=b"\xff\x00body",
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        ) as reply:
            raw = b"".join([chunk async for chunk in reply.aiter_raw()])

    method, path, got, body = seen[0]
    assert (method, path, body) == ("POST", "/v1/responses", b"\xff\x00body")
    assert (got["authorization"], got["accept-encoding"], got["x-own"]) == ("Bearer k", "br", "Ã©")
    assert (got["content-length"], "te" in got, "transfer-encoding" in got) == ("6", False, False)
    assert got["host"] != httpx.URL(str(reply.url)).netloc.decode()
    assert (reply.status_code, raw, reply.headers["x-request-id"]) == (418, b"\x00\xff", "r1")
    assert (reply.headers["content-encoding"], "x-hop" in reply.headers) == ("made-up", False)


async def test_each_chunk_arrives_before_the_next_is_made() -> None:
    taken = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await taken.wait()
        yield b"data: 2\n\n"

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks(), media_type="text/event-stream")

    async with relayed(answer) as client, client.stream("POST", "/responses", json={}) as reply:
        stream = reply.aiter_raw()
        assert await anext(stream) == b"data: 1\n\n"
        taken.set()
        assert await anext(stream) == b"data: 2\n\n"


async def test_a_stream_that_breaks_off_upstream_breaks_off_here() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError("cut on purpose")

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks())

    async with relayed(answer) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/responses", json={})


async def test_a_client_that_hangs_up_ends_the_upstream_request() -> None:
    began, ended = anyio.Event(), anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            began.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks())

    async with relayed(answer) as client:
        async with client.stream("POST", "/responses", json={}) as reply:
            assert await anext(reply.aiter_raw()) == b"one"
            await began.wait()
        await ended.wait()


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v1/models", 204),
        ("GET", "/v1", 204),
        ("GET", "/v12/models", 404),
        ("GET", "/other", 404),
        ("GET", "/v1/../other", 404),
        ("GET", "/v1/%2e%2e/other", 404),
        ("GET", "/v1/a%2f..%2f../other", 404),
        ("GET", "http://example.invalid/v1/models", 204),
        ("TRACE", "/v1/models", 405),
    ],
)
async def test_only_the_one_origin_is_reached_and_only_below_its_path(method: str, target: str, status: int) -> None:
    async def answer(_request: Request) -> Response:
        return Response(status_code=204)

    async with relayed(answer) as client:
        url = httpx.URL(str(client.base_url))
        async with await anyio.connect_tcp("127.0.0.1", url.port or 0) as stream:
            # An absolute target, as for a proxy, still goes to the upstream alone.
            await stream.send(f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            assert (await stream.receive()).split(b" ")[1] == str(status).encode()


async def test_an_upstream_that_is_not_there_is_502_without_its_address() -> None:
    listener, nobody = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    port = nobody.getsockname()[1]
    nobody.close()
    url = f"http://127.0.0.1:{port}"
    address = listener.getsockname()
    with anyio.fail_after(30):
        async with ModelRelay(listener, url), httpx.AsyncClient(trust_env=False) as client:
            reply = await client.post(relayed_base_url(address, url) + "/responses", json={})
    assert (reply.status_code, str(port) in reply.text) == (502, False)
    assert listener.fileno() == -1


@pytest.mark.parametrize(
    "url", ["", "example.com/v1", "ftp://h/v1", "http://", "http://u:p@h/v1", "http://h/v1?key=1", "http://h/#x"]
)
async def test_an_address_that_is_no_plain_url_is_refused(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConfigError):
        ModelRelay(listener, url)
