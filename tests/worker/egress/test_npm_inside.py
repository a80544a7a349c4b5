"""npm, as it is, inside a sandbox without any other way out."""

import json

import pytest

from hostside.worker.egress.presets import upstream
from tests.worker.conftest import IsolationFactory
from tests.worker.egress.inside import NODE, make, node_binds, told
from tests.worker.egress.packages import integrity, npm_package, npm_registry
from tests.worker.egress.world import Site, World

pytestmark = [pytest.mark.anyio, pytest.mark.system, pytest.mark.usefixtures("bwrap")]

NPM = f'export PATH={NODE}/bin:$PATH; npm() {{ node {NODE}/lib/node_modules/npm/bin/npm-cli.js "$@"; }}; '
HOST = "http://registry.test"


async def test_npm_installs_and_its_lock_file_names_the_registry_and_not_the_proxy(
    isolate: IsolationFactory, world: World
) -> None:
    site = Site(npm_registry(HOST))
    with site.serving() as port:
        world.place("registry.test", port)
        world.know(upstream("npm", HOST))
        inside = make(isolate, world, node_binds())
        inside.write("package.json", json.dumps({"name": "app", "dependencies": {"tiny": "^1.0.0"}}))
        first = await inside.run(NPM + "npm install && node -e 'console.log(require(\"tiny\"))'", "npm")
        lock = json.loads(inside.read("package-lock.json"))
        second = await inside.run(NPM + "rm -rf node_modules ~/.npm; npm ci && node -p 'require(\"tiny\")'", "npm")
        again = json.loads(inside.read("package-lock.json"))
    assert (first.exit_code, second.exit_code) == (0, 0), (told(first), told(second))
    assert b"hello from tiny" in first.stdout
    assert b"hello from tiny" in second.stdout
    assert lock["packages"]["node_modules/tiny"] == {
        "version": "1.0.0",
        "resolved": f"{HOST}/tiny/-/tiny-1.0.0.tgz",
        "integrity": integrity(npm_package()),
    }
    assert again == lock
    assert {one.method for one in site.asked} == {"GET"}
    assert {(one.preset, one.allowed, one.reason) for one in world.decisions} == {("npm", True, "registry")}
    assert world.wires.private() == []
