"""An MCP endpoint on a loopback port with two runs' tokens, and a client that says exactly what it is told to."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
from anyio.abc import SocketStream
from starlette.types import ASGIApp

from hostside.core.gateway import Gateway
from hostside.edges.http_server import serve_on
from hostside.edges.mcp_http import HttpEdge, http_app
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway
from tests.support.memory_receipts import MemoryReceipts

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META_PREFIX = "io.modelcontextprotocol/"
TOKEN_1 = "hst_" + "1" * 43
TOKEN_2 = "hst_" + "2" * 43
ACCEPT = "application/json, text/event-stream"


@asynccontextmanager
async def serving(app_of: Callable[[int], ASGIApp], *, close: bool = True) -> AsyncIterator[int]:
    """Serve the app that `app_of(port)` returns; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        app = app_of(port)
        ready = anyio.Event()
        before_stop = app.close if close and isinstance(app, HttpEdge) else None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve_on([listener], app, ready=ready, before_stop=before_stop))
            with anyio.fail_after(10):
                await ready.wait()
            yield port
            tasks.cancel_scope.cancel()


@dataclass(slots=True)
class Run:
    """One run behind the endpoint: its token, its gateway, its tools and what was recorded."""

    token: str
    gateway: Gateway
    tools: EdgeTools
    receipts: MemoryReceipts


def a_run(number: int, token: str) -> Run:
    """Return a run with every edge tool."""
    tools, receipts = EdgeTools(), MemoryReceipts()
    gateway = make_gateway(tools.all(), edge="http", session_id=f"s-{number}", run_id=f"r-{number}", receipts=receipts)
    return Run(token, gateway, tools, receipts)


@dataclass
class Endpoint:
    """The endpoint of two runs, `one` and `two`. Take a token out of `good` to revoke it."""

    port: int
    edge: HttpEdge
    one: Run
    two: Run
    good: dict[str, Gateway]
    client: httpx.AsyncClient

    @property
    def host(self) -> str:
        """The one allowed Host value."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.host}/mcp"

    async def post(self, body: bytes | object, *, token: str | None = TOKEN_1, **headers: str) -> httpx.Response:
        """POST a body, JSON unless bytes, with these headers (`_` for `-`) beside the usual ones."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(self.url, content=content, headers=self.headers(token, **headers))

    def headers(self, token: str | None = TOKEN_1, **headers: str) -> dict[str, str]:
        """Return the usual headers and these."""
        usual = {"content-type": "application/json", "accept": ACCEPT}
        if token is not None:
            usual["authorization"] = f"Bearer {token}"
        return usual | {name.replace("_", "-"): value for name, value in headers.items()}

    async def modern(
        self, method: str, params: dict[str, Any] | None = None, *, id: object = 1, token: str = TOKEN_1, **more: str
    ) -> httpx.Response:
        """Send one request of 2026-07-28."""
        body = modern_body(method, params, id=id)
        return await self.post(body, token=token, **{**modern_headers(body), **more})

    async def begin(self, token: str = TOKEN_1) -> "LegacyClient":
        """Shake hands as a client of 2025-11-25."""
        answer = await self.post(initialize_body(), token=token)
        assert answer.status_code == 200, answer.text
        client = LegacyClient(self, token, answer.headers["mcp-session-id"])
        assert (await client.notify("notifications/initialized")).status_code == 202
        return client

    async def raw(self, body: object, headers: Iterable[tuple[str, str]]) -> bytes:
        """POST with exactly these header lines beside the length; return all that comes back."""
        content = json.dumps(body).encode()
        lines = [*headers, ("content-length", str(len(content))), ("connection", "close")]
        head = "".join(f"{name}: {value}\r\n" for name, value in lines)
        async with await self.connect() as connection:
            await connection.send(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + content)
            with anyio.fail_after(10):
                return b"".join([piece async for piece in connection])

    async def connect(self) -> SocketStream:
        """Open a raw connection."""
        return await anyio.connect_tcp("127.0.0.1", self.port)


@dataclass
class LegacyClient:
    """A session of 2025-11-25."""

    endpoint: Endpoint
    token: str
    session_id: str
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"mcp_session_id": self.session_id, "mcp_protocol_version": LEGACY}

    async def request(self, method: str, params: dict[str, Any] | None = None, *, id: object = 2) -> httpx.Response:
        """Send one request."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
        return await self.endpoint.post(
            body if params is None else body | {"params": params}, token=self.token, **self.headers
        )

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        """Send one notification."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        return await self.endpoint.post(
            body if params is None else body | {"params": params}, token=self.token, **self.headers
        )


@asynccontextmanager
async def endpoint(*, close: bool = True, **options: Any) -> AsyncIterator[Endpoint]:
    """Serve two runs on one endpoint."""
    one, two = a_run(1, TOKEN_1), a_run(2, TOKEN_2)
    good = {run.token: run.gateway for run in (one, two)}
    made: list[HttpEdge] = []

    async def resolve(token: str) -> Gateway | None:
        return good.get(token)

    def app(port: int) -> HttpEdge:
        made.append(http_app(resolve, allowed_hosts={f"127.0.0.1:{port}"}, **options))
        return made[0]

    async with serving(app, close=close) as port, httpx.AsyncClient(trust_env=False, timeout=20.0) as client:
        yield Endpoint(port, made[0], one, two, good, client)


def modern_body(method: str, params: dict[str, Any] | None = None, *, id: object = 1) -> dict[str, Any]:
    """Return a request of 2026-07-28 with its envelope."""
    params = dict(params or {})
    meta = {f"{META_PREFIX}protocolVersion": MODERN, f"{META_PREFIX}clientCapabilities": {}, **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params | {"_meta": meta}}


def modern_headers(body: dict[str, Any]) -> dict[str, str]:
    """Return the headers that mirror a request of 2026-07-28."""
    headers = {"mcp_protocol_version": MODERN, "mcp_method": body["method"]}
    name = body["params"].get("name")
    return headers | ({"mcp_name": name} if isinstance(name, str) else {})


def initialize_body(version: str = LEGACY) -> dict[str, Any]:
    """Return the handshake of an earlier revision."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def answer_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON-RPC answer of a response, be it JSON or the last event of a stream."""
    if response.headers["content-type"].startswith("text/event-stream"):
        found: dict[str, Any] = events_of(response.text)[-1]
        return found
    value: dict[str, Any] = response.json()
    return value


def events_of(text: str) -> list[Any]:
    """Return the messages of an event stream."""
    return [json.loads(line[5:]) for line in text.split("\r\n") if line.startswith("data:") and line[5:].strip()]
