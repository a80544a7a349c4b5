"""A model proxy between a client and an upstream that does what a test says, with two runs' tokens."""

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
from starlette.requests import Request
from starlette.responses import Response

from hostside.core.canonical import JsonObject
from hostside.edges.http_server import serve_on
from hostside.errors import HostsideError
from hostside.worker.model_provider import ANTHROPIC, ModelProvider
from hostside.worker.model_proxy import ModelAccess, ModelProxy, ModelUpstream, agent_base_url
from hostside.worker.model_usage import ModelBudget, ModelMeter

KEY = "sk-ant-real-key-0123456789"
TOKEN = "hst_" + "m" * 43
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Proxied:
    """A client of a proxy; `client` presents no token by itself. Take TOKEN out of `good` to revoke it."""

    client: httpx.AsyncClient
    port: int
    meter: ModelMeter
    good: set[str]
    events: list[tuple[str, JsonObject]]
    seen: list[Request] = field(default_factory=list)
    broken_store: bool = False

    async def ask(
        self, path: str = "/v1/messages", *, token: str | None = TOKEN, body: Any = None, **headers: str
    ) -> httpx.Response:
        """POST to the model as Claude Code does; `_` in a header's name stands for `-`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["x-api-key"] = token
        content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return await self.client.post(path, content=content, headers=sent)

    async def raw(self, request: bytes) -> bytes:
        """Send exactly this and return all that comes back until the end of the connection."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(request)
            with anyio.fail_after(10):
                return b"".join([piece async for piece in stream])

    def told(self, name: str) -> list[JsonObject]:
        """The facts of every event of that name."""
        return [facts for event, facts in self.events if event == name]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """An HTTP server that gives this answer to everything; yield its port."""

    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        if scope["type"] == "lifespan":
            for moment in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{moment}.complete"})
            return
        response = await answer(Request(scope, receive))
        await response(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_on([listener], app, ready=ready))
        await ready.wait()
        yield listener.getsockname()[1]
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def proxied(
    answer: Answer,
    *,
    provider: ModelProvider = ANTHROPIC,
    path: str = "",
    key: str | None = KEY,
    login: bool = False,
    budget: ModelBudget | None = None,
) -> AsyncIterator[Proxied]:
    """A proxy to an upstream below `path` that gives this answer. Fails after 30 seconds."""
    with anyio.fail_after(30):
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        good, events, meter = {TOKEN}, list[tuple[str, JsonObject]](), ModelMeter(budget or ModelBudget())

        async def authenticate(token: str) -> bool:
            if world.broken_store:
                raise HostsideError("the database is locked")
            return token in good

        async def watched(request: Request) -> Response:
            await request.body()
            world.seen.append(request)
            return await answer(request)

        async with serving(watched) as upstream, httpx.AsyncClient(trust_env=False, timeout=20) as client:
            client.base_url = httpx.URL(agent_base_url(address, provider).removesuffix("/v1"))
            proxy = ModelProxy(
                listener,
                address=address,
                upstream=ModelUpstream(
                    provider=provider, url=f"http://127.0.0.1:{upstream}{path}", key=key, login=login
                ),
                access=ModelAccess(token=TOKEN, authenticate=authenticate, meter=meter),
                event=lambda name, facts: events.append((name, dict(facts))),
            )
            world = Proxied(client, address[1], meter, good, events)
            async with proxy:
                yield world


def events(*items: Mapping[str, Any]) -> list[bytes]:
    """Server-sent events as both providers write them."""
    return [f"event: {item['type']}\ndata: {json.dumps(item)}\n\n".encode() for item in items]


async def pieces(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The chunks as a stream."""
    for chunk in chunks:
        yield chunk
