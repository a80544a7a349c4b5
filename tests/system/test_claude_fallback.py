"""A run whose agent does not know the port-free edge goes on over HTTP, in a session of its own, and says so (D24)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import select

from hostside.app.host import App
from hostside.app.planning import RunWishes, plan_run, runtime_of, services_of
from hostside.store.tables import sessions
from hostside.worker.run import RunWorker
from hostside.worker.run_plan import RunReport
from tests.support.agent_bench import fake_claude_in
from tests.support.host_world import HostWorld, make_world

pytestmark = [pytest.mark.anyio, pytest.mark.system]

STEPS = [
    {"do": "init"},
    {"do": "call", "tool": "file_issue_move", "arguments": {"target_state": "In Review"}},
    {"do": "result"},
]


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    made = make_world(tmp_path)
    (tmp_path / "steps.json").write_text("[]", "utf-8")
    made.configure(f'isolation = "home"\n[agent]\nkind = "scripted"\nscript = "{tmp_path / "steps.json"}"\n')
    front = "---\ntracker: {kind: file, active_states: [Todo], terminal_states: [Done]}\n---\n"
    (tmp_path / "WORKFLOW.md").write_text(front + json.dumps(STEPS), "utf-8")
    return made


@pytest.fixture
def app(world: HostWorld) -> Iterator[App]:
    with App.open(environment=world.environment()) as opened:
        yield opened


async def work(app: App, world: HostWorld, edge: str, behaviour: str) -> RunReport:
    """Run the stand-in for Claude Code, which is a script: the discovery of agents only takes native programs."""
    plan = await plan_run(app, RunWishes(identifier="DEMO-1", workflow_file=world.folder / "WORKFLOW.md"))
    agent = replace(
        plan.agent, kind="claude", executable=fake_claude_in(world.folder), model=behaviour, start_timeout_seconds=5.0
    )
    plan = replace(plan, agent=agent, runtime=runtime_of("claude", None, edge=edge), agent_binds=())
    with anyio.fail_after(60):
        return await RunWorker(plan, services_of(app, lambda _name, _facts: None), app.hub).work()


def opened_sessions(app: App) -> list[tuple[Any, ...]]:
    """Attempt, edge and whether it is revoked, of each session."""
    with app.database.read() as connection:
        rows = connection.execute(select(sessions).order_by(sessions.c.attempt)).all()
    return [(row.attempt, row.edge, row.revoked_at is not None) for row in rows]


async def test_a_refused_handshake_leads_to_a_second_session_over_http(app: App, world: HostWorld) -> None:
    report = await work(app, world, "auto", "rejects")
    assert (report.ok, report.reason, report.edge, report.state_after) == (True, "completed", "run-http", "In Review")
    run = app.runs.show(report.run_id)
    assert run is not None
    assert run.edge == "run-http"
    assert opened_sessions(app) == [(1, "inband", True), (2, "run-http", True)]
    told = [event["facts"] for event in app.runs.events(report.run_id) if event["name"] == "edge_fallback"]
    reason = {"reason": "edge_failed", "detail": "the agent refused the handshake: no such control request"}
    assert told == [{"from": "inband", "to": "run-http", **reason}]
    assert [(row["tool"], row["edge"], row["code"]) for row in world.receipts()] == [
        ("file_issue_move", "run-http", None)
    ]


async def test_an_agent_that_knows_it_stays_in_band(app: App, world: HostWorld) -> None:
    report = await work(app, world, "auto", "willing")
    assert (report.ok, report.edge, opened_sessions(app)) == (True, "inband", [(1, "inband", True)])
    assert [row["edge"] for row in world.receipts()] == ["inband"]


async def test_where_the_edge_is_configured_there_is_no_other(app: App, world: HostWorld) -> None:
    report = await work(app, world, "inband", "rejects")
    assert (report.ok, report.reason, report.edge, report.exit_code) == (False, "edge_failed", "inband", 1)
    assert opened_sessions(app) == [(1, "inband", True)]
    other = await work(app, world, "http", "rejects")
    assert (other.ok, other.edge) == (True, "run-http")
