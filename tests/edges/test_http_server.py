"""Serving on given listeners: ready, bounded, and gone when told (R-173, R-181)."""

import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from starlette.types import Receive, Scope, Send

from hostside.edges import http_server
from hostside.edges.http_server import MAX_HEAD_BYTES, serve_on
from tests.support.http_edges import endpoint, modern_body, modern_headers

pytestmark = pytest.mark.anyio


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 200, after the body."""
    if scope["type"] == "lifespan":
        for said in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{said}"
            await send({"type": f"lifespan.{said}.complete"})
        return
    while (await receive()).get("more_body"):
        continue
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve_on([listener], hello, ready=ready))
            with anyio.fail_after(5):
                await ready.wait()
            yield listener.getsockname()
            tasks.cancel_scope.cancel()


async def answer_to(address: tuple[str, int], *pieces: bytes) -> bytes:
    async with await anyio.connect_tcp(*address) as connection:
        for piece in pieces:
            await connection.send(piece)
        with anyio.fail_after(5):
            try:
                return await connection.receive()
            except anyio.EndOfStream:
                return b""


async def test_a_long_head_is_cut_off_and_a_long_body_is_not() -> None:
    async with served() as address:
        head = b"POST / HTTP/1.1\r\nhost: x\r\nx-long: "
        cut = await answer_to(address, head, *[b"a" * 16_384] * (MAX_HEAD_BYTES // 16_384 + 1))
        assert cut.startswith(b"HTTP/1.1 400 ")
        body = b"b" * (MAX_HEAD_BYTES * 8)
        length = f"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        assert (await answer_to(address, length + body)).startswith(b"HTTP/1.1 200 ")
        assert (await answer_to(address, length + body[:10], body[10:] + length)).startswith(b"HTTP/1.1 200 ")


async def test_a_head_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    async with served() as address:
        assert await answer_to(address, b"") == b""
        assert await answer_to(address, b"POST / HTTP/1.1\r\nhost:") == b""
        assert (await answer_to(address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_cancelling_closes_the_listener_and_leaves_the_signals_alone() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with served() as address:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp(*address)


async def test_an_app_that_does_not_start_is_an_error() -> None:
    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("not today")

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        anyio.fail_after(5),
        pytest.raises(RuntimeError, match="did not start"),
    ):
        await serve_on([listener], broken)


@pytest.mark.parametrize("told", [True, False], ids=["closed first", "closed by the server"])
async def test_stopping_ends_calls_in_flight_with_their_receipts(told: bool) -> None:
    body = modern_body("tools/call", {"name": "slow_write"})
    with anyio.fail_after(10):
        async with (
            httpx.AsyncClient(trust_env=False) as client,
            anyio.create_task_group() as tasks,
            endpoint(close=told) as door,
        ):
            url, headers, one = door.url, door.headers(**modern_headers(body)), door.one

            async def call() -> None:
                with contextlib.suppress(httpx.HTTPError):
                    await client.post(url, json=body, headers=headers)

            tasks.start_soon(call)
            await one.tools.started.wait()
    assert len(one.receipts.ends) == 1
    assert one.tools.cancelled == ["endless"]


async def test_a_client_cannot_fill_the_log_with_requests_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as address:
        assert (await answer_to(address, b"CONNECT x HTTP/9\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []
