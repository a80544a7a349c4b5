"""GET and HEAD of listed endpoints in plain HTTP; what was sent is in the record."""

import re
import socket

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from hostside.core.redaction import Redactor
from hostside.worker.egress.policy import EgressLimits
from tests.worker.egress.test_tunnels import endless, server
from tests.worker.egress.world import Page, Site, World, ask, raw

pytestmark = pytest.mark.anyio


async def test_a_page_of_a_listed_host_passes_and_a_canary_shows_in_the_record(world: World) -> None:
    site = Site({"/p": Page(body=b"hello", content_type="text/plain")})
    with site.serving() as port:
        where = world.place("docs.test", port)
        async with world.serving("docs.test:80", redactor=Redactor(["s3cret-of-the-host"])) as address:
            status, head, body = await ask(
                address, "http://docs.test/p?q=c4n4ry", "X-Out: c4n4ry-2", "X-Host: s3cret-of-the-host"
            )
    assert (status, body, "content-length: 5" in head.lower()) == (200, b"hello", True)
    assert [(one.method, one.path) for one in site.asked] == [("GET", "/p?q=c4n4ry")]
    one = world.decisions[0]
    assert (one.host, one.port, one.path, one.address, one.status, one.bytes_received) == (
        *("docs.test", 80, "/p?q=c4n4ry", where),
        *(200, 5),
    )
    assert dict(one.headers) == {
        "host": "docs.test",
        "connection": "close",
        "x-out": "c4n4ry-2",
        "x-host": "[redacted]",
    }
    assert world.told() == [("GET", "docs.test:80", True, "listed")]


async def test_only_reading_passes(world: World) -> None:
    site = Site({"/p": Page(body=b"hello")})
    with site.serving() as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            head = await ask(address, "http://docs.test/p", method="HEAD")
            others = [
                (await ask(address, "http://docs.test/p", method=method))[0]
                for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get")
            ]
            answer = await raw(
                address,
                b"POST http://docs.test/p HTTP/1.1\r\nHost: docs.test\r\nContent-Length: 900000\r\n\r\n",
                b"x" * 9_000,
            )
    assert (head[0], head[2], others) == (200, b"", [405] * 7)
    assert b"405 hostside: POST is not passed on to docs.test:80 in plain HTTP" in answer
    assert [one.method for one in site.asked] == ["HEAD"]


async def test_the_host_header_is_the_addresss_own_and_hop_by_hop_headers_stay(world: World) -> None:
    site = Site({"/p": Page()})
    with site.serving() as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            sent = b"GET http://docs.test/p HTTP/1.1\r\nHost: internal.test\r\nProxy-Authorization: Basic eA==\r\n"
            await raw(address, sent + b"Connection: close, X-Drop\r\nX-Drop: 1\r\nX-Keep: 1\r\n\r\n")
    headers = site.asked[0].headers
    assert (headers["host"], headers.get("x-keep")) == ("docs.test", "1")
    assert headers.keys().isdisjoint({"proxy-authorization", "x-drop"})


async def test_a_redirect_is_the_clients_to_follow_and_meets_the_policy_again(world: World) -> None:
    site = Site({"/p": Page(status=302, headers={"Location": "http://169.254.169.254/latest"})})
    with site.serving() as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            first = await ask(address, "http://docs.test/p")
            second = await ask(address, "http://169.254.169.254/latest")
    assert (first[0], second[0], world.wires.private()) == (302, 403, [])


async def test_requests_of_one_connection_are_decided_one_by_one(world: World) -> None:
    with Site({"/p": Page(body=b"hello")}).serving() as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            one = b"GET http://docs.test/p HTTP/1.1\r\nHost: docs.test\r\n\r\n"
            answer = await raw(address, one + one + b"GET http://other.test/ HTTP/1.1\r\nHost: a\r\n\r\n" + one)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"200", b"403"]
    assert [one.allowed for one in world.decisions] == [True, True, False]


async def test_an_answer_that_says_it_is_too_large_is_refused_before_a_byte_of_it(world: World) -> None:
    def huge(connection: socket.socket) -> None:
        connection.recv(4_096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5368709120\r\n\r\n")
        endless(connection)

    with server(huge) as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            status, _, body = await ask(address, "http://docs.test/p")
    limit = EgressLimits().response_bytes
    assert status == 403
    assert body.decode() == (
        f"hostside: the answer of docs.test:80 is larger than {limit} bytes, the limit of one answer\n"
    )
    assert world.told() == [("GET", "docs.test:80", True, "answer_too_large")]


async def test_an_answer_without_a_length_is_cut_off_at_the_limit(world: World) -> None:
    def huge(connection: socket.socket) -> None:
        connection.recv(4_096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        endless(connection)

    with server(huge) as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80", limits=EgressLimits(response_bytes=1_000_000)) as address:
            status, _, body = await ask(address, "http://docs.test/p")
    # The last chunk is missing: no client takes it for the whole.
    assert (status, len(body) < 1_100_000, body.endswith(b"0\r\n\r\n")) == (200, True, False)
    assert world.decisions[0].reason == "answer_too_large"


FAULTS = {
    "nothing": (b"", "upstream_failed"),
    "no HTTP": (b"SSH-2.0-x\r\n\r\n", "upstream_failed"),
    "an answer that breaks off": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "upstream_failed"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "upstream_failed"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_host_that_does_not_speak_http_is_told_as_such(world: World, fault: str) -> None:
    sent, reason = FAULTS[fault]

    def speak(connection: socket.socket) -> None:
        connection.recv(4_096)
        connection.sendall(sent)

    with server(speak) as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            answer = await raw(address, b"GET http://docs.test/p HTTP/1.1\r\nHost: docs.test\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 " if fault == "an answer that breaks off" else b"HTTP/1.1 502 hostside: ")
    assert [one.reason for one in world.decisions] == [reason]


async def test_a_host_that_never_answers_is_given_up(world: World) -> None:
    def wait(connection: socket.socket) -> None:
        while connection.recv(4_096):
            pass

    with server(wait) as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80", limits=EgressLimits(idle_seconds=0.1)) as address:
            status, _, body = await ask(address, "http://docs.test/p")
    assert (status, body) == (504, b"hostside: docs.test:80 did not answer in time\n")


async def test_a_client_that_hangs_up_ends_the_hosts_request(world: World) -> None:
    gone = anyio.Event()
    waiting = anyio.Event()
    loop = anyio.lowlevel.current_token()

    def wait(connection: socket.socket) -> None:
        connection.recv(4_096)
        anyio.from_thread.run_sync(waiting.set, token=loop)
        connection.recv(1)
        anyio.from_thread.run_sync(gone.set, token=loop)

    with server(wait) as port:
        world.place("docs.test", port)
        async with world.serving("docs.test:80") as address:
            async with await anyio.connect_tcp(*address) as stream:
                await stream.send(b"GET http://docs.test/p HTTP/1.1\r\nHost: docs.test\r\n\r\n")
                with anyio.fail_after(10):
                    await waiting.wait()
            with anyio.fail_after(10):
                await gone.wait()
            await world.recorded(1)
    assert world.told() == [("GET", "docs.test:80", True, "client_gone")]
