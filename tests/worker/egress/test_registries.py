"""Reading registries: which requests pass, what is sent along, where redirects may lead."""

import json
import socket

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from hostside.errors import ConfigError
from hostside.worker.egress.policy import EgressLimits
from hostside.worker.egress.presets import Registries, upstream
from tests.worker.egress.packages import npm_registry, sha256, simple_index, simple_json, wheel
from tests.worker.egress.test_tunnels import server
from tests.worker.egress.world import Page, Site, World, ask, raw

pytestmark = pytest.mark.anyio

FILES = "http://files.test/packages/ab"
FILE = "/packages/ab/tiny-1.0.0-py3-none-any.whl"
TOKEN = "t0ken-of-the-registry"


async def test_a_registry_is_only_read(world: World) -> None:
    site = Site(npm_registry("http://registry.test"))
    with site.serving() as port:
        world.place("registry.test", port)
        world.know(upstream("npm", "http://registry.test"))
        async with world.serving("npm") as address:
            got = await ask(address, "/registry/npm/tiny")
            head = await ask(address, "/registry/npm/tiny", method="HEAD")
            posts = [
                await ask(address, target, "Content-Length: 0", method=method)
                for method in ("POST", "PUT", "DELETE")
                for target in ("/registry/npm/tiny", "http://registry.test/tiny")
            ]
            login = await raw(
                address,
                b"PUT /registry/npm/-/user/org.couchdb.user:me HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n",
                b"x" * 200_000,
            )
            tunnel = await ask(address, "registry.test:443", method="CONNECT")
    assert (got[0], head[0], head[2], [post[0] for post in posts], tunnel[0]) == (200, 200, b"", [405] * 6, 403)
    assert json.loads(posts[0][2]) == {
        "error": "hostside: POST is not passed on to the registry npm: a run only reads it (GET and HEAD)",
        "code": "method_refused",
    }
    assert login.startswith(b"HTTP/1.1 405 hostside: PUT is not passed on")
    assert [one.method for one in site.asked] == ["GET", "HEAD"]


async def test_a_registrys_document_passes_byte_for_byte_where_nothing_has_to_change(world: World) -> None:
    pages = npm_registry("http://registry.test")
    with Site(pages).serving() as port:
        world.place("registry.test", port)
        world.know(upstream("npm", "http://registry.test"))
        async with world.serving("npm") as address:
            document = await ask(address, "/registry/npm/tiny", "Accept-Encoding: gzip")
            package = await ask(address, "/tiny/-/tiny-1.0.0.tgz")
    assert (document[2], package[2]) == (pages["/tiny"].body, pages["/tiny/-/tiny-1.0.0.tgz"].body)


async def test_only_what_a_registry_needs_is_sent_along_and_all_that_was_tried_is_recorded(world: World) -> None:
    site = Site(npm_registry("http://registry.test"))
    with site.serving() as port:
        world.place("registry.test", port)
        world.know(upstream("npm", "http://registry.test"))
        async with world.serving("npm") as address:
            headers = (
                "Authorization: Bearer c4n4ry",
                "X-Out: c4n4ry",
                "Cookie: c4n4ry",
                "Referer: c4n4ry",
                "Accept: a/b",
            )
            await ask(address, "/registry/npm/tiny?c4n4ry-in-the-query", *headers)
    names = set(site.asked[0].headers)
    assert names == {"host", "accept", "accept-encoding"}
    one = world.decisions[0]
    assert (one.path, [value for _, value in one.headers].count("c4n4ry"), one.host) == (
        "/registry/npm/tiny?c4n4ry-in-the-query",
        3,
        "registry.test",
    )


@pytest.mark.parametrize(
    ("preset", "token", "sent"),
    [
        ("npm", TOKEN, f"Bearer {TOKEN}"),
        ("maven", "me:pw-of-maven", "Basic bWU6cHctb2YtbWF2ZW4="),
        ("crates", TOKEN, TOKEN),
    ],
)
async def test_the_hosts_token_goes_to_the_registry_and_comes_back_to_nobody(
    world: World, preset: str, token: str, sent: str
) -> None:
    site = Site({"/base/x": Page(body=f"you sent {token}!".encode(), headers={"X-Echo": token})})
    with site.serving() as port:
        world.place("registry.test", port)
        world.know(upstream(preset, "http://registry.test/base"))
        async with world.serving(preset, registry_tokens={preset: token}) as address:
            status, head, body = await ask(address, f"/registry/{preset}/x")
    assert (status, site.asked[0].headers["authorization"]) == (200, sent)
    assert (token in head, body) == (False, b"you sent " + b"*" * len(token) + b"!")
    assert token not in repr(world.decisions)


REDIRECTS = {
    "elsewhere on the registry": ("/other", 200, ["registry", "redirected"]),
    "a listed host": ("http://listed.test/f", 200, ["registry", "redirected"]),
    "a host of its files": ("http://files.test/f", 200, ["registry", "redirected"]),
    "an unlisted host": ("http://else.test/f", 403, ["redirect_refused", "redirected"]),
    "a private address": ("http://10.0.0.1/f", 403, ["redirect_refused", "redirected"]),
    "the metadata service": ("http://169.254.169.254/latest", 403, ["redirect_refused", "redirected"]),
    "a listed name that is private": ("http://private.test/f", 403, ["private_address", "redirected"]),
    "another scheme": ("file:///etc/passwd", 502, ["upstream_failed"]),
    "a user": ("http://a:b@registry.test/other", 502, ["upstream_failed"]),
}


@pytest.mark.parametrize("case", REDIRECTS)
async def test_a_redirect_is_followed_to_the_registrys_own_and_to_listed_hosts_alone(world: World, case: str) -> None:
    location, expected, reasons = REDIRECTS[case]
    site = Site({"/x": Page(status=302, headers={"Location": location}), "/other": Page(), "/f": Page()})
    with site.serving() as port:
        for host in ("registry.test", "listed.test", "files.test", "else.test"):
            world.place(host, port)
        world.names.answers["private.test"] = [["10.0.0.1"]]
        world.know(upstream("maven", "http://registry.test", files=["files.test:80"]))
        entries = ("maven", "listed.test:80", "private.test:80")
        async with world.serving(*entries, registry_tokens={"maven": TOKEN}) as address:
            status, _, body = await ask(address, "/registry/maven/x")
    assert status == expected, body
    assert sorted(one.reason for one in world.decisions) == sorted(reasons)
    assert world.wires.private() == []
    # The token stays with the registry, whoever it points to.
    own = {one.headers["host"] for one in site.asked if "authorization" in one.headers}
    assert own == {"registry.test"}
    if case == "an unlisted host":
        assert body.decode() == (
            "hostside: maven redirects to else.test:80, which is not in network.agent. "
            'To allow it: add "else.test:80" to [network] agent in hostside.toml.\n'
        )


async def test_redirects_have_an_end(world: World) -> None:
    site = Site(lambda _: Page(status=301, headers={"Location": "/again"}))
    with site.serving() as port:
        world.place("registry.test", port)
        world.know(upstream("go", "http://registry.test"))
        async with world.serving("go") as address:
            status, _, _ = await ask(address, "/registry/go/x")
    assert (status, len(site.asked), world.decisions[-1].reason) == (502, 6, "too_many_redirects")


@pytest.mark.parametrize(
    "path",
    [
        "/registry/maven/../secret",
        "/registry/maven/%2e%2e/secret",
        "/registry/maven/a/%2E./secret",
        "/registry/maven/..%2fsecret",
        "/registry/maven/%252e%252e/secret",
        "/registry/maven/..\\secret",
        "/registry/maven/a%5c..%5csecret",
        "/registry/maven/%00",
        "/registry/debian/other/x",
        "/registry/nothing/x",
        "/registry/",
        "/registry/pypi/x",
        "/registry/pypi/-/files/p/m/ftp/a:1/x",
        "/registry/crates/-/dl/a/..%2f..%2fx/" + "0" * 64,
        "/registry/crates/-/dl/tiny/1/nohash",
        "/secret",
        "http://registry.test/secret",
    ],
)
async def test_no_path_leads_out_of_a_registry(world: World, path: str) -> None:
    site = Site(lambda _: Page(body=b"secret"))
    with site.serving() as port:
        world.place("registry.test", port)
        registries = [upstream(preset, "http://registry.test/base") for preset in ("maven", "pypi", "crates", "npm")]
        world.know(*registries, upstream("debian", {"debian": "http://registry.test/debian"}))
        async with world.serving("maven", "pypi", "crates", "npm", "debian") as address:
            status, _, _ = await ask(address, path)
    assert (status in (403, 404), site.asked) == (True, [])


@pytest.mark.parametrize("kind", ["html", "json"])
async def test_an_index_points_at_the_proxy_and_its_hashes_stay(world: World, kind: str) -> None:
    content = wheel()
    page = simple_index(FILES, content) if kind == "html" else simple_json(FILES, content)
    index, files = Site({"/simple/tiny/": page}), Site({FILE: Page(body=content), FILE + ".metadata": Page(body=b"m")})
    with index.serving() as index_port, files.serving() as files_port:
        world.place("index.test", index_port)
        world.place("files.test", files_port)
        world.know(upstream("pypi", "http://index.test/simple"))
        async with world.serving("pypi", registry_tokens={"pypi": TOKEN}) as address:
            seen = await ask(address, "/registry/pypi/simple/tiny/", 'If-None-Match: "x"', "Range: bytes=0-1")
            base = f"http://127.0.0.1:{address[1]}"
            link = seen[2].decode().partition(base)[2].partition('"')[0]
            path, _, fragment = link.partition("#")
            file = await ask(address, path)
            metadata = await ask(address, path + ".metadata")
            forged = await ask(address, path.replace(FILE, "/packages/ab/other.whl"))
    expected = page.body.decode().replace(f"{FILES}/", f"{base}{path.removesuffix(FILE.rpartition('/')[2])}")
    read = json.loads if kind == "json" else str
    assert (seen[0], read(seen[2].decode())) == (200, read(expected))
    assert (file[2], metadata[2], forged[0]) == (content, b"m", 403)
    if kind == "html":
        assert fragment == f"sha256={sha256(content)}"
    assert forged[2] == b"hostside: the registry pypi names no such file of tiny\n"
    # The token is for the index alone; parts and conditions are not asked for where the whole is read.
    assert [("authorization" in one.headers) for one in files.asked] == [False] * 2
    assert {"range", "if-none-match"}.isdisjoint(index.asked[0].headers)


async def test_a_link_from_an_older_runs_cache_is_checked_against_the_index(world: World) -> None:
    content = wheel()
    index, files = Site({"/simple/tiny/": simple_json(FILES, content)}), Site({FILE: Page(body=content)})
    with index.serving() as index_port, files.serving() as files_port:
        world.place("index.test", index_port)
        world.place("files.test", files_port)
        pypi = upstream("pypi", "http://index.test/simple")
        world.know(pypi)
        async with world.serving("pypi") as address:
            good = await ask(address, f"/registry/pypi/-/files/tiny/{'0' * 32}/http/files.test:80{FILE}")
            bad = await ask(address, f"/registry/pypi/-/files/tiny/{'0' * 32}/http/files.test:80/else")
    assert (good[0], good[2], bad[0]) == (200, content, 403)
    assert [one.path for one in index.asked] == ["/simple/tiny/"] * 2


async def test_a_registry_that_gives_no_document_is_a_named_refusal(world: World) -> None:
    json_type = "application/vnd.pypi.simple.v1+json"
    pages = {
        f"/simple/{n}/": Page(body=body, content_type=json_type) for n, body in {"a": b"{", "b": b"[" * 99_999}.items()
    }
    pages["/simple/c/"] = Page(body=b"\x1f\x8b", content_type=json_type, headers={"Content-Encoding": "gzip"})
    pages["/simple/d/"] = Page(body=b" " * 2_000, content_type=json_type)
    with Site(pages).serving() as port:
        world.place("index.test", port)
        world.know(upstream("pypi", "http://index.test/simple"))
        async with world.serving("pypi", limits=EgressLimits(index_bytes=200_000)) as address:
            said = [(await ask(address, f"/registry/pypi/simple/{n}/"))[0] for n in "abcd"]
        async with world.serving("pypi", limits=EgressLimits(index_bytes=1_000)) as address:
            large = await ask(address, "/registry/pypi/simple/d/")
    assert (said, large[0]) == ([502] * 4, 403)
    assert world.decisions[-1].reason == "answer_too_large"


async def test_a_package_passes_as_it_comes(world: World) -> None:
    more = anyio.Event()
    token = anyio.lowlevel.current_token()

    def slowly(connection: socket.socket) -> None:
        connection.recv(4_096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst")
        anyio.from_thread.run(more.wait, token=token)
        connection.sendall(b"last")

    with server(slowly) as port:
        world.place("registry.test", port)
        world.know(upstream("go", "http://registry.test"))
        async with world.serving("go") as address, await anyio.connect_tcp(*address) as stream:
            await stream.send(b"GET /registry/go/x HTTP/1.1\r\nHost: a\r\n\r\n")
            received = b""
            with anyio.fail_after(10):
                while not received.endswith(b"first"):
                    received += await stream.receive()
                more.set()
                while not received.endswith(b"last"):
                    received += await stream.receive()


async def test_two_hundred_requests_at_once_are_all_answered(world: World) -> None:
    site = Site(lambda path: Page(body=path.encode() * 1_000))
    answers: dict[int, bytes] = {}
    with site.serving() as port:
        world.place("registry.test", port)
        world.know(upstream("go", "http://registry.test"))

        async def one(number: int) -> None:
            status, _, body = await ask(address, f"/registry/go/{number}")
            answers[number] = body if status == 200 else b"%d" % status

        async with world.serving("go") as address, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
    assert answers == {number: f"/{number}".encode() * 1_000 for number in range(200)}


async def test_a_preset_without_a_registry_stops_before_anything_is_served(world: World) -> None:
    with pytest.raises(ConfigError) as caught:
        async with world.serving("npm"):
            raise AssertionError("not reached")
    assert (caught.value.message, caught.value.remedy) == (
        "the registry of the preset npm is not known: no client of this machine names it",
        'Set it in hostside.toml: [network.registries] npm = "https://...".',
    )


@pytest.mark.parametrize(
    "url", ["registry.test", "ftp://registry.test", "https://me:pw@registry.test", "https://a b", ""]
)
def test_a_registry_has_a_plain_address(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^network\.registries\.npm: ") as caught:
        upstream("npm", url)
    assert "pw" not in str(caught.value)


def test_a_registrys_marks_are_the_runs_own() -> None:
    npm = upstream("npm", "http://registry.test")
    assert Registries(upstreams={"npm": npm}).mark(npm.root) != Registries(upstreams={"npm": npm}).mark(npm.root)
