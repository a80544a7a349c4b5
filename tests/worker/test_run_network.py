"""Processes of a run and their way out: each has its own, under the policy of its phase, as the whole run wires them (D25)."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from hostside.core.canonical import JsonValue
from hostside.core.redaction import Redactor
from hostside.errors import ConfigError
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.presets import upstream
from hostside.worker.isolation import MAX_LISTENERS, RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.network import (
    NOTHING_LISTED,
    PROXY_ADDRESS,
    NetworkPlan,
    RunNetworks,
    describe,
    furnish_home,
    open_networks,
)
from hostside.worker.process import Completed
from hostside.worker.sandbox_args import INNER_HOME
from tests.worker.conftest import OTHER_USER, IsolationFactory
from tests.worker.egress.inside import NODE, node_binds, told
from tests.worker.egress.packages import integrity, npm_package, npm_registry
from tests.worker.egress.world import Page, Site

pytestmark = [pytest.mark.anyio, pytest.mark.system, pytest.mark.usefixtures("bwrap")]

PROXY = f"http://{PROXY_ADDRESS[0]}:{PROXY_ADDRESS[1]}"
SECRET = "registry-t0ken-0123456789"
NPM = f'export PATH={NODE}/bin:$PATH; npm() {{ node {NODE}/lib/node_modules/npm/bin/npm-cli.js "$@"; }}; '


@dataclass(slots=True)
class Run:
    """Both networks of one run, and what was told of them."""

    plan: NetworkPlan = NOTHING_LISTED
    told: list[tuple[str, Mapping[str, JsonValue]]] = field(default_factory=list)
    networks: RunNetworks = field(init=False)

    def __post_init__(self) -> None:
        self.networks = open_networks(
            self.plan, event=lambda name, facts: self.told.append((name, facts)), redactor=Redactor([SECRET])
        )

    def decisions(self) -> list[tuple[object, ...]]:
        names = ("policy", "method", "host", "allowed", "reason")
        return [tuple(facts[name] for name in names) for event, facts in self.told if event == "network_decision"]


def plan(setup: Sequence[str], agent: Sequence[str] = (), *, port: int = 9, token: str | None = None) -> NetworkPlan:
    private = [f"127.0.0.1:{port}"]
    return NetworkPlan(
        setup=EgressPolicy.parse(setup, name="network.setup", private=private),
        agent=EgressPolicy.parse(agent, name="network.agent", private=private),
        upstreams={"npm": upstream("npm", f"http://127.0.0.1:{port}/")},
        tokens={} if token is None else {"npm": token},
    )


async def sh(isolation: RunIsolation, script: str, *, asks_network: bool = True) -> Completed:
    command = ["bash", "-ec", script]
    return await isolation.run(command, timeout_seconds=60, output_limit_bytes=400_000, asks_network=asks_network)


async def test_each_phase_reaches_what_its_own_policy_lists_and_the_other_is_refused_by_name(
    isolate: IsolationFactory,
) -> None:
    site = Site({"/tiny": Page(body=b"the document", content_type="text/plain")})
    with site.serving() as port:
        run = Run(plan(["npm"], port=port, token=SECRET))
        ask = f"curl -sS -w ' %{{http_code}}' {PROXY}/registry/npm/tiny"
        setup = await sh(isolate(IsolationLevel.BWRAP, network=run.networks.setup), ask)
        agent = await sh(isolate(IsolationLevel.BWRAP, network=run.networks.agent), ask)
    assert (told(setup), setup.timed_out) == ((0, "the document 200"), False)
    assert agent.stdout.endswith(b" 403")
    assert json.loads(agent.stdout.removesuffix(b" 403")) == {
        "error": 'hostside: npm is not in network.agent. To allow it: add "npm" to [network] agent in hostside.toml.',
        "code": "preset_not_listed",
    }
    assert [(one.path, one.headers.get("authorization")) for one in site.asked] == [("/tiny", f"Bearer {SECRET}")]
    assert run.decisions() == [
        ("network.setup", "GET", "127.0.0.1", True, "registry"),
        ("network.agent", "GET", "", False, "preset_not_listed"),
    ]
    assert SECRET not in json.dumps([facts for _, facts in run.told])


async def test_where_nothing_is_listed_a_process_is_refused_at_once_and_told_the_line(
    isolate: IsolationFactory,
) -> None:
    run = Run()
    isolation = isolate(IsolationLevel.BWRAP, network=run.networks.agent)
    with anyio.fail_after(20):
        done = await sh(isolation, "curl -sS http://api.example.com/x; curl -sS https://api.example.com/x 2>&1 || true")
    line = 'To allow it: add "api.example.com:{}" to [network] agent in hostside.toml.'
    assert f"hostside: api.example.com:80 is not in network.agent. {line.format(80)}" in done.stdout.decode()
    assert "403" in done.stdout.decode()
    assert run.decisions() == [
        ("network.agent", "GET", "api.example.com", False, "not_listed"),
        ("network.agent", "CONNECT", "api.example.com", False, "not_listed"),
    ]


async def test_two_processes_at_once_have_a_way_out_each_and_it_ends_with_its_process(
    isolate: IsolationFactory,
) -> None:
    run = Run()
    isolation = isolate(IsolationLevel.BWRAP, network=run.networks.agent)
    done: dict[str, Completed] = {}

    async def asking(name: str) -> None:
        done[name] = await sh(isolation, f"curl -sS -o /dev/null http://{name}.example/")

    before = sockets()
    async with anyio.create_task_group() as both:
        both.start_soon(asking, "one")
        both.start_soon(asking, "two")
    with isolation.prepare(listeners=2) as launch:
        child = await isolation.spawn(["sleep", "100"], launch=launch)
    handed_out, addresses = child.listeners, child.listener_addresses
    for listener in handed_out:
        listener.close()
    await child.aclose()
    assert {name: told(one) for name, one in done.items()} == {"one": (0, ""), "two": (0, "")}
    assert (len(handed_out), addresses) == (2, (("127.0.0.1", 8001), ("127.0.0.1", 8002)))
    assert {row[2] for row in run.decisions()} == {"one.example", "two.example"}
    assert sockets() == before


def sockets() -> int:
    """How many sockets this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


async def test_a_process_that_asks_for_nothing_gets_a_way_out_only_where_something_is_listed(
    isolate: IsolationFactory,
) -> None:
    run = Run(plan(["npm"]))
    setup, agent = (
        isolate(IsolationLevel.BWRAP, network=network) for network in (run.networks.setup, run.networks.agent)
    )
    script = "echo ${HTTP_PROXY-none}; awk 'NR>1 && $4==\"0A\" {print $2}' /proc/net/tcp"
    port = f"0100007F:{PROXY_ADDRESS[1]:04X}"
    assert [told(await sh(one, script, asks_network=False)) for one in (setup, agent)] == [
        (0, f"{PROXY}\n{port}\n"),
        (0, "none\n"),
    ]
    assert told(await sh(agent, script)) == (0, f"{PROXY}\n{port}\n")


@pytest.mark.parametrize("level", [IsolationLevel.USER, IsolationLevel.HOME])
async def test_at_a_level_without_a_network_of_its_own_no_proxy_is_set(
    level: IsolationLevel, isolate: IsolationFactory
) -> None:
    user = OTHER_USER if level is IsolationLevel.USER else None
    if user is not None and os.geteuid() != 0:
        pytest.skip("starting processes as another user needs root")
    isolation = isolate(level, network=Run().networks.agent, user=user)
    assert told(await sh(isolation, "env | grep -ci proxy || true")) == (0, "0\n")


async def test_what_a_process_is_given_of_its_own_stands_above_the_networks_variables(
    isolate: IsolationFactory,
) -> None:
    isolation = isolate(IsolationLevel.BWRAP, network=Run().networks.agent)
    done = await isolation.run(
        ["sh", "-c", "echo $NO_PROXY $no_proxy"],
        extras={"NO_PROXY": "127.0.0.1"},
        timeout_seconds=20,
        output_limit_bytes=1_000,
    )
    assert told(done) == (0, "127.0.0.1 127.0.0.1,localhost,::1\n")


async def test_npm_installs_from_a_lock_file_of_a_registry_with_a_port_and_the_lock_file_stays(
    isolate: IsolationFactory,
) -> None:
    pages: dict[str, Page] = {}
    with Site(pages).serving() as port:
        host = f"http://127.0.0.1:{port}"
        pages.update(npm_registry(host))
        run = Run(plan(["npm"], port=port))
        isolation = isolate(IsolationLevel.BWRAP, network=run.networks.setup, ro_binds=node_binds())
        lock = npm_project(isolation.workspace, host)
        done = await sh(isolation, NPM + "npm ci && node -p 'require(\"tiny\")'")
    assert done.exit_code == 0, told(done)
    assert b"hello from tiny" in done.stdout
    assert (isolation.workspace / "package-lock.json").read_text() == lock
    assert {row[3:] for row in run.decisions()} == {(True, "registry")}


def npm_project(folder: Path, host: str) -> str:
    """A project with one dependency; the text of its lock file."""
    needs = {"name": "app", "version": "1.0.0", "dependencies": {"tiny": "^1.0.0"}}
    tiny = {
        "version": "1.0.0",
        "resolved": f"{host}/tiny/-/tiny-1.0.0.tgz",
        "integrity": integrity(npm_package()),
    }
    (folder / "package.json").write_text(json.dumps(needs))
    lock = {"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": True}
    text = json.dumps({**lock, "packages": {"": needs, "node_modules/tiny": tiny}}, indent=2)
    (folder / "package-lock.json").write_text(text)
    return text


async def test_a_proxy_that_fails_lets_nothing_out_and_the_run_is_told(
    isolate: IsolationFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("quotes what was sent")

    monkeypatch.setattr("hostside.worker.network.EgressProxy", broken)
    run = Run()
    done = await sh(
        isolate(IsolationLevel.BWRAP, network=run.networks.agent), "curl -sS http://a.example/ 2>&1 || true"
    )
    assert re.search(r"refused|reset|connect|Empty reply", done.stdout.decode()), told(done)
    assert run.told == [("network_failed", {"policy": "network.agent", "error": "OSError"})]


def test_the_proxys_port_lies_beyond_those_that_a_process_can_be_given(isolate: IsolationFactory) -> None:
    with isolate(IsolationLevel.BWRAP).prepare(listeners=MAX_LISTENERS) as launch:
        assert launch.addresses[-1][1] == PROXY_ADDRESS[1] - 1


def test_a_listed_preset_whose_registry_is_not_known_is_no_plan() -> None:
    with pytest.raises(ConfigError, match="the registry of the preset pypi is not known"):
        plan(["npm", "pypi"])


def test_the_record_names_both_policies_or_that_the_network_is_the_machines() -> None:
    assert [describe(one) for one in (NOTHING_LISTED, plan(["npm"], ["a.example:443", "npm"]), None)] == [
        "setup: none · agent: none",
        "setup: npm · agent: npm, a.example:443",
        "shared",
    ]


def test_a_home_that_a_process_may_have_been_in_is_not_furnished(folder: Path) -> None:
    home, elsewhere = folder / "home", folder / "elsewhere"
    for path in (home, elsewhere):
        path.mkdir(mode=0o700)
    (home / ".cargo").mkdir()
    (home / ".cargo" / "config.toml").symlink_to(elsewhere / "config.toml")
    with pytest.raises(FileExistsError):
        furnish_home(home, {".cargo/config.toml": b"[source]"}, None)
    assert list(elsewhere.iterdir()) == []


def test_the_files_of_a_home_are_its_users_and_nobody_elses(folder: Path) -> None:
    user = OTHER_USER if os.geteuid() == 0 else None
    home = folder / "home"
    home.mkdir(mode=0o700)
    _, files = Run(plan(["npm"])).networks.agent.configuration(INNER_HOME)
    furnish_home(home, files, user)
    made = list(home.rglob("*"))
    assert {str(path.relative_to(home)) for path in made if path.is_file()} == set(files)
    assert {path.stat().st_uid for path in made} == {os.geteuid() if user is None else user.uid}
    assert {path.stat().st_mode & 0o077 for path in made if path.is_dir()} == {0}


def test_no_variable_of_the_network_is_taken_away_by_the_environment_contract() -> None:
    variables, _ = Run(plan(["npm"])).networks.agent.configuration(INNER_HOME)
    assert variables.items() <= EnvironmentSource(base={}).build(home=INNER_HOME, extras=variables).items()
