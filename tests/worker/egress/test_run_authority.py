"""TLS: ended by the host for registries alone, and only for reading; end to end for listed endpoints."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import anyio
import anyio.abc
import pytest
from anyio.streams.tls import TLSStream

from hostside.worker.egress.presets import upstream
from hostside.worker.egress.run_authority import RunAuthority
from tests.worker.conftest import IsolationFactory
from tests.worker.egress.inside import make, node_binds, python_binds, told
from tests.worker.egress.packages import npm_registry, simple_json, wheel
from tests.worker.egress.test_npm_inside import NPM
from tests.worker.egress.test_python_inside import SAY, uv, uv_binds
from tests.worker.egress.world import Page, Site, World, ask

pytestmark = pytest.mark.anyio

FILES = "https://files.test/packages/ab"
FILE = "/packages/ab/tiny-1.0.0-py3-none-any.whl"


class Outside:
    """The real world's authority: what the host trusts, and a run does not have to."""

    def __init__(self) -> None:
        self.authority = RunAuthority(datetime.now(UTC))
        self.trust = trust(self.authority)

    @contextmanager
    def site(self, world: World, host: str, site: Site) -> Iterator[None]:
        with site.serving(self.authority.context(host)) as port:
            world.place(host, port)
            yield


def trust(authority: RunAuthority) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.fixture
def outside() -> Outside:
    return Outside()


async def through(address: tuple[str, int], host: str, trusted: RunAuthority, request: bytes) -> bytes:
    """Send a request to `host` over TLS through CONNECT, and return all that comes back."""
    received = b""
    with anyio.fail_after(20):
        async with await anyio.connect_tcp(*address) as stream:
            await stream.send(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
            while not received.endswith(b"\r\n\r\n"):
                received += await stream.receive()
            assert received.startswith(b"HTTP/1.1 200 "), received
            secure = await TLSStream.wrap(stream, hostname=host, ssl_context=trust(trusted), standard_compatible=False)
            await secure.send(request)
            received = b""
            while True:
                try:
                    received += await secure.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return received


def get(path: str, host: str = "registry.test", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


async def test_a_registry_asked_by_its_own_https_address_is_read_and_never_written(
    world: World, outside: Outside
) -> None:
    site, run = Site(npm_registry("https://registry.test")), RunAuthority(datetime.now(UTC))
    with outside.site(world, "registry.test", site):
        world.know(upstream("npm", "https://registry.test"))
        settings = {"authority": run, "ssl_context": outside.trust, "registry_tokens": {"npm": "t0ken-of-npm"}}
        async with world.serving("npm", **settings) as address:
            good = await through(address, "registry.test", run, get("/tiny?c4n4ry"))
            post = await through(address, "registry.test", run, get("/tiny", method="POST"))
            other = await through(address, "registry.test", run, get("/x", host="files.test"))
    assert good.endswith(site.page("/tiny").body)
    assert (post.split(b" ")[1], other.split(b" ")[1]) == (b"405", b"421")
    assert [(one.method, one.headers.get("authorization")) for one in site.asked] == [("GET", "Bearer t0ken-of-npm")]
    told = [(one.way, one.method, one.path, one.reason) for one in world.decisions]
    assert ("registry", "GET", "/tiny?c4n4ry", "registry") in told
    assert ("registry", "POST", "/tiny", "method_refused") in told


async def test_a_listed_endpoint_is_a_tunnel_that_the_host_does_not_open(world: World, outside: Outside) -> None:
    site, run = Site({"/x": Page(body=b"seen by nobody else")}), RunAuthority(datetime.now(UTC))
    with outside.site(world, "registry.test", site):
        world.know(upstream("npm", "https://registry.test"))
        async with world.serving("npm", "registry.test:443", authority=run) as address:
            # The certificate is the server's own: a client that trusts the run's authority alone would refuse it.
            answer = await through(address, "registry.test", outside.authority, get("/x"))
            with pytest.raises(ssl.SSLCertVerificationError):
                await through(address, "registry.test", run, get("/x"))
    assert answer.endswith(b"seen by nobody else")
    assert {(one.way, one.path) for one in world.decisions} == {("connect", "")}


async def test_a_registry_whose_preset_is_not_listed_is_refused_with_the_presets_line(world: World) -> None:
    world.know(upstream("npm", "https://registry.test"))
    async with world.serving("a.test:1", authority=RunAuthority(datetime.now(UTC))) as address:
        _, _, body = await ask(address, "registry.test:443", method="CONNECT")
    assert body.decode() == (
        "hostside: registry.test:443 is a host of the registry npm, which is not in network.agent. "
        'To allow it: add "npm" to [network] agent in hostside.toml.\n'
    )


async def test_a_registry_whose_certificate_the_host_does_not_trust_is_refused(world: World, outside: Outside) -> None:
    with outside.site(world, "registry.test", Site({"/x": Page()})):
        world.know(upstream("go", "https://registry.test"))
        async with world.serving("go") as address:
            status, _, body = await ask(address, "/registry/go/x")
    assert (status, body) == (502, b"hostside: the certificate of registry.test is not one that the host trusts\n")


async def test_a_client_that_does_not_trust_the_host_is_recorded(world: World, outside: Outside) -> None:
    world.know(upstream("go", "https://registry.test"))
    async with world.serving("go", authority=RunAuthority(datetime.now(UTC))) as address:
        with pytest.raises(ssl.SSLCertVerificationError):
            await through(address, "registry.test", outside.authority, get("/x"))
        await world.recorded(1)
    assert [(one.way, one.reason) for one in world.decisions] == [("connect", "tls_failed")]


@pytest.mark.system
@pytest.mark.usefixtures("bwrap")
async def test_uv_and_npm_keep_https_addresses_in_their_lock_files(
    isolate: IsolationFactory, world: World, outside: Outside
) -> None:
    content = wheel()
    index = Site({"/simple/tiny/": simple_json(FILES, content)})
    files, npm = Site({FILE: Page(body=content)}), Site(npm_registry("https://registry.test"))
    with (
        outside.site(world, "index.test", index),
        outside.site(world, "files.test", files),
        outside.site(world, "registry.test", npm),
    ):
        pypi = upstream("pypi", "https://index.test/simple", files=["files.test:443"])
        world.know(pypi, upstream("npm", "https://registry.test"))
        inside = make(isolate, world, [*python_binds(), *uv_binds(), *node_binds()], authority=True)
        project = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["tiny"]\n'
        inside.write("pyproject.toml", project)
        inside.write("package.json", '{"name": "app", "dependencies": {"tiny": "1.0.0"}}')
        script = f"uv lock && rm -rf ~/.cache && uv sync --locked && .venv/bin/{SAY} && "
        script += "npm install && rm -rf node_modules ~/.npm && npm ci && node -p 'require(\"tiny\")' && "
        # With replacing off the client takes the address as it stands in the lock file.
        script += "rm -rf node_modules ~/.npm && npm_config_replace_registry_host=never npm ci"
        done = await inside.run(uv() + NPM + script, "pypi", "npm", ssl_context=outside.trust)
    assert done.exit_code == 0, told(done)
    assert done.stdout.count(b"hello from tiny") == 2
    lock = inside.read("uv.lock")
    assert ('registry = "https://index.test/simple"' in lock, f"{FILES}/tiny-1.0.0" in lock) == (True, True)
    assert '"resolved": "https://registry.test/tiny/-/tiny-1.0.0.tgz"' in inside.read("package-lock.json")
    assert {one.method for site in (index, files, npm) for one in site.asked} <= {"GET", "HEAD"}
    assert world.wires.private() == []
