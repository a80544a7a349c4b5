"""Expiry and an operator's word end a session at once, on every edge of a run (A0-18, R-216, R-217, R-358)."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.app.host import App
from hostside.app.planning import RunWishes, plan_run, services_of
from hostside.config.workflow import parse_workflow
from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.spec import Tool
from hostside.worker.agent import AgentOutcome, AgentRuntime
from hostside.worker.claude import ClaudeRuntime
from hostside.worker.codex import CodexRuntime
from hostside.worker.run import RunWorker
from tests.support.agent_bench import fake_claude_in, settings
from tests.support.codex_runs import fake_codex
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world, open_host, status, work_held
from tests.support.host_world import HostWorld
from tests.support.tools import a_spec, a_tool, a_write_spec

pytestmark = [pytest.mark.anyio, pytest.mark.system]
LATER = timedelta(hours=25)
#: Ends a session, given its id and its run's.
End = Callable[[str, str], None]


class Clock:
    """The time of day as the host sees it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        """Now, and so much later."""
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    return a_held_world(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("host", "planning"):
        monkeypatch.setattr(f"hostside.app.{module}.utc_now", made)
    return made


@pytest.fixture
def app(world: HostWorld, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    with open_host(world, monkeypatch) as opened:
        yield opened


@pytest.fixture(params=["its time is over", "hostside sessions revoke", "hostside runs stop"])
def end(request: pytest.FixtureRequest, world: HostWorld, clock: Clock) -> Iterator[End]:
    """Each way to end a session. The host that a stop asks to end is this process, which goes on: only the token ends."""

    def revoke(session_id: str, _run_id: str) -> None:
        assert world.run("sessions", "revoke", session_id, "--json").json()["revoked"] is True

    def stop(_session_id: str, run_id: str) -> None:
        assert world.run("runs", "stop", run_id, "--seconds", "1", "--json").exit_code == 1
        assert asked == [signal.SIGTERM]

    def expire(_session_id: str, _run_id: str) -> None:
        clock.ahead = LATER

    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    yield {"hostside sessions revoke": revoke, "hostside runs stop": stop}.get(str(request.param), expire)
    signal.signal(signal.SIGTERM, before)


async def test_over_http_the_next_request_is_refused(app: App, end: End) -> None:
    codes: list[int | None] = []

    async def work(held: Held) -> AgentOutcome:
        session = held.task.gateway.session
        codes.append(await status(held))
        end(session.session_id, str(session.run_id))
        codes.append(await status(held))
        return DONE

    await work_held(app, "DEMO-1", HeldRuntime(work))
    assert codes == [200, 401]


def in_band(folder: Path) -> tuple[str, AgentRuntime, Path, list[JsonObject]]:
    calls: list[JsonObject] = [{"do": "calls", "many": [{"tool": name}]} for name in ("demo_get", "demo_write")]
    return "claude", ClaudeRuntime(), fake_claude_in(folder), [{"do": "init"}, *calls, {"do": "result"}]


def dynamic_tools(folder: Path) -> tuple[str, AgentRuntime, Path, list[JsonObject]]:
    calls: list[JsonObject] = []
    for number, name in enumerate(("demo_get", "demo_write"), start=1):
        calls += [{"call": {"id": number, "tool": name, "arguments": {}}}, {"answer": {"id": number}}]
    return "codex", CodexRuntime(), fake_codex(folder), [*calls, {"complete": {}}]


@pytest.mark.parametrize("agent", [in_band, dynamic_tools])
async def test_without_a_port_the_next_call_is_refused_and_nothing_is_done(
    app: App, world: HostWorld, end: End, agent: Callable[[Path], tuple[str, AgentRuntime, Path, list[JsonObject]]]
) -> None:
    kind, runtime, executable, steps = agent(world.folder)
    done: list[str] = []

    async def execute(_arguments: JsonObject, context: CallContext) -> ToolResult:
        done.append(context.receipt_id)
        return ToolResult(structured={"id": "x"})

    def when_a_call_ended(name: str, facts: Any) -> None:
        if name == "tool_call_finished" and facts["tool"] == "demo_get":
            end(facts["session_id"], facts["run_id"])

    tools: tuple[Tool, ...] = (a_tool(execute, spec=a_spec()), a_tool(execute, spec=a_write_spec()))
    app.hub.add(when_a_call_ended)
    with anyio.fail_after(60):
        plan = await plan_run(app, RunWishes(identifier="DEMO-1", agent="scripted", isolation="home"))
        prompt = f"---\nagent: {{max_turns: 1}}\n---\n{json.dumps(steps, indent=1)}"
        plan = replace(
            plan,
            runtime=runtime,
            agent=settings(kind, executable),
            workflow=parse_workflow(prompt.encode(), trusted=False),
            workspace_tools=lambda _git: tools,
        )
        report = await RunWorker(plan, services_of(app, lambda _name, _facts: None), app.hub).work()
    assert report.reason == "completed", report
    await app.receipts.flush()
    called = [(receipt["tool"], receipt["code"], receipt["effect"]) for receipt in world.receipts()]
    assert called == [("demo_get", None, "none"), ("demo_write", "session_closed", "none")]
    assert len(done) == 1
