"""Both agents, driven by a stub model, as another operating system user than their host (D8, D9)."""

from collections.abc import Iterator

import pytest

from hostside.worker.isolation_level import IsolationLevel, probe_levels
from hostside.worker.run_user_claim import end_processes, processes_of
from tests.support.agent_script import Call, Say, Script
from tests.support.clients import find_claude, find_codex
from tests.support.user_worlds import RUN_USER, UserWorld, user_world
from tests.system.test_twin_runs import claude_model, codex_model

pytestmark = [pytest.mark.anyio, pytest.mark.system]
MODEL_KEY = "canary-model-key-0123456789"


@pytest.fixture(params=["user", "bwrap"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(level: str) -> Iterator[UserWorld]:
    # Codex's own sandbox, which it uses at level `user`, does not start from a home below /tmp.
    with user_world(below="/var/tmp" if level == "user" else None) as made:
        yield made
        end_processes(RUN_USER)


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_an_agents_own_shell_is_the_runs_user_and_reads_nothing_of_the_host(
    agent: str, level: str, world: UserWorld
) -> None:
    found = probe_levels(RUN_USER).status(IsolationLevel(level))
    if not found.available:
        pytest.skip(f"isolation level {level} not available: {found.reason}")
    canary = world.state / "canary"
    canary.parent.mkdir(mode=0o700, exist_ok=True)
    canary.write_text("canary-0123456789", encoding="utf-8")
    probe = f"(id -u; cat {canary} {world.state}/hostside.db {world.tracker}x) > probe.out 2>/dev/null; echo probed"
    shell = (
        Call("Bash", {"command": probe}, native=True)
        if agent == "claude"
        else Call("exec_command", {"cmd": probe, "yield_time_ms": 30_000}, native=True)
    )
    play: Script = [[Call("file_issue_get")], [shell], [Call("file_issue_move", {"target_state": "Done"})], Say("done")]
    make = claude_model if agent == "claude" else codex_model
    executable = find_claude() if agent == "claude" else find_codex()
    workflow = world.workflow()
    config = world.config.read_text(encoding="utf-8").replace('kind = "scripted"', f'kind = "{agent}"')
    world.config.write_text(config, encoding="utf-8")
    async with make(play) as model:
        world.configure(
            f'executable = "{executable}"\nbase_url = "{model.base_url}"\nkey = "env:THE_MODEL_KEY"\n'
            + ('model = "gpt-5.5"\n' if agent == "codex" else "")
        )
        done = await world.run_async(
            "run",
            "DEMO-1",
            "--json",
            "--isolation",
            level,
            "--workflow",
            str(workflow),
            extra={"THE_MODEL_KEY": MODEL_KEY},
        )
    assert done.exit_code == 0, done.err + done.out
    report = done.json()
    workspace, home = world.workspace("DEMO-1"), world.homes / report["run_id"] / "home"
    uid = str(RUN_USER.uid) if level == "user" else "1000"
    assert (workspace / "probe.out").read_text(encoding="utf-8") == f"{uid}\n"
    owners = {path.lstat().st_uid for folder in (workspace, home) for path in (folder, *folder.rglob("*"))}
    assert (owners, report["issue"]["state_after"]) == ({RUN_USER.uid}, "Done")
    assert processes_of(RUN_USER) == ()
