"""Real runs of a real host whose agent is the test: each run stays where the test wants it, with its edge open."""

import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from hostside.app.host import App
from hostside.app.planning import RunWishes, plan_run, services_of
from hostside.core.canonical import JsonValue
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.run import RunWorker
from hostside.worker.run_edge import run_edge
from hostside.worker.run_plan import RunReport
from tests.support.host_world import HostWorld, make_world
from tests.support.http_edges import ACCEPT, modern_body, modern_headers

#: What the agent does while its edge is served.
Work = Callable[["Held"], Awaitable[AgentOutcome]]
DONE = AgentOutcome(state=EndState.SUCCEEDED, reason="completed", exit_code=0, turns=1)
WITHIN = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One session of a run while its edge is served: where that is, and the token that opens it."""

    task: AgentTask
    host: str
    port: int

    @property
    def token(self) -> str:
        """The session's edge token."""
        return self.task.token


@dataclass(slots=True)
class HeldRuntime:
    """An agent runtime over the real edge of a run; `seen` has every session that it was given.

    `port` makes it serve there, as when the machine gives a run the port that another one had.
    """

    work: Work
    edge: str = "run-http"
    port: int | None = None
    seen: list[Held] = field(default_factory=list)

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Start an idle process of the run, serve the edge on the listeners that it was handed, and do the work."""
        with task.isolation.prepare(listeners=1) as launch:
            host, port = launch.addresses[0]
            child = await task.isolation.spawn(["cat"], launch=launch)
        listeners = child.listeners
        if self.port is not None:
            for listener in listeners:
                listener.close()
            host, port = "127.0.0.1", self.port
            listeners = (socket.create_server((host, port)),)
        async with child:
            task.event("agent_started", {"agent": "held", "pid": child.pid, "pid_started_at": child.pid_started_at})
            async with run_edge(task, listeners, (host, port)):
                held = Held(task=task, host=host, port=port)
                self.seen.append(held)
                outcome = await self.work(held)
                child.close_stdin()
                await child.wait()
                return outcome


def a_held_world(folder: Path) -> HostWorld:
    """A world whose configured agent has an empty script, since a held run needs none."""
    world = make_world(folder)
    (folder / "script.json").write_text("[]", encoding="utf-8")
    world.configure(f'[agent]\nkind = "scripted"\nscript = "{folder / "script.json"}"\n')
    return world


@contextmanager
def open_host(world: HostWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Open the world's host in this process. Its level is `home`, since only there the test reaches the edge."""
    # For good, and of the whole test process: other tests read their own /proc.
    monkeypatch.setattr("hostside.app.host.make_undumpable", lambda: None)
    with App.open(environment=world.environment()) as app:
        yield app


async def work_held(
    app: App,
    identifier: str,
    runtime: HeldRuntime,
    *,
    tell: Callable[[str, Mapping[str, JsonValue]], None] = lambda _name, _facts: None,
    **changes: Any,
) -> RunReport:
    """Work one issue to its end with this agent; `changes` are fields of the plan. Fails after a minute."""
    with anyio.fail_after(WITHIN):
        plan = await plan_run(app, RunWishes(identifier=identifier, agent="scripted", isolation="home"))
        held = replace(plan, runtime=runtime, **changes)
        return await RunWorker(held, services_of(app, tell), app.hub).work()


async def status(held: Held, token: str | None = None, *, port: int | None = None) -> int | None:
    """The HTTP status of a listing with a token (the session's own when None) where a run's edge is or was.

    None when nobody answers there.
    """
    body = modern_body("tools/list")
    address = f"{held.host}:{port or held.port}"
    names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
    headers = {"authorization": f"Bearer {token or held.token}", "accept": ACCEPT, **names}
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        try:
            return (await client.post(f"http://{address}/mcp", json=body, headers=headers)).status_code
        except httpx.TransportError:
            return None
