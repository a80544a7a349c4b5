"""Whole runs of a root host as another operating system user: whose all is, what it cannot reach, who is left (D8, D9)."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostside.worker.isolation_level import IsolationLevel, probe_levels
from hostside.worker.run_user_claim import end_processes, processes_of
from tests.support.clients import find_claude
from tests.support.user_worlds import RUN_USER, UserWorld, user_world
from tests.worker.test_agent_probe import documented, machine

pytestmark = pytest.mark.system
__all__ = ["machine"]
WORK = [
    {"tool": "write_file", "arguments": {"path": "new/note.txt", "content": "a note"}, "expect": "ok"},
    {"tool": "git_add", "arguments": {"paths": ["new/note.txt"]}, "expect": "ok"},
    {"tool": "git_commit", "arguments": {"message": "A note"}, "expect": "ok"},
]
WITHIN = 60.0


@pytest.fixture
def world() -> Iterator[UserWorld]:
    with user_world() as made:
        yield made
        end_processes(RUN_USER)


@pytest.fixture(params=["user", "bwrap"])
def level(request: pytest.FixtureRequest, world: UserWorld) -> str:
    found = probe_levels(RUN_USER).status(IsolationLevel(request.param))
    if not found.available:
        pytest.skip(f"isolation level {request.param} not available: {found.reason}")
    return str(request.param)


def owners(folder: Path) -> dict[int, list[str]]:
    """What is below `folder`, itself included, by the number of its owner."""
    found: dict[int, list[str]] = {}
    for path in (folder, *folder.rglob("*")):
        found.setdefault(path.lstat().st_uid, []).append(str(path))
    return found


def mode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, stat.S_IMODE(status.st_mode)


def until(condition: object, *, what: str) -> None:
    """Wait for a real condition; each look starts a process, which lets the scheduler work."""
    deadline = time.monotonic() + WITHIN
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        subprocess.run(["true"], check=True)


def agents_of(world: UserWorld) -> list[int]:
    """The numbers of the scripted agent's own processes."""
    found = []
    for pid in processes_of(RUN_USER):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"scripted_client.py\0" in command and not command.startswith(b"/usr/bin/bwrap\0"):
            found.append(pid)
    return found


def test_everything_of_a_run_is_its_users_and_nothing_of_the_host_can_be_read(level: str, world: UserWorld) -> None:
    canaries = [world.state / "canary", world.folder / "home" / ".netrc", world.folder / "canary"]
    for canary in canaries:
        canary.parent.mkdir(parents=True, exist_ok=True)
        canary.write_text("canary-0123456789", encoding="utf-8")
        canary.chmod(0o600)
    world.state.chmod(0o700)
    reads = "; ".join(f"cat {path} 2>/dev/null; head -c 1 {path}" for path in (*canaries, world.state / "hostside.db"))
    looks = f"ls {world.homes}; ls {world.folder / 'workspaces'}; ls {world.state}; ls {world.homes}/.locks"
    writes = f"touch {world.homes}/x {world.folder}/workspaces/x {world.state}/x {world.tracker}"
    probe = f"(echo $(id -u) $(id -G) $USER; {reads}; {looks}; {writes}; cat ~/../../*/home/*; true) > probe.out 2>/dev/null"
    detached = "setsid sh -c 'sleep 100000' >/dev/null 2>&1 </dev/null & true"
    workflow = world.workflow(after_create=probe, before_run=detached, after_run="echo after > ~/after; " + detached)
    world.follow(WORK)

    done = world.run("run", "DEMO-1", "--json", "--isolation", level, "--workflow", str(workflow))

    assert done.exit_code == 0, done.out + done.err
    report = done.json()
    assert (report["isolation"], report["commits"], report["receipts"]["verified"]) == (level, 1, True)
    workspace, home = world.workspace("DEMO-1"), world.homes / report["run_id"] / "home"
    said = (workspace / "probe.out").read_text(encoding="utf-8")
    assert said == (
        f"{RUN_USER.uid} {RUN_USER.gid} {RUN_USER.uid}\n" if level == "user" else "1000 1000 agent\nDEMO-1\n"
    )
    assert (home / "after").read_text(encoding="utf-8") == "after\n"
    assert set(owners(workspace)) | set(owners(home)) == {RUN_USER.uid}
    passages = [world.homes, home.parent, workspace.parent]
    assert [mode(path) for path in passages] == [(0, 0o711)] * 3
    assert [mode(home), mode(workspace), mode(world.state)] == [(RUN_USER.uid, 0o700)] * 2 + [(0, 0o700)]
    assert processes_of(RUN_USER) == ()


def test_at_level_user_a_second_run_of_the_same_user_is_refused_and_at_bwrap_it_works(
    level: str, world: UserWorld
) -> None:
    world.follow(WORK)
    plain = world.workflow(name="plain.md")
    waiting = world.workflow(name="waiting.md", before_run="touch ready; while [ ! -e go ]; do sleep 0.05; done")
    first = world.start("run", "DEMO-1", "--json", "--isolation", level, "--workflow", str(waiting))
    try:
        workspace = world.workspace("DEMO-1")
        until((workspace / "ready").exists, what="the first run did not come to its hook")

        second = world.run("run", "DEMO-2", "--json", "--isolation", level, "--workflow", str(plain))

        report = second.json()
        if level == "user":
            assert (second.exit_code, report["reason"], report["workspace"]) == (3, "run_user_busy", None)
            assert "another run has it" in report["detail"]
            # What the configuration alone decides is refused before there is a run.
            early = world.run("run", "DEMO-2", "--json", "--isolation", level)
            assert (early.exit_code, "is busy" in early.json()["error"]["message"]) == (2, True)
            assert not world.workspace("DEMO-2").exists()
        else:
            assert (second.exit_code, report["reason"]) == (0, "completed"), second.out
        (workspace / "go").touch()
        out, err = first.communicate(timeout=WITHIN)
        assert first.returncode == 0, out + err
    finally:
        first.kill()
        first.communicate()


def test_after_a_killed_host_recovery_ends_the_agent_and_the_next_run_whatever_else_was_left(
    level: str, world: UserWorld
) -> None:
    detached = "setsid sleep 100000 >/dev/null 2>&1 </dev/null & true"
    workflow = world.workflow(before_run=detached)
    world.follow([{"tool": "list_dir"}] * 500)
    host = world.start("run", "DEMO-1", "--json", "--isolation", level, "--workflow", str(workflow))
    try:
        until(lambda: _agent_is_recorded(world), what="the agent did not start")
        for pid in agents_of(world):
            os.kill(pid, signal.SIGSTOP)  # it would end by itself when its host does not answer
    finally:
        host.kill()
        host.communicate()
    if level == "user":
        assert agents_of(world) != []
    listed = world.run("runs", "list", "--json").json()["runs"]
    assert [(run["state"], run["reason"]) for run in listed] == [("interrupted", "host_gone")]
    until(lambda: agents_of(world) == [], what="the agent outlives recovery")

    world.follow(WORK)
    done = world.run("run", "DEMO-1", "--json", "--isolation", level, "--workflow", str(workflow))

    assert done.exit_code == 0, done.out + done.err
    assert processes_of(RUN_USER) == ()


def _agent_is_recorded(world: UserWorld) -> bool:
    runs = world.run("runs", "list", "--json").json()["runs"]
    if not runs or not agents_of(world):
        return False
    events = world.run("runs", "show", runs[-1]["run_id"], "--json").json()["events"]
    return any(event["name"] == "agent_started" for event in events)


def test_processes_that_are_no_runs_keep_a_run_at_level_user_from_starting(world: UserWorld) -> None:
    with subprocess.Popen(
        ["/usr/bin/sleep", "1000"], user=RUN_USER.uid, group=RUN_USER.gid, extra_groups=[], cwd="/", env={}
    ) as other:
        try:
            workflow = world.workflow()
            done = world.run("run", "DEMO-1", "--json", "--isolation", "user", "--workflow", str(workflow))
            report = done.json()
            assert (done.exit_code, report["reason"]) == (3, "run_user_busy")
            assert (str(other.pid) in report["detail"], f"pkill -KILL -u {RUN_USER.uid}" in report["remedy"]) == (
                True,
                True,
            )
            assert other.poll() is None
        finally:
            other.kill()


def test_doctor_says_for_each_level_what_the_configured_user_gets(world: UserWorld) -> None:
    found = {check["name"]: check for check in world.run("doctor", "--json").json()["checks"]}
    assert {name: found[name]["detail"] for name in ("isolation user",)} == {
        "isolation user": f"works · as {RUN_USER.uid}"
    }
    world.homes.mkdir(mode=0o700)
    closed = {check["name"]: check for check in world.run("doctor", "--json").json()["checks"]}["isolation"]
    assert closed["status"] == "fail"
    assert f"chmod o+x on {world.homes}" in closed["remedy"]


def test_in_an_agents_place_at_level_user_the_documented_residual_is_found_and_nothing_else(
    world: UserWorld, machine: object
) -> None:
    # Beside this machine's own processes and files, the probe would look at all of them.
    executable = find_claude().resolve()
    world.configure(f'executable = "{executable}"\n')
    config = world.config.read_text(encoding="utf-8").replace('kind = "scripted"', 'kind = "claude"')
    world.config.write_text(config, encoding="utf-8")
    around = machine("claude")  # type: ignore[operator]
    folder = str(world.folder)
    # The machine's own folders on the way to what is shown are private to its root.
    # Those of the checkout are shown as they are, so another user must be able to walk through them.
    root = Path(__file__).resolve().parents[2]
    closed = [
        part for part in (*executable.parents, root) if part.is_relative_to(root) and not part.stat().st_mode & 0o001
    ]
    if closed:
        pytest.skip(f"{closed[0]} is closed to other users, so no other user can start the agent there")
    made = {path for path in (*executable.parents[2:], *world.folder.parents) if not path.is_relative_to(root)}
    made -= {Path("/"), Path("/tmp"), Path("/usr")}
    ways = [word for path in sorted(made) for word in ("--chmod", "0755", str(path))]
    command = [*around[:-1], "--bind", folder, folder, *ways, "--", sys.executable, "-B", "-m", "hostside"]
    environment = world.environment({"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")})
    done = subprocess.run(
        [*command, "doctor", "--as-agent", "claude", "--isolation", "user", "--json"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1, done.stderr + done.stdout
    kinds = {check["name"].split()[1] for check in json.loads(done.stdout)["checks"] if check["status"] == "fail"}
    always, all_known = documented(IsolationLevel.USER)
    assert (always - kinds, kinds - all_known) == (set(), set())
