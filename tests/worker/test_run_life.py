"""One run from its checks to its end: what comes before the agent, what is told, and what is left (R-230, R-336..R-343)."""

import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hostside.app.host import App
from hostside.config.workflow import workflow_digest
from hostside.core.canonical import JsonValue
from hostside.errors import FailureCode, ToolRefused
from hostside.trackers.file import FileTracker
from hostside.worker.agent import AgentOutcome
from tests.support.gateways import call, ok
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world, open_host, work_held
from tests.support.host_world import HostWorld, git

pytestmark = [pytest.mark.anyio, pytest.mark.system]
HOOKS = """---
hooks:
  after_create: 'echo after_create >> {log}; test ! -e {log}.fail'
  before_run: 'echo before_run >> {log}'
  after_run: 'echo after_run >> {log}; exit 9'
---
Work on it.
"""


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    return a_held_world(tmp_path)


@pytest.fixture
def app(world: HostWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    with open_host(world, monkeypatch) as opened:
        yield opened


class Told:
    """The events of a run, as a person would see them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, JsonValue]]] = []

    def __call__(self, name: str, facts: Mapping[str, JsonValue]) -> None:
        """Keep one."""
        self.events.append((name, dict(facts)))

    def named(self, name: str) -> list[dict[str, JsonValue]]:
        """The facts of every event of that name."""
        return [facts for event, facts in self.events if event == name]


async def at_once(_held: Held) -> AgentOutcome:
    return DONE


async def test_a_run_says_what_it_offers_and_under_which_snapshot_but_no_token(app: App) -> None:
    told, runtime = Told(), HeldRuntime(at_once)
    await work_held(app, "DEMO-1", runtime, tell=told)
    (held,) = runtime.seen
    session = held.task.gateway.session
    (opened,) = told.named("session_opened")
    assert (opened["registry_fingerprint"], opened["tools"], opened["session_id"]) == (
        session.registry.fingerprint,
        list(session.listed),
        session.session_id,
    )
    assert [name for name, _ in told.events] == [
        *("run_started", "issue_fetched", "session_opened", "agent_started"),
        *("edge_started", "edge_stopped", "run_finished"),
    ]
    assert held.token not in repr(told.events)
    (run,) = app.runs.list()
    await app.receipts.flush()
    assert held.token not in repr((app.runs.events(run.run_id), run, app.sessions.list()))


def no_credential(_world: HostWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_self: FileTracker) -> None:
        raise ToolRefused(
            FailureCode.MISSING_TRACKER_SECRET, "LINEAR_API_KEY is not set.", remedy="Set LINEAR_API_KEY."
        )

    monkeypatch.setattr(FileTracker, "check_credential", missing)


def a_foreign_checkout(world: HostWorld, _monkeypatch: pytest.MonkeyPatch) -> None:
    git(world.folder, "clone", "--quiet", str(world.folder / "seed"), str(world.workspace("DEMO-1")))


def a_link_in_its_place(world: HostWorld, _monkeypatch: pytest.MonkeyPatch) -> None:
    world.workspace("DEMO-1").parent.mkdir(mode=0o700)
    world.workspace("DEMO-1").symlink_to(world.folder / "seed")


def an_open_root(world: HostWorld, _monkeypatch: pytest.MonkeyPatch) -> None:
    world.workspace("DEMO-1").parent.mkdir()
    world.workspace("DEMO-1").parent.chmod(0o777)


def a_finished_issue(world: HostWorld, _monkeypatch: pytest.MonkeyPatch) -> None:
    text = world.tracker.read_text(encoding="utf-8").replace('"Todo"', '"Done"')
    world.tracker.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "reason", "exit_code"),
    [
        (no_credential, "missing_tracker_secret", 3),
        (a_foreign_checkout, "workspace_failed", 1),
        (a_link_in_its_place, "workspace_failed", 1),
        (an_open_root, "workspace_failed", 1),
        (a_finished_issue, "not_active", 3),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_what_is_not_as_it_must_be_ends_the_run_before_its_agent_starts(
    app: App, world: HostWorld, monkeypatch: pytest.MonkeyPatch, damage: Any, reason: str, exit_code: int
) -> None:
    told, runtime = Told(), HeldRuntime(at_once)
    damage(world, monkeypatch)
    report = await work_held(app, "DEMO-1", runtime, tell=told)
    assert (report.reason, report.exit_code, bool(report.remedy)) == (reason, exit_code, True)
    assert (runtime.seen, told.named("agent_started"), app.sessions.list()) == ([], [], ())


async def test_the_hooks_come_in_their_order_and_the_last_may_fail(app: App, world: HostWorld) -> None:
    log = trusted_hooks(app, world)
    seen: list[list[str]] = []

    async def work(_held: Held) -> AgentOutcome:
        seen.append(log.read_text().split())
        return DONE

    for _ in range(2):
        assert (await work_held(app, "DEMO-1", HeldRuntime(work))).state == "succeeded"
    first = ["after_create", "before_run"]
    assert seen == [first, [*first, "after_run", "before_run"]]
    assert log.read_text().split() == [*seen[1], "after_run"]


async def test_a_failed_after_create_leaves_no_checkout_and_is_due_again(app: App, world: HostWorld) -> None:
    log = trusted_hooks(app, world)
    Path(f"{log}.fail").touch()
    failed = await work_held(app, "DEMO-1", HeldRuntime(at_once))
    assert (failed.reason, world.workspace("DEMO-1").exists()) == ("hook_failed", False)
    Path(f"{log}.fail").unlink()
    assert (await work_held(app, "DEMO-1", HeldRuntime(at_once))).state == "succeeded"
    assert log.read_text().split() == ["after_create", "after_create", "before_run", "after_run"]


def trusted_hooks(app: App, world: HostWorld) -> Path:
    """Commit a workflow whose hooks write to a log, trust it, and return the log."""
    log = world.folder / "hooks.log"
    seed = world.folder / "seed"
    (seed / "WORKFLOW.md").write_text(HOOKS.format(log=log), encoding="utf-8")
    git(seed, "add", "--all")
    git(seed, "commit", "--quiet", "--message", "Workflow")
    git(seed, "push", "--quiet", str(world.origin), "main")
    digest = workflow_digest((seed / "WORKFLOW.md").read_bytes())
    app.trust.trust(digest, source="test", at=datetime.now(UTC))
    return log


async def test_only_the_tracker_that_the_workflow_selects_is_offered_and_touched(
    world: HostWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    shutil.copy(world.tracker, other)
    world.configure(f'[trackers.other]\nkind = "file"\npath = "{other}"\nstates = ["Todo", "Done"]\n')
    seed = world.folder / "seed"
    (seed / "WORKFLOW.md").write_text("---\ntracker: {name: other}\n---\nWork.\n", encoding="utf-8")
    git(seed, "add", "--all")
    git(seed, "commit", "--quiet", "--message", "Workflow")
    git(seed, "push", "--quiet", str(world.origin), "main")
    before = world.tracker.read_bytes()
    states: list[JsonValue] = []

    async def work(held: Held) -> AgentOutcome:
        states.append((await ok(held.task.gateway, "file_issue_states"))["states"])
        assert (await call(held.task.gateway, "file_issue_move", {"target_state": "Done"})).ok
        return DONE

    runtime = HeldRuntime(work)
    with open_host(world, monkeypatch) as app:
        await work_held(app, "DEMO-1", runtime)
    (held,) = runtime.seen
    tracker_tools = [name for name in held.task.gateway.session.listed if not name.startswith(("git_", "read_"))]
    assert [name for name in tracker_tools if "issue" in name] == [
        f"file_issue_{word}" for word in ("comment_add", "comment_update", "comments", "get", "move", "states")
    ]
    assert states == [["Todo", "Done"]]
    assert (world.tracker.read_bytes(), '"Done"' in other.read_text(encoding="utf-8")) == (before, True)
