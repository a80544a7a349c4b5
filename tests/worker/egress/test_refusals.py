"""What a run may not reach is refused at once, by name, with the line that would allow it; nothing goes out."""

import time
from ipaddress import ip_address

import anyio
import pytest

from hostside.worker.egress.policy import EgressLimits
from hostside.worker.egress.resolver import SystemResolver, TcpConnector
from tests.worker.egress.world import Page, Site, World, ask, raw

pytestmark = pytest.mark.anyio

LINE = (
    "hostside: api.example.com:443 is not in network.agent. "
    'To allow it: add "api.example.com:443" to [network] agent in hostside.toml.'
)


async def test_an_unlisted_host_is_refused_by_name_with_the_line_that_would_allow_it(world: World) -> None:
    async with world.serving("npm.example.org:443") as address:
        began = time.monotonic()
        status, head, body = await ask(address, "api.example.com:443", method="CONNECT")
        took = time.monotonic() - began
    assert (status, body.decode()) == (403, LINE + "\n")
    assert head.splitlines()[0] == f"HTTP/1.1 403 {LINE}"
    assert f"X-Hostside-Reason: {LINE}".lower() in head.lower()
    assert world.told() == [("CONNECT", "api.example.com:443", False, "not_listed")]
    assert (world.names.looked_up, world.wires.connected) == ([], [])
    assert took < 0.1


async def test_the_empty_policy_refuses_every_way_out(world: World) -> None:
    async with world.serving() as address:
        said = [
            (await ask(address, "http://example.com/x"))[2].decode(),
            (await ask(address, "/registry/pypi/simple/six/"))[2].decode(),
            (await ask(address, "/left-pad/-/left-pad-1.0.0.tgz"))[2].decode(),
        ]
    assert said == [
        'hostside: example.com:80 is not in network.agent. To allow it: add "example.com:80" to [network] agent in '
        "hostside.toml.\n",
        'hostside: pypi is not in network.agent. To allow it: add "pypi" to [network] agent in hostside.toml.\n',
        '{"error": "hostside: npm is not in network.agent. To allow it: add \\"npm\\" to [network] agent in '
        'hostside.toml.", "code": "preset_not_listed"}',
    ]
    assert (world.names.looked_up, world.wires.connected) == ([], [])


@pytest.mark.parametrize("listed", ["other.test:443", "api.example.com:8443", "xapi.example.com:443"])
async def test_a_port_or_a_name_beside_the_listed_one_is_not_listed(world: World, listed: str) -> None:
    async with world.serving(listed) as address:
        status, _, _ = await ask(address, "api.example.com:443", method="CONNECT")
    assert (status, world.wires.connected) == (403, [])


ADDRESSES = ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::ffff:7f00:1", "64:ff9b::7f00:1", "fd00:ec2::254", "::1"]


@pytest.mark.parametrize("private", ADDRESSES)
@pytest.mark.parametrize("target", ["api.example.com:443", "http://api.example.com/latest"])
async def test_a_listed_name_with_no_public_address_never_connects(world: World, target: str, private: str) -> None:
    world.names.answers["api.example.com"] = [[private]]
    method = "GET" if target.startswith("http") else "CONNECT"
    async with world.serving("api.example.com:443", "api.example.com:80") as address:
        status, _, body = await ask(address, target, method=method)
    assert status == 403
    assert body.startswith(b"hostside: api.example.com:")
    assert b"its address is not public" in body
    assert private.encode() not in body
    assert world.wires.connected == []
    told = str(ip_address(private))
    assert [(one.allowed, one.reason, one.address) for one in world.decisions] == [(False, "private_address", told)]


async def test_only_the_public_addresses_of_a_name_are_tried(world: World) -> None:
    with Site({"/": Page(body=b"hello")}).serving() as port:
        address_of = world.place("api.example.com", port)
        world.names.answers["api.example.com"] = [["127.0.0.1", "10.0.0.1", address_of]]
        async with world.serving("api.example.com:80") as address:
            assert (await ask(address, "http://api.example.com/"))[2] == b"hello"
    assert world.wires.connected == [f"{address_of}:80"]


async def test_an_answer_that_changes_between_check_and_connect_changes_nothing(world: World) -> None:
    with Site({"/": Page(body=b"hello")}).serving() as port:
        address_of = world.place("rebind.test", port)
        world.names.answers["rebind.test"] = [[address_of], ["127.0.0.1"]]
        async with world.serving("rebind.test:80", "rebind.test:443") as address:
            first = await ask(address, "http://rebind.test/")
            second = await ask(address, "rebind.test:443", method="CONNECT")
    assert (first[0], first[2], second[0]) == (200, b"hello", 403)
    # One look-up for each connection, and a connection to exactly what it gave.
    assert (world.names.looked_up, world.wires.connected) == (["rebind.test"] * 2, [f"{address_of}:80"])


async def test_the_operator_may_open_a_private_address_by_name(world: World) -> None:
    with Site({"/": Page(body=b"inside")}).serving() as port:
        world.names.answers["db.corp.test"] = [["10.0.0.8"]]
        world.wires.ports["10.0.0.8"] = port
        async with world.serving("db.corp.test:80", private=["db.corp.test:80"]) as address:
            assert (await ask(address, "http://db.corp.test/"))[2] == b"inside"
    assert world.wires.connected == ["10.0.0.8:80"]


async def test_refusals_alike_are_counted_and_never_fill_a_disk(world: World) -> None:
    async with world.serving() as address:
        for _ in range(50):
            await ask(address, "api.example.com:443", method="CONNECT")
    assert [one.repeated for one in world.decisions] == [1] * 20 + [30]


async def test_a_name_that_does_not_exist_and_a_host_that_does_not_answer_are_told_apart(world: World) -> None:
    world.names.answers["down.test"] = [["151.101.9.9"]]
    async with world.serving("nowhere.test:443", "down.test:443") as address:
        said = [(await ask(address, f"{host}.test:443", method="CONNECT"))[::2] for host in ("nowhere", "down")]
    assert said == [
        (502, b"hostside: there is no address of nowhere.test\n"),
        (502, b"hostside: down.test:443 could not be reached\n"),
    ]
    assert [(one.reason, one.address) for one in world.decisions] == [
        ("name_not_found", None),
        ("upstream_unreachable", "151.101.9.9"),
    ]


MALFORMED = {
    "no port": (b"CONNECT example.com HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "port 0": (b"CONNECT example.com:0 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a URL": (b"CONNECT https://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "user": (b"CONNECT me@example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "an address as one number": (b"CONNECT 2130706433:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a body": (b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "two hosts": (b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "no host": (b"GET http://example.com/ HTTP/1.1\r\n\r\n", 400),
    "two lengths": (
        b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
    ),
    "an unknown coding": (b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "white space before a colon": (b"GET http://example.com/ HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "a zero byte": (b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    "a user in the address": (b"GET http://me:pw@example.com/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "https in the clear": (b"GET https://example.com/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "another scheme": (b"GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "an asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a body on a GET": (b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400),
    "chunks and a length": (
        b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET http://example.com/smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
    ),
    "a head without an end": (b"GET http://example.com/ HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000, 431),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_no_plain_request_is_refused_and_nothing_of_it_goes_out(world: World, case: str) -> None:
    sent, expected = MALFORMED[case]
    async with world.serving("example.com:80", "example.com:443") as address:
        answer = await raw(address, sent)
    statuses = [int(line.split()[1]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    assert statuses == [expected]
    assert (world.names.looked_up, world.wires.connected) == ([], [])
    assert [one.allowed for one in world.decisions] == [False]


async def test_a_client_that_never_finishes_its_head_is_cut_off(world: World) -> None:
    async with world.serving(limits=EgressLimits(head_seconds=0.05)) as address:
        answer = await raw(address, b"GET http://exam")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert [one.reason for one in world.decisions] == ["head_too_slow"]


async def test_one_connection_too_many_is_told_so(world: World) -> None:
    async with (
        world.serving(limits=EgressLimits(connections=2)) as address,
        await anyio.connect_tcp(*address) as one,
        await anyio.connect_tcp(*address) as two,
    ):
        await one.send(b"GET ")
        await two.send(b"GET ")
        answer = await raw(address, b"")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert "too_many_connections" in [one.reason for one in world.decisions]


@pytest.mark.parametrize("use_uvloop", [False, True])
def test_the_hosts_own_resolver_and_sockets_meet_the_same_rules(use_uvloop: bool) -> None:
    async def tries() -> list[tuple[int, bytes]]:
        world = World()
        with Site({"/": Page(body=b"hello")}).serving() as port:
            by_name, literal = f"localhost:{port}", f"127.0.0.1:{port}"
            settings = {"resolver": SystemResolver(), "connector": TcpConnector(), "private": [literal]}
            async with world.serving(by_name, literal, **settings) as address:
                asked = [await ask(address, f"http://{where}/") for where in (by_name, literal)]
        return [(status, body[:5]) for status, _, body in asked]

    assert anyio.run(tries, backend_options={"use_uvloop": use_uvloop}) == [(403, b"hosts"), (200, b"hello")]
