"""The HTTP edge of one run: a client that has been silent for long finds its session again (D23)."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from hostside.edges.mcp_http import http_app
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.run_edge import edge_url, run_edge
from tests.support.agent_bench import TOKEN, Bench, settings
from tests.support.http_edges import ACCEPT, LEGACY, answer_of, initialize_body, serving
from tests.worker.conftest import IsolationFactory

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(isolate: IsolationFactory) -> Bench:
    """A session whose agent is never started."""
    return Bench(isolation=isolate(IsolationLevel.HOME), settings=settings("codex", None))


class Client:
    """A client of 2025 at one endpoint."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http, self._url = http, url
        self._headers = {"authorization": f"Bearer {TOKEN}", "accept": ACCEPT, "content-type": "application/json"}

    async def send(self, body: dict[str, Any]) -> httpx.Response:
        """POST one message in the session, where there is one."""
        return await self._http.post(self._url, content=json.dumps(body), headers=self._headers)

    async def begin(self) -> "Client":
        """Shake hands."""
        answer = await self.send(initialize_body())
        self._headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def post(self, number: int) -> httpx.Response:
        """Call `demo_post`."""
        params = {"name": "demo_post", "arguments": {"body": f"text {number}"}}
        return await self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


@asynccontextmanager
async def endpoints(bench: Bench) -> AsyncIterator[tuple[Client, Client]]:
    """A client of the run's edge, and one of an edge like that of `serve`."""
    task = bench.task("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        async with (
            run_edge(task, (listener,), address),
            serving(lambda port: http_app(task.resolve_token, allowed_hosts={f"127.0.0.1:{port}"})) as port,
            httpx.AsyncClient(trust_env=False, timeout=20.0) as http,
        ):
            urls = (edge_url(address), f"http://127.0.0.1:{port}/mcp")
            run, server = [await Client(http, url).begin() for url in urls]
            yield run, server


async def test_a_session_of_a_run_does_not_expire(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.edges.mcp_http.LEGACY_IDLE_SECONDS", 0.2)
    async with endpoints(bench) as (run, server):
        with anyio.fail_after(20):
            while (await server.send({"jsonrpc": "2.0", "method": "notifications/none"})).status_code != 404:
                await anyio.sleep(0.5)  # each request is a sign of life, so they must be rarer than that
        answer = await run.post(7)
    assert (answer.status_code, answer_of(answer)["result"]["structuredContent"]) == (200, {"id": "text 7"})
    assert bench.calls() == [("demo_post", None)]


async def test_a_live_token_is_never_told_that_its_session_is_not_found(bench: Bench) -> None:
    async with endpoints(bench) as (run, _):
        statuses = [(await run.post(number)).status_code for number in range(1, 21)]
        del bench.gateways[TOKEN]
        revoked = (await run.post(99)).status_code
    assert (set(statuses), revoked) == ({200}, 401)
    assert bench.calls() == [("demo_post", None)] * 20
