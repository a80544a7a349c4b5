"""CONNECT to a listed endpoint: bytes both ways, counted and bounded, to the one address that was checked."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest

from hostside.worker.egress.policy import EgressLimits
from tests.worker.egress.world import World, raw

pytestmark = pytest.mark.anyio

CONNECT = b"CONNECT echo.test:443 HTTP/1.1\r\nHost: echo.test:443\r\nX-Canary: c4n4ry\r\n\r\n"
OPEN = b"HTTP/1.1 200 Connection established\r\n"


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A TCP server on loopback; `serve` gets each connection in a thread and closes it by returning."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        connection.settimeout(20)
        # The other side hangs up: some tests are about that.
        with connection, contextlib.suppress(OSError):
            serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=5)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65_536):
        connection.sendall(data.upper())


def endless(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65_536)


def silent(connection: socket.socket) -> None:
    connection.recv(1)


def greet_and_go(connection: socket.socket) -> None:
    connection.sendall(b"bye")


async def read_all(stream: anyio.abc.ByteStream) -> bytes:
    received = b""
    with anyio.fail_after(20):
        while True:
            try:
                received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return received


async def test_a_tunnel_passes_both_ways_and_hands_on_an_end(world: World) -> None:
    with server(echo) as port:
        where = world.place("echo.test", port)
        async with world.serving("echo.test:443") as address, await anyio.connect_tcp(*address) as stream:
            await stream.send(CONNECT + b"ahead ")
            await stream.send(b"and after")
            await stream.send_eof()
            answer = await read_all(stream)
            await world.recorded(2)
    assert (answer.startswith(OPEN), answer.endswith(b"\r\n\r\nAHEAD AND AFTER")) == (True, True)
    phases = [(one.phase, one.allowed, one.reason, one.address, one.headers[1]) for one in world.decisions]
    assert phases == [(phase, True, "listed", where, ("x-canary", "c4n4ry")) for phase in ("opened", "closed")]
    assert [(one.bytes_sent, one.bytes_received) for one in world.decisions] == [(0, 0), (15, 15)]


async def test_the_other_side_may_end_first(world: World) -> None:
    with server(greet_and_go) as port:
        world.place("echo.test", port)
        async with world.serving("echo.test:443") as address, await anyio.connect_tcp(*address) as stream:
            await stream.send(CONNECT)
            assert (await read_all(stream)).endswith(b"\r\n\r\nbye")


async def test_what_a_tunnel_receives_is_bounded(world: World) -> None:
    with server(endless) as port:
        world.place("echo.test", port)
        async with world.serving("echo.test:443", limits=EgressLimits(response_bytes=1_000_000)) as address:
            answer = await raw(address, CONNECT)
    assert len(answer) < 1_100_000
    assert world.decisions[-1].reason == "answer_too_large"


async def test_what_a_tunnel_sends_is_bounded_and_nothing_beyond_it_passes(world: World) -> None:
    got: list[bytes] = []

    def collect(connection: socket.socket) -> None:
        while data := connection.recv(65_536):
            got.append(data)

    with server(collect) as port:
        world.place("echo.test", port)
        async with world.serving("echo.test:443", limits=EgressLimits(tunnel_sent_bytes=1_000)) as address:
            await raw(address, CONNECT, b"a" * 800, b"b" * 800)
    last = world.decisions[-1]
    assert (last.reason, last.bytes_sent <= 1_000, len(b"".join(got)) <= 1_000) == ("too_much_sent", True, True)


async def test_a_tunnel_in_which_nothing_moves_ends(world: World) -> None:
    with server(silent) as port:
        world.place("echo.test", port)
        async with world.serving("echo.test:443", limits=EgressLimits(tunnel_idle_seconds=0.05)) as address:
            await raw(address, CONNECT)
    assert world.decisions[-1].reason == "idle"


async def test_the_end_of_the_run_ends_its_tunnels_and_records_them(world: World) -> None:
    with server(echo) as port:
        world.place("echo.test", port)
        async with world.serving("echo.test:443") as address:
            stream = await anyio.connect_tcp(*address)
            await stream.send(CONNECT)
            assert (await stream.receive()).startswith(OPEN)
        assert await read_all(stream) == b""
        await stream.aclose()
    assert [(one.phase, one.reason) for one in world.decisions] == [("opened", "listed"), ("closed", "run_ended")]


async def test_two_hundred_clients_at_once_are_all_served(world: World) -> None:
    with server(echo) as port:
        world.place("echo.test", port)
        answers: list[bytes] = []

        async def client(number: int) -> None:
            async with await anyio.connect_tcp(*address) as stream:
                await stream.send(CONNECT + b"n%d" % number)
                await stream.send_eof()
                answers.append((await read_all(stream)).rpartition(b"\r\n")[2])

        async with world.serving("echo.test:443") as address, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(client, number)
    assert sorted(answers) == sorted(b"N%d" % number for number in range(200))
    assert world.wires.private() == []
