"""Both ends of the in-band edge within one test: control requests in, lines out."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hostside.edges.mcp_inband import InbandEdge
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway
from tests.support.http_edges import initialize_body
from tests.support.memory_receipts import MemoryReceipts


class InbandChannel:
    """A client that sends exactly the lines it is told to. `lines` are those that came back and were not read yet."""

    def __init__(self) -> None:
        self.tools = EdgeTools()
        self.receipts = MemoryReceipts()
        self.refused: list[str] = []
        self.raw = b""
        self._send, self._lines = anyio.create_memory_object_stream[bytes](10_000)
        gateway = make_gateway(self.tools.all(), edge="inband", receipts=self.receipts)
        self.edge = InbandEdge(gateway, self._send.send_nowait, refused=self.refused.append)
        self._controls = 0

    def say(self, message: object, **changes: Any) -> str:
        """Send one JSON-RPC message in a control request; the id of that."""
        self._controls += 1
        control = f"c-{self._controls}"
        request = {"subtype": "mcp_message", "server_name": "hostside", "message": message, **changes}
        self.edge.take(json.dumps({"type": "control_request", "request_id": control, "request": request}).encode())
        return control

    async def next(self) -> dict[str, Any]:
        """Read one line, within five seconds."""
        with anyio.fail_after(5):
            line = await self._lines.receive()
        self.raw += line
        assert (line[-1:], line.count(b"\n")) == (b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    async def answer(self, control: str) -> dict[str, Any]:
        """The next line, which answers `control`: the JSON-RPC message, or the control error as it is."""
        line = await self.next()
        assert (line["type"], line["response"]["request_id"]) == ("control_response", control)
        found: dict[str, Any] = line["response"]
        return found["response"]["mcp_response"] if found["subtype"] == "success" else found

    async def ask(self, method: str, params: dict[str, Any] | None = None, *, id: object = 1) -> dict[str, Any]:
        """Send one request and read its answer."""
        body = {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}
        return await self.answer(self.say(body))

    async def shake_hands(self) -> dict[str, Any]:
        """Open the channel as Claude Code does; what the server said of itself."""
        found = await self.answer(self.say(initialize_body()))
        taken = await self.answer(self.say({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        assert taken == {"jsonrpc": "2.0", "result": {}}
        result: dict[str, Any] = found["result"]
        return result

    def close(self) -> None:
        """Close the streams."""
        self._send.close()
        self._lines.close()


@asynccontextmanager
async def inband(*, shake_hands: bool = True) -> AsyncIterator[InbandChannel]:
    """Serve edge tools in-band; at the end the service is cancelled."""
    made = InbandChannel()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.edge.serve)
            if shake_hands:
                await made.shake_hands()
            yield made
            tasks.cancel_scope.cancel()
    finally:
        made.close()
