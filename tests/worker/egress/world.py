"""A made-up internet on loopback: names, public addresses, and sites that stand behind them."""

import ipaddress
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import anyio.abc

from hostside.core.redaction import Redactor
from hostside.worker.egress.addresses import IPAddress
from hostside.worker.egress.decisions import Decision
from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.presets import Registries, RegistryUpstream
from hostside.worker.egress.proxy import EgressProxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    body: bytes = b""
    content_type: str = "application/octet-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that arrived. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


Answer = Callable[[str], Page | None]


class Site:
    """One HTTP server. `pages`: by path, without the query; or a function of the path."""

    def __init__(self, pages: Mapping[str, Page] | Answer) -> None:
        self.pages = pages
        self.asked: list[Asked] = []

    def page(self, path: str) -> Page:
        plain = path.partition("?")[0]
        found = self.pages(plain) if callable(self.pages) else self.pages.get(plain)
        return found or Page(status=404, body=b"not here", content_type="text/plain")

    @contextmanager
    def serving(self, context: ssl.SSLContext | None = None) -> Iterator[int]:
        """Serve on loopback, over TLS where a context is given. Yields the port."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.asked.append(Asked(method=self.command, path=self.path, headers=_lower(self.headers)))
                page = site.page(self.path)
                self.send_response(page.status)
                for name, value in {"Content-Type": page.content_type, **page.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(page.body)

            do_HEAD = do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_: Any) -> None:
                pass  # a client that hangs up is part of some tests

        with Server(("127.0.0.1", 0), Handler) as server:
            if context is not None:
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            thread.start()
            try:
                yield server.server_port
            finally:
                server.shutdown()
                thread.join(timeout=5)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass(slots=True)
class Names:
    """A resolver. Each name's answers are given one after the other, the last one again and again."""

    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    looked_up: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> tuple[IPAddress, ...]:
        self.looked_up.append(host)
        known = self.answers.get(host)
        if not known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        answer = known.pop(0) if len(known) > 1 else known[0]
        return tuple(ipaddress.ip_address(text) for text in answer)


@dataclass(slots=True)
class Wires:
    """A connector: public addresses lead to ports of loopback. `connected` is every address that was asked for."""

    ports: dict[str, int] = field(default_factory=dict)
    connected: list[str] = field(default_factory=list)

    async def connect(self, address: IPAddress, port: int) -> anyio.abc.ByteStream:
        self.connected.append(f"{address}:{port}")
        if str(address) not in self.ports:
            raise ConnectionRefusedError
        return await anyio.connect_tcp("127.0.0.1", self.ports[str(address)])

    def private(self) -> list[str]:
        return [one for one in self.connected if not ipaddress.ip_address(one.rpartition(":")[0]).is_global]


@dataclass(slots=True, kw_only=True)
class World:
    """`address`: of the proxy. `names` and `wires` may be changed at any time."""

    names: Names = field(default_factory=Names)
    wires: Wires = field(default_factory=Wires)
    decisions: list[Decision] = field(default_factory=list)
    registries: Registries = field(default_factory=Registries)
    _next: int = 1

    def place(self, host: str, port: int) -> str:
        """Give a host a public address that leads to a port of loopback. Return the address."""
        address = f"151.101.7.{self._next}"
        self._next += 1
        self.names.answers[host] = [[address]]
        self.wires.ports[address] = port
        return address

    def know(self, *registries: RegistryUpstream) -> None:
        self.registries = Registries(upstreams={one.preset: one for one in registries})

    def proxy(
        self, listener: socket.socket, entries: Sequence[str], *, address: tuple[str, int], **changes: Any
    ) -> EgressProxy:
        private = changes.pop("private", ())
        settings: dict[str, Any] = {
            "registries": self.registries,
            "decide": self.decisions.append,
            "redactor": Redactor(),
            "registry_tokens": {},
            "resolver": self.names,
            "connector": self.wires,
        }
        policy = EgressPolicy.parse(entries, private=private)
        return EgressProxy(listener, policy, address=address, **(settings | changes))

    @asynccontextmanager
    async def serving(self, *entries: str, **changes: Any) -> AsyncIterator[tuple[str, int]]:
        """Serve a policy on loopback. Yields the proxy's address."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()[:2]
            async with self.proxy(listener, entries, address=address, **changes):
                yield address

    async def recorded(self, count: int) -> None:
        """Wait for so many decisions."""
        with anyio.fail_after(10):
            while len(self.decisions) < count:
                await anyio.sleep(0.005)

    def told(self) -> list[tuple[str, str, bool, str]]:
        """Method, host and port, allowed, reason of every decision."""
        return [(one.method, f"{one.host}:{one.port}", one.allowed, one.reason) for one in self.decisions]


async def raw(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send bytes as they are, and return everything that comes until the proxy closes."""
    received = b""
    with anyio.fail_after(20):
        async with await anyio.connect_tcp(*address) as stream:
            for part in parts:
                await stream.send(part)
            while True:
                try:
                    received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return received


async def ask(address: tuple[str, int], target: str, *headers: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Send one request. Return status, head and body of the answer."""
    host = target.removeprefix("http://").partition("/")[0] if target.startswith("http") else "127.0.0.1"
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    answer = await raw(address, "\r\n".join([*lines, "", ""]).encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head.decode("latin-1"), body
