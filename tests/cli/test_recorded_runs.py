"""`hostside runs`: nothing stale looks alive, and a run can be stopped from another process (R-356, R-358)."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime

import anyio
import pytest

from hostside.app.host import App
from hostside.app.stopping import stop_run
from hostside.store.runs import Run, RunState
from hostside.worker.process_identity import started_at
from tests.cli.conftest import CommandLine, keys_of

HOOK = "---\nhooks:\n  before_run: sleep 1000\n---\nWork.\n"


def _record(app: App, run_id: str, *, pid: int, ticks: int | None, state: RunState = RunState.RUNNING) -> None:
    app.runs.create(
        Run(
            run_id=run_id,
            kind="issue",
            state=state,
            agent="scripted",
            started_by="somebody",
            started_at=datetime.now(UTC),
            identifier="DEMO-1",
            pid=pid,
            pid_started_at=ticks,
        )
    )


def test_a_run_whose_host_is_gone_is_ended_before_anything_is_shown(hostside: CommandLine) -> None:
    with hostside.opened() as app:
        _record(app, "r-dead", pid=os.getpid(), ticks=1)
        _record(app, "r-live", pid=os.getpid(), ticks=started_at(os.getpid()))

    found = hostside("runs", "list", "--json")

    shown = [(run["run_id"], run["state"], run["reason"]) for run in found.json["runs"]]
    assert sorted(shown) == [("r-dead", "interrupted", "host_gone"), ("r-live", "running", None)]
    assert all(next(iter(run)) == "run_id" for run in found.json["runs"])
    assert found.err == "run r-dead was left over by a dead host; it is ended now and its token is dead\n"
    assert hostside("runs", "list", "--state", "running").out.splitlines()[1].split()[:3] == [
        "r-live",
        "running",
        "DEMO-1",
    ]


def test_a_run_is_shown_with_sessions_events_and_no_token(hostside: CommandLine) -> None:
    with hostside.opened() as app:
        _record(app, "r-1", pid=os.getpid(), ticks=started_at(os.getpid()))
        app.runs.note("r-1", "edge_started", {"url": "http://127.0.0.1:8001/mcp"}, at=datetime.now(UTC))

    shown = hostside("runs", "show", "r-1", "--json").json

    assert next(iter(shown)) == "run_id"
    more = {key: keys_of(shown[key]) for key in ("url", "sessions", "events", "acceptances")}
    assert more == {
        "url": None,
        "sessions": [],
        "events": [{"event_id": None, "at": None, "name": None, "facts": {"url": None}}],
        "acceptances": [],
    }
    assert shown["url"] == "http://127.0.0.1:8001/mcp"
    assert "http://127.0.0.1:8001/mcp" in hostside("runs", "show", "r-1").out


def test_stopping_a_run_that_is_over_or_whose_host_is_gone_leaves_other_processes_alone(hostside: CommandLine) -> None:
    with hostside.opened() as app:
        # The number is this test's own process; only the start time tells that it is another one.
        _record(app, "r-dead", pid=os.getpid(), ticks=1)
        _record(app, "r-over", pid=os.getpid(), ticks=started_at(os.getpid()), state=RunState.SUCCEEDED)

    dead, over = (hostside("runs", "stop", run_id, "--json") for run_id in ("r-dead", "r-over"))

    assert dead.json == {"ok": True, "run_id": "r-dead", "state": "interrupted", "signalled": False}
    assert over.json == {"ok": True, "run_id": "r-over", "state": "succeeded", "signalled": False}


def test_a_run_that_does_not_end_in_time_is_an_error_and_its_state_says_stopping(hostside: CommandLine) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        with hostside.opened() as app:
            _record(app, "r-1", pid=os.getpid(), ticks=started_at(os.getpid()))
        found = hostside("runs", "stop", "r-1", "--seconds", "1", "--json")
    finally:
        signal.signal(signal.SIGTERM, before)

    assert received == [signal.SIGTERM]
    assert (found.code, found.json["error"]["code"]) == (1, "timed_out")
    assert found.json["error"]["message"] == "run r-1 was asked to stop and is still stopping; its token is dead."


def test_a_process_that_got_the_number_of_a_runs_host_is_not_signalled(
    hostside: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the host ended, and its number was given away, just after the leftovers were looked for.
    monkeypatch.setattr("hostside.app.stopping.recover", lambda *_, **__: ())
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        with hostside.opened() as app:
            _record(app, "r-1", pid=os.getpid(), ticks=1)
            stopped = stop_run(app, "r-1", seconds=1)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert stopped is not None
    assert (received, stopped.signalled, stopped.run.state) == ([], False, RunState.STOPPING)


@pytest.mark.parametrize(
    ("words", "code"),
    [(("show", "r-none"), 1), (("stop", "r-none"), 1), (("list", "--state", "asleep"), 2)],
)
def test_an_unknown_run_or_state_is_an_error_with_a_remedy(
    hostside: CommandLine, words: tuple[str, ...], code: int
) -> None:
    found = hostside("runs", *words, "--json")

    assert (found.code, bool(found.json["error"]["remedy"])) == (code, True)


async def _until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.05)


def _is_running(hostside: CommandLine) -> bool:
    if not (hostside.world.state / "hostside.db").exists():
        return False
    with hostside.opened() as app:
        return any(
            event["name"] == "hook_started" for run in app.runs.live_runs() for event in app.runs.events(run.run_id)
        )


@pytest.fixture
def hook(hostside: CommandLine) -> tuple[str, ...]:
    """The words of a run that stays in its first hook until somebody ends it."""
    file = hostside.world.folder / "WORKFLOW.md"
    file.write_text(HOOK, encoding="utf-8")
    script = hostside.world.folder / "script.json"
    script.write_text("[]", encoding="utf-8")
    hostside.world.configure(f'[agent]\nkind = "scripted"\nscript = "{script}"\n')
    assert hostside("workflow", "trust", str(file)).code == 0
    return ("run", "DEMO-1", "--agent", "scripted", "--workflow", str(file))


@pytest.mark.system
def test_a_running_run_is_stopped_from_another_process_and_ends_cleanly(
    hostside: CommandLine, hook: tuple[str, ...]
) -> None:
    with hostside.started(*hook) as process:
        anyio.run(_until, lambda: _is_running(hostside))
        with hostside.opened() as app:
            (run,) = app.runs.live_runs()

        stopped = hostside.process("runs", "stop", run.run_id, "--json")

        assert stopped.json == {"ok": True, "run_id": run.run_id, "state": "cancelled", "signalled": True}
        assert process.wait(timeout=30) == 1
    with hostside.opened() as app:
        assert app.sessions.list(run_id=run.run_id, open_only=True) == ()
        assert stop_run(app, run.run_id) is not None


@pytest.mark.system
def test_after_the_host_was_killed_the_list_shows_the_run_as_interrupted(
    hostside: CommandLine, hook: tuple[str, ...]
) -> None:
    with hostside.started(*hook) as process:
        anyio.run(_until, lambda: _is_running(hostside))
        process.kill()
        process.wait(timeout=30)

        (run,) = hostside.process("runs", "list", "--json").json["runs"]

    assert (run["state"], run["reason"]) == ("interrupted", "host_gone")
