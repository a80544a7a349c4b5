"""Two runs beside each other and after each other: whose edge, whose token, and what is left of them (A0-07, A0-17, C-27)."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.app.host import App
from hostside.store.sessions import token_sha256
from hostside.worker.agent import AgentOutcome, EndState
from tests.cases.rows import rows
from tests.support.gateways import ok
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world, open_host, status, work_held
from tests.support.host_world import HostWorld

pytestmark = [pytest.mark.anyio, pytest.mark.system]
FAILED = AgentOutcome(state=EndState.FAILED, reason="agent_error", exit_code=1, turns=1)


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    return a_held_world(tmp_path)


@pytest.fixture
def app(world: HostWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    with open_host(world, monkeypatch) as opened:
        yield opened


def live_tokens(app: App) -> list[str]:
    return [str(item["session_id"]) for item in app.sessions.list(open_only=True)]


async def test_of_two_runs_each_has_its_own_loopback_port_and_its_token_opens_no_other(app: App) -> None:
    meet: dict[str, Held] = {}
    both, asked = anyio.Event(), []

    async def work(held: Held) -> AgentOutcome:
        assert held.task.gateway.session.issue is not None
        meet[held.task.gateway.session.issue.identifier] = held
        if len(meet) == 2:
            both.set()
        await both.wait()
        (other,) = [one for one in meet.values() if one is not held]
        asked.append((await status(held), await status(held, other.token), await status(other, held.token)))
        done.append(1)
        if len(done) == 2:
            all_done.set()
        await all_done.wait()
        return DONE

    done: list[int] = []
    all_done = anyio.Event()
    async with anyio.create_task_group() as group:
        for identifier in ("DEMO-1", "DEMO-2"):
            group.start_soon(work_held, app, identifier, HeldRuntime(work))
    one, two = meet["DEMO-1"], meet["DEMO-2"]
    assert asked == [(200, 401, 401)] * 2
    assert (one.host, two.host) == ("127.0.0.1", "127.0.0.1")
    assert len({one.port, two.port, 8787}) == 3
    assert one.token != two.token
    assert {held.task.gateway.session.issue and held.task.gateway.session.issue.id for held in (one, two)} == {
        "id-DEMO-1",
        "id-DEMO-2",
    }


async def test_the_listener_of_a_run_is_on_one_address_of_this_machine(app: App) -> None:
    reached: list[bool] = []

    async def work(held: Held) -> AgentOutcome:
        for address in ("127.0.0.1", "127.0.0.2"):
            with socket.socket() as client:
                reached.append(client.connect_ex((address, held.port)) == 0)
        return DONE

    await work_held(app, "DEMO-1", HeldRuntime(work))
    assert reached == [True, False]


@pytest.mark.parametrize("end", ["normal", "failed", "cancelled", "timed out"])
async def test_after_the_end_nobody_answers_and_on_a_reused_port_the_token_is_refused(
    app: App, world: HostWorld, end: str
) -> None:
    began = anyio.Event()

    async def first(held: Held) -> AgentOutcome:
        assert await status(held) == 200
        began.set()
        if end in ("cancelled", "timed out"):
            await anyio.sleep_forever()
        return DONE if end == "normal" else FAILED

    runtime = HeldRuntime(first)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            life: dict[str, Any] = {"max_duration": timedelta(seconds=1.5)} if end == "timed out" else {}
            group.start_soon(lambda: work_held(app, "DEMO-1", runtime, **life))
            await began.wait()
            if end == "cancelled":
                group.cancel_scope.cancel()
    (old,) = runtime.seen
    with anyio.fail_after(1):
        assert await status(old) is None
    assert live_tokens(app) == []
    states = {"normal": "succeeded", "failed": "failed", "cancelled": "cancelled", "timed out": "failed"}
    assert [run.state.value for run in app.runs.list()] == [states[end]]

    answers: list[tuple[int | None, int | None]] = []

    async def second(held: Held) -> AgentOutcome:
        answers.append((await status(held), await status(old)))
        return DONE

    await work_held(app, "DEMO-2", HeldRuntime(second, port=old.port))
    assert answers == [(200, 401)]


async def test_a_continuation_gets_a_token_of_its_own_and_the_late_end_of_the_first_spares_it(app: App) -> None:
    (row,) = rows("C-27.c")
    expected = {"works": 200, "401": 401}
    asked: list[tuple[int | None, int | None]] = []

    async def work(held: Held) -> AgentOutcome:
        await ok(held.task.gateway, "file_issue_get")
        if len(runtime.seen) == 1:
            return replace(DONE, agent_session_id="conversation-1")
        first = runtime.seen[0]
        assert held.task.resume == "conversation-1"
        # Cleaning up the first attempt once more, by the identity of its token, touches nothing of the second.
        app.sessions.revoke(first.task.gateway.session.session_id)
        app.sessions.revoke_token(token_sha256(first.token))
        asked.append((await status(held), await status(held, first.token)))
        return DONE

    runtime = HeldRuntime(work)
    report = await work_held(app, "DEMO-1", runtime)
    assert (report.state, len(runtime.seen)) == ("succeeded", 2)
    one, two = runtime.seen
    assert one.token != two.token
    assert one.task.gateway.session.session_id != two.task.gateway.session.session_id
    assert asked == [(expected[row.expect["T2"]], expected[row.expect["T1"]])]


async def test_a_second_run_of_an_issue_is_refused_while_the_first_works(app: App) -> None:
    second: list[Any] = []

    async def never(_held: Held) -> AgentOutcome:
        raise AssertionError("two agents in one checkout")

    async def work(_held: Held) -> AgentOutcome:
        second.append(await work_held(app, "DEMO-1", HeldRuntime(never)))
        return DONE

    first = await work_held(app, "DEMO-1", HeldRuntime(work))
    (report,) = second
    assert (report.reason, report.exit_code, report.calls["total"]) == ("issue_busy", 3, 0)
    assert "hostside runs stop" in report.remedy
    assert first.ok
