"""From inside a sandbox: what is not listed is refused at once, and nothing but the proxy is there to be asked."""

import json

import pytest

from hostside.worker.egress.presets import upstream
from tests.worker.conftest import IsolationFactory
from tests.worker.egress.inside import make, told
from tests.worker.egress.world import Page, Site, World

pytestmark = [pytest.mark.anyio, pytest.mark.system, pytest.mark.usefixtures("bwrap")]

# Standard library alone: this is what any tool inside can do.
TRY = """
import http.client, json, socket, time
said = {}
def ask(name, method, target, body=None):
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", 8001, timeout=10)
    connection.putrequest(method, target, skip_host=True)
    connection.putheader("Host", "x")
    connection.putheader("X-Canary", "c4n4ry-header")
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    if body:
        connection.send(body)
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    said[name] = [answer.status, text, round((time.monotonic() - began) * 1000)]
ask("warm", "GET", "http://warm.test/")
for host in ("api.example.com", "127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[fd00:ec2::254]", "localhost"):
    ask("tunnel " + host, "CONNECT", host + ":443")
    ask("page " + host, "GET", "http://" + host + "/latest")
ask("preset", "GET", "/registry/pypi/simple/six/")
ask("post", "POST", "/registry/npm/tiny", b"stolen")
ask("get", "GET", "/registry/npm/tiny?c4n4ry-path")
ask("private", "CONNECT", "private.test:443")
for name, address in {"direct": ("151.101.7.1", 80), "host": ("127.0.0.1", 8787), "metadata": ("169.254.169.254", 80)}.items():
    try:
        socket.create_connection(address, 2)
        said["socket " + name] = "connected"
    except OSError as error:
        said["socket " + name] = type(error).__name__
try:
    said["name"] = socket.getaddrinfo("registry.test", 80)
except OSError:
    said["name"] = "not found"
print(json.dumps(said))
"""


async def test_everything_that_is_not_listed_is_refused_at_once_by_name(
    isolate: IsolationFactory, world: World
) -> None:
    site = Site({"/tiny": Page(body=b"{}", content_type="application/json")})
    with site.serving() as port:
        world.place("registry.test", port)
        world.names.answers["private.test"] = [["10.0.0.1", "127.0.0.1", "::1"]]
        world.know(upstream("npm", "http://registry.test"))
        inside = make(isolate, world)
        inside.write("try.py", TRY)
        done = await inside.run("/usr/bin/python3 try.py", "npm", "private.test:443")
    assert done.exit_code == 0, told(done)
    said = json.loads(done.stdout)
    refused = {name: value for name, value in said.items() if name.startswith(("tunnel", "page", "preset", "post"))}
    assert {name: value[2] for name, value in refused.items() if value[2] >= 100} == {}
    assert {value[0] for name, value in refused.items() if name != "post"} == {403}
    unnamed = [name for name, value in refused.items() if name != "post" and "in hostside.toml" not in value[1]]
    assert unnamed == []
    assert (said["post"][0], said["get"][0], said["private"][0]) == (405, 200, 403)
    assert [said[f"socket {name}"] for name in ("direct", "host", "metadata")] == [
        "OSError",
        "ConnectionRefusedError",
        "OSError",
    ]
    assert said["name"] == "not found"
    # At the host's connector: one connection in all, to the listed registry.
    assert (world.wires.connected, world.names.looked_up) == (["151.101.7.1:80"], ["registry.test", "private.test"])
    assert [(one.method, one.path) for one in site.asked] == [("GET", "/tiny?c4n4ry-path")]
    got = next(one for one in world.decisions if one.allowed)
    assert (got.path, dict(got.headers)["x-canary"]) == ("/registry/npm/tiny?c4n4ry-path", "c4n4ry-header")
