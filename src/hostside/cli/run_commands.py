"""`hostside demo` and `hostside run`."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import uvloop

from hostside.app.host import App, new_id
from hostside.app.planning import (
    RunWishes,
    demo_settings,
    isolation_level,
    isolation_maker,
    plan_run,
    services_of,
)
from hostside.cli.output import note, plain, print_json, say
from hostside.cli.progress import CallLines, summary
from hostside.cli.recorded_run_commands import end_leftovers
from hostside.config.host import load_settings
from hostside.config.paths import host_paths, make_private
from hostside.core.canonical import JsonValue
from hostside.worker.demo_world import IDENTIFIER, STATES, TARGET_STATE, build
from hostside.worker.network import describe
from hostside.worker.run import RunWorker
from hostside.worker.run_plan import RunPlan, RunReport


class RunLines:
    """Shows a run's own events to a person, or nothing with `--json`."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._refused: set[tuple[JsonValue, ...]] = set()

    def write(self, line: str) -> None:
        """Print a line of the run."""
        if not self.quiet:
            say(line)

    def tell(self, name: str, facts: Mapping[str, JsonValue]) -> None:
        """Show the events that a person waits for."""
        if self.quiet:
            return
        if name == "issue_fetched":
            say(plain(f'issue {facts["identifier"]} "{str(facts["title"])[:200]}"   {facts["state"]}'))
            say()
        elif name == "session_opened":
            self._tools(facts)
        elif name == "workflow_notices" and isinstance(facts["notices"], list):
            for notice in facts["notices"]:
                note(plain(f"WORKFLOW.md: {notice}"))
        elif name == "edge_fallback":
            note(plain(f"edge {facts['from']} failed ({facts['detail']}); going on over {facts['to']}"))
        elif name == "hook_started":
            note(plain(f"hook {facts['hook']} ..."))
        elif name == "network_decision" and not facts["allowed"]:
            self._not_reached(facts)

    def _not_reached(self, facts: Mapping[str, JsonValue]) -> None:
        what = f"{facts['host']}:{facts['port']}" if facts["host"] else facts["preset"] or facts["path"]
        refused = (what, facts["policy"], facts["reason"])
        if refused not in self._refused:  # a client asks again and again
            self._refused.add(refused)
            note(plain(f"network: {what} refused by {facts['policy']} ({facts['reason']})"))

    def _tools(self, facts: Mapping[str, JsonValue]) -> None:
        tools, withheld = facts["tools"], facts["withheld"]
        assert isinstance(tools, list)
        assert isinstance(withheld, list)
        missing = ", ".join(f"{item['name']} ({item['blocker']})" for item in withheld if isinstance(item, dict))
        note(plain(f"tools  {len(tools)} offered" + (f" · {len(withheld)} withheld: {missing}" if missing else "")))


async def work(app: App, plan: RunPlan, lines: RunLines) -> RunReport:
    """Run a plan. Ctrl-C once ends the turn and cleans up; a second time kills."""
    task = asyncio.ensure_future(RunWorker(plan, services_of(app, lines.tell), app.hub).work())
    stops = 0

    def stop() -> None:
        nonlocal stops
        stops += 1
        if stops > 1:
            note("killed")
            sys.stderr.flush()
            signal.raise_signal(signal.SIGKILL)
        note("stopping: the turn is ended and everything is cleaned up; again to kill")
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


def demo(*, agent: str, as_json: bool, isolation: str | None, config: Path | None) -> int:
    """Work the embedded issue to its end; the exit code of design §6."""
    lines = RunLines(quiet=as_json)
    return _run(lambda: _demo(agent, lines, isolation, config), lines, demo_target=TARGET_STATE)


async def _demo(agent: str, lines: RunLines, isolation: str | None, config: Path | None) -> RunReport:
    base = load_settings(host_paths(os.environ, config=config).config_file)
    with App.open(config=config, settings=base) as app:
        end_leftovers(app)
        level = isolation_level(app.settings, isolation, demo=True, secrets_configured=agent != "scripted")
        folder = make_private(app.paths.state / "demo") / new_id("demo")
        home = make_private(make_private(app.paths.runs) / f"{folder.name}-setup")
        world = await build(folder, isolation_maker(app, level, home))
    settings = demo_settings(world, STATES, base)
    with App.open(config=config, settings=settings, observers=[CallLines(lines.write)]) as app:
        plan = await plan_run(app, RunWishes(identifier=IDENTIFIER, agent=agent, isolation=level.value), demo=True)
        lines.write(f"hostside demo · {agent} agent · file tracker · isolation {level.value} · state in {world.folder}")
        if level.value == "home":
            note("isolation home: the demo alone runs without a wall; `hostside doctor` tells how to get one")
        return await work(app, plan, lines)


def run(wishes: RunWishes, *, as_json: bool, config: Path | None) -> int:
    """Work one issue of a configured tracker; the exit code of design §6."""
    lines = RunLines(quiet=as_json)

    async def go() -> RunReport:
        with App.open(config=config, observers=[CallLines(lines.write)]) as app:
            end_leftovers(app)
            plan = await plan_run(app, wishes)
            lines.write(
                plain(
                    f"run {plan.run_id} · {plan.identifier} · {plan.adapter.kind} · {plan.agent.kind}"
                    f" {plan.agent.version or ''} {plan.runtime.edge} · isolation {plan.level.value}"
                )
            )
            lines.write(plain(f"network {describe(plan.network)}"))
            return await work(app, plan, lines)

    return _run(go, lines)


def _run(go: Callable[[], Coroutine[Any, Any, RunReport]], lines: RunLines, *, demo_target: str | None = None) -> int:
    try:
        report = uvloop.run(go())
    except asyncio.CancelledError:
        note("stopped")
        return 1
    if demo_target is not None and report.state_after != demo_target:
        report.ok = False
        report.exit_code = report.exit_code or 1
    if lines.quiet:
        print_json(report.as_object())
    else:
        for line in summary(report):
            say(line)
    return report.exit_code
