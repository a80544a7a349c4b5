"""Both ends of a stdio server within one test: bytes in, frames out, over real pipes."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hostside.edges.descriptors import read_some, write_all
from hostside.edges.mcp_stdio import serve_stdio
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway
from tests.support.http_edges import LEGACY, initialize_body, modern_body
from tests.support.memory_receipts import MemoryReceipts


class Channel:
    """A client that sends exactly the bytes it is told to. `raw` is every byte that came back."""

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd = write_fd
        self._read_fd = read_fd
        self._rest = b""
        self.raw = b""
        self.ended = anyio.Event()
        self.tools = EdgeTools()
        self.receipts = MemoryReceipts()

    async def send(self, data: bytes) -> None:
        """Write bytes."""
        await write_all(self._write_fd, data)

    async def say(self, message: dict[str, Any]) -> None:
        """Write one frame."""
        await self.send(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    async def next(self) -> dict[str, Any]:
        """Read one frame, within five seconds."""
        with anyio.fail_after(5):
            while b"\n" not in self._rest:
                data = await read_some(self._read_fd)
                assert data, "the server closed its output"
                self.raw += data
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    async def ask(self, method: str, params: dict[str, Any] | None = None, *, id: object = 1) -> dict[str, Any]:
        """Send one request of 2026-07-28 and read its answer."""
        await self.say(modern_body(method, params, id=id))
        return await self.next()

    async def shake_hands(self) -> None:
        """Open the channel as a client of 2025-11-25."""
        await self.say(initialize_body())
        assert (await self.next())["result"]["protocolVersion"] == LEGACY
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def hang_up(self) -> None:
        """End the server's input."""
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    def stop_reading(self) -> None:
        """Close the server's output."""
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1


@asynccontextmanager
async def channel(*, expect_end: bool = True) -> AsyncIterator[Channel]:
    """Serve edge tools over two pipes; at the end the input is closed and the server must have ended."""
    server_in, client_out = os.pipe()
    client_in, server_out = os.pipe()
    made = Channel(client_out, client_in)
    gateway = make_gateway(made.tools.all(), receipts=made.receipts)

    async def serve() -> None:
        await serve_stdio(gateway, stdin_fd=server_in, stdout_fd=server_out)
        made.ended.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            yield made
            made.hang_up()
            if expect_end:
                with anyio.fail_after(5):
                    await made.ended.wait()
            tasks.cancel_scope.cancel()
    finally:
        made.hang_up()
        made.stop_reading()
        os.close(server_in)
        os.close(server_out)
