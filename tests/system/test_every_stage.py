"""A run that is stopped or killed at any stage of its life leaves no process, no open port, no live token and no
half-made file (AX-54, R-219, R-341)."""

import json
import os
import signal
import sqlite3
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from hostside.app.stopping import stop_run
from hostside.worker.isolation_level import IsolationLevel, probe_levels
from tests.support.held_runs import open_host
from tests.support.host_world import HostWorld, make_world
from tests.system.test_killed_host import listening, live_tokens, processes_of, wait_until_gone

pytestmark = pytest.mark.system
WITHIN = 60.0
#: Long enough to be struck in, short enough to be waited for: the hook after a run is not cut off by a stop.
HOOK_MS = 8_000
CALLS = 5_000
#: Stage -> the hook that holds the run there; the others are seen as they pass.
HOOKS = {"preparing": "after_create", "before the agent": "before_run", "finishing": "after_run"}
STAGES = ("preparing", "before the agent", "agent starting", "running", "finishing")
CASES = [(level, stage, end) for level in ("bwrap", "home") for stage in STAGES for end in ("stop", "kill")]


@pytest.fixture
def level(request: pytest.FixtureRequest) -> str:
    found = probe_levels().status(IsolationLevel(request.param))
    if not found.available:
        pytest.skip(f"isolation level {request.param} not available: {found.reason}")
    return str(request.param)


class StagedRun:
    """One run of the scripted agent that comes to a stage and stays there, or is there for long enough."""

    def __init__(self, folder: Path, stage: str, level: str) -> None:
        self.world = make_world(folder)
        self.stage = stage
        self._seconds = f"100000.{uuid.uuid4().int}"
        script = [{"tool": "file_issue_get"}] * (CALLS if stage == "running" else 1)
        (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
        self.world.configure(f'[agent]\nkind = "scripted"\nscript = "{folder / "script.json"}"\n')
        hook = f"  {HOOKS[stage]}: sleep {self._seconds}\n" if stage in HOOKS else ""
        workflow = folder / "WORKFLOW.md"
        workflow.write_text(f"---\nhooks:\n  timeout_ms: {HOOK_MS}\n{hook}---\nWork.\n", encoding="utf-8")
        assert self.world.run("workflow", "trust", str(workflow)).exit_code == 0
        self.process = subprocess.Popen(
            self.world.command("run", "DEMO-1", "--json", "--isolation", level, "--workflow", str(workflow)),
            env=self.world.environment(),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def sleeping(self) -> bool:
        """Whether the hook's own process, or any that it left, lives."""
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if command.startswith(b"sleep\0") and self._seconds.encode() in command:
                return True
        return False

    def there(self) -> bool:
        """Whether the run is in its stage."""
        if self.process.poll() is not None:
            pytest.fail(f"the run ended before {self.stage}: {self.process.communicate()}")
        if self.stage in HOOKS:
            return self.sleeping()
        try:
            return bool(self.world.events("agent_started")) and (
                self.stage == "agent starting" or len(self.world.receipts()) > 2
            )
        except sqlite3.OperationalError:  # the store is being made
            return False


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WITHIN):
        while not condition():
            await anyio.sleep(0.02)


def files_of(world: HostWorld) -> set[str]:
    """What a run may leave half-made: files of a preparation, sockets, anything in a run's home that holds a token."""
    found = set()
    for folder in (world.state, world.folder / "workspaces"):
        for path in folder.rglob("*"):
            half_made = path.name.startswith(".new-") or path.is_socket() or path.is_fifo()
            if half_made or (path.is_file() and b"hst_" in path.read_bytes()):
                found.add(str(path))
    return found


@pytest.mark.parametrize(("level", "stage", "end"), CASES, indirect=["level"])
def test_whatever_the_stage_a_stop_or_a_kill_leaves_nothing_behind(
    stage: str, end: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StagedRun(tmp_path, stage, level)
    world = run.world
    try:
        anyio.run(until, run.there)
        if end == "kill":
            os.kill(run.process.pid, signal.SIGKILL)
        else:
            with open_host(world, monkeypatch) as app:  # in this process: a command would come when the stage is over
                stopped = stop_run(app, app.runs.live_runs()[0].run_id)
            assert stopped is not None
            assert (stopped.signalled, stopped.ended) == (True, True)
    finally:
        run.process.kill() if end == "kill" else run.process.terminate()
        run.process.communicate(timeout=WITHIN)
    (recorded,) = world.run("runs", "list", "--json").json()["runs"]
    assert recorded["state"] == ("interrupted" if end == "kill" else "cancelled")
    wait_until_gone(world)
    assert (processes_of(world), run.sleeping()) == ([], False)
    assert (live_tokens(world), listening(world), world.open_calls()) == (0, [], 0)
    (tmp_path / "script.json").write_text("[]", encoding="utf-8")
    again = world.run("run", "DEMO-1", "--json", "--isolation", level)
    assert again.exit_code == 0, again.err + again.out
    assert files_of(world) == set()
