"""Runs: states that only move forward, from any process (design §5.1)."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from hostside.store.faults import NotStored, StateConflict, StoreUnavailable
from hostside.store.runs import FINAL, NEXT, Run, RunState
from tests.store.rows import NOW, Store, run


def test_a_run_is_read_as_it_was_written(store: Store) -> None:
    written = replace(
        run(),
        reason="asked for",
        attempt=2,
        tracker="main",
        agent_version="1.2.3",
        model="m-1",
        edge="inband",
        isolation="bwrap",
        network="npm",
        native_tools="off",
        workspace="/srv/w",
        branch="pay-12",
        workflow_sha256="cd" * 32,
        agent_session_id="a-1",
        pid=4_194_304,
        pid_started_at=9_876_543_210,
        state_before="Todo",
        usage={"input_tokens": 12, "by_model": {"m-1": 12}},
        bound_project_id="p-1",
    )
    store.runs.create(written)
    assert store.runs.show("run-1") == written
    assert store.runs.show("run-2") is None
    shown = written.as_object()
    assert next(iter(shown)) == "run_id"
    assert (shown["state"], shown["started_at"], shown["usage"]) == (
        "preparing",
        "2026-03-01T12:00:00.000000Z",
        {"input_tokens": 12, "by_model": {"m-1": 12}},
    )


def test_a_run_id_is_used_once(store: Store) -> None:
    store.runs.create(run())
    with pytest.raises(StateConflict):
        store.runs.create(run(state=RunState.RUNNING))


def test_an_update_changes_what_it_names_and_a_final_state_sets_the_end(store: Store) -> None:
    store.runs.create(run())
    assert store.runs.update("run-1", pid=12, pid_started_at=34, state=RunState.RUNNING) == replace(
        run(), pid=12, pid_started_at=34, state=RunState.RUNNING
    )
    ended = store.runs.update("run-1", state=RunState.SUCCEEDED, state_after="Done", usage={"turns": 3}, exit_code=0)
    assert ended == replace(
        run(),
        pid=12,
        pid_started_at=34,
        state=RunState.SUCCEEDED,
        state_after="Done",
        usage={"turns": 3},
        exit_code=0,
        ended_at=NOW,
    )
    with pytest.raises(NotStored):
        store.runs.update("run-2", reason="none")


@pytest.mark.parametrize(("before", "after"), list(itertools.product(RunState, RunState)))
def test_a_state_follows_only_where_the_table_says_so(store: Store, before: RunState, after: RunState) -> None:
    store.runs.create(run(state=before))
    if after is before or after in NEXT[before]:
        assert store.runs.update("run-1", state=after).state is after
        return
    with pytest.raises(StateConflict, match=f"run run-1 is {before}; it cannot become {after}"):
        store.runs.update("run-1", state=after, reason="not kept")
    assert store.runs.show("run-1") == run(state=before)


def test_nothing_follows_a_final_state() -> None:
    assert {state for state in RunState if not NEXT[state]} == FINAL


def test_live_runs_are_those_without_an_end_and_name_their_process(store: Store) -> None:
    for state in RunState:
        store.runs.create(replace(run(f"run-{state}", state=state), pid=7, pid_started_at=8))
    live = store.runs.live_runs()
    assert {item.state for item in live} == set(RunState) - FINAL
    assert {(item.pid, item.pid_started_at) for item in live} == {(7, 8)}


def test_an_interrupted_run_is_marked_once_and_a_finished_one_never(store: Store) -> None:
    store.runs.create(run("gone", state=RunState.RUNNING))
    store.runs.create(run("done", state=RunState.SUCCEEDED))
    marked = [store.runs.mark_interrupted(name, "its process is gone") for name in ("gone", "gone", "done")]
    assert marked == [True, False, False]
    gone = store.runs.show("gone")
    assert gone is not None
    assert (gone.state, gone.reason, gone.ended_at) == (RunState.INTERRUPTED, "its process is gone", NOW)
    with pytest.raises(NotStored):
        store.runs.mark_interrupted("nobody", "x")


def test_runs_are_listed_newest_last_by_state_and_issue(store: Store) -> None:
    for number in range(4):
        identifier = "PAY-12" if number % 2 else "PAY-13"
        at = NOW.replace(minute=number)
        state = RunState.FAILED if number == 3 else RunState.RUNNING
        store.runs.create(replace(run(f"run-{number}", state=state, identifier=identifier), started_at=at))

    def ids(found: tuple[Run, ...]) -> list[str]:
        return [item.run_id for item in found]

    assert ids(store.runs.list()) == ["run-0", "run-1", "run-2", "run-3"]
    assert ids(store.runs.list(limit=2)) == ["run-2", "run-3"]
    assert ids(store.runs.list(state=RunState.FAILED)) == ["run-3"]
    assert ids(store.runs.list(issue="PAY-13")) == ["run-0", "run-2"]
    assert ids(store.runs.list(issue="id-of-PAY-12")) == ["run-1", "run-3"]


def test_events_of_a_run_are_kept_in_their_order_and_paged(store: Store) -> None:
    for name in ("run-1", "run-2"):
        store.runs.create(run(name))
    for number in range(5):
        store.runs.note("run-1", "tool_call_finished", {"number": number}, at=NOW)
        store.runs.note("run-2", "other", {}, at=NOW)
    asyncio.run(store.writer.flush())
    first = store.runs.events("run-1", limit=3)
    last = first[-1]["event_id"]
    assert isinstance(last, int)
    rest = store.runs.events("run-1", after=last)
    assert [item["facts"] for item in (*first, *rest)] == [{"number": number} for number in range(5)]
    assert rest[-1] == {
        "event_id": 9,
        "at": "2026-03-01T12:00:00.000000Z",
        "name": "tool_call_finished",
        "facts": {"number": 4},
    }


def test_an_event_after_the_end_of_the_store_is_refused(store: Store) -> None:
    store.runs.create(run())
    store.close()
    with pytest.raises(StoreUnavailable):
        store.runs.note("run-1", "late", {}, at=NOW)


def test_acceptance_names_who_and_what(store: Store) -> None:
    store.runs.create(run())
    store.runs.accept("run-1", who="alice", what="branch pay-12")
    assert store.runs.acceptances("run-1") == (
        {"run_id": "run-1", "who": "alice", "what": "branch pay-12", "at": "2026-03-01T12:00:00.000000Z"},
    )
    with pytest.raises(StateConflict):
        store.runs.accept("nobody", who="alice", what="all")
