"""Receipts as an operator reads them, and calls that a dead process left open (D7)."""

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from hostside.core.receipt import Outcome
from hostside.errors import Effect, FailureCode
from hostside.store.queries import ReceiptFilter, each_receipt, list_receipts, show_receipt
from hostside.store.recovery import OpenCall, close_as_unknown, open_calls
from hostside.store.verify import verify
from tests.store.rows import NOW, OUTCOME, Store, finished, run, session, started


@pytest.fixture
def filled(store: Store) -> Store:
    """Two runs on two issues: a write each that ended, a refusal each, and one write that never ended."""
    for number, identifier in ((1, "PAY-12"), (2, "PAY-13")):
        store.runs.create(run(f"run-{number}", identifier=identifier))
        store.sessions.open(session(f"s-{number}", run_id=f"run-{number}", identifier=identifier))
    asyncio.run(_fill(store))
    return store


async def _fill(store: Store) -> None:
    for number, issue_id in ((1, "id-of-PAY-12"), (2, "id-of-PAY-13")):
        facts = {"run_id": f"run-{number}", "issue_id": issue_id}
        name = f"s-{number}"
        await store.receipts.started(started(f"rc-{number}-write", name, **facts), journal_keys=("key:a", "same:b"))
        await store.receipts.finished(finished(f"rc-{number}-write", name), outcome=OUTCOME)
        refusal = finished(
            f"rc-{number}-no", name, outcome=Outcome.REFUSED, code=FailureCode.OUTSIDE_ISSUE, effect=Effect.NONE
        )
        store.receipts.record(started(f"rc-{number}-no", name, tool="get_issue", **facts), refusal)
    await store.receipts.started(started("rc-open", "s-1", run_id="run-1", tool="push"), journal_keys=("key:open",))


def _ids(store: Store, wanted: ReceiptFilter) -> list[object]:
    found: list[object] = [item["receipt_id"] for item in list_receipts(store.database, wanted).receipts]
    assert [item["receipt_id"] for item in each_receipt(store.database, wanted)] == found
    return found


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (ReceiptFilter(), ["rc-1-write", "rc-1-no", "rc-2-write", "rc-2-no", "rc-open"]),
        (ReceiptFilter(run_id="run-1"), ["rc-1-write", "rc-1-no", "rc-open"]),
        (ReceiptFilter(session_id="s-2"), ["rc-2-write", "rc-2-no"]),
        (ReceiptFilter(issue="PAY-13"), ["rc-2-write", "rc-2-no"]),
        (ReceiptFilter(issue="id-of-PAY-12"), ["rc-1-write", "rc-1-no", "rc-open"]),
        (ReceiptFilter(tool="get_issue"), ["rc-1-no", "rc-2-no"]),
        (ReceiptFilter(outcome="refused", run_id="run-1"), ["rc-1-no"]),
        (ReceiptFilter(outcome="ok"), ["rc-1-write", "rc-2-write"]),
        (ReceiptFilter(outcome="unknown"), ["rc-open"]),
        (ReceiptFilter(issue="PAY-99"), []),
    ],
)
def test_receipts_are_found_by_run_session_issue_tool_and_outcome(
    filled: Store, wanted: ReceiptFilter, ids: list[str]
) -> None:
    assert _ids(filled, wanted) == ids


def test_pages_go_back_from_the_newest_and_end(filled: Store) -> None:
    pages, before = [], None
    for _ in range(3):
        page = list_receipts(filled.database, limit=2, before=before)
        pages.append([item["receipt_id"] for item in page.receipts])
        before = page.before
    assert (pages, before) == ([["rc-2-no", "rc-open"], ["rc-1-no", "rc-2-write"], ["rc-1-write"]], None)


def test_a_receipt_is_shown_with_its_chain_its_result_and_who_stands_behind_it(filled: Store) -> None:
    shown = show_receipt(filled.database, "rc-1-write")
    assert shown is not None
    assert next(iter(shown)) == "receipt_id"
    events = shown.pop("events")
    assert isinstance(events, list)
    assert [list(item) for item in events if isinstance(item, dict)] == [
        ["seq", "phase", "at", "prev_hash", "hash"]
    ] * 2
    assert {name: shown[name] for name in ("arguments", "journal_keys", "result", "run", "outcome", "effect")} == {
        "arguments": {"body": "hello"},
        "journal_keys": ["key:a", "same:b"],
        "result": OUTCOME,
        "run": {
            "started_by": "alice",
            "agent": "scripted",
            "agent_version": None,
            "model": None,
            "workflow_sha256": None,
            "policy_sha256": "ab" * 32,
            "isolation": None,
            "native_tools": None,
        },
        "outcome": "ok",
        "effect": "reported",
    }
    assert show_receipt(filled.database, "rc-nobody") is None


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (ReceiptFilter(run_id="run-1"), "ix_receipt_events_run_id_event_id"),
        (ReceiptFilter(issue="PAY-12"), "ix_receipt_events_issue_id_event_id"),
        (ReceiptFilter(tool="push"), "ix_receipt_events_tool_event_id"),
    ],
)
def test_an_index_answers_a_query_so_that_a_million_receipts_are_not_read(
    filled: Store, wanted: ReceiptFilter, index: str
) -> None:
    seen: list[tuple[str, Any]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: Any, _x: object, _many: bool) -> None:
        seen.append((statement, parameters))

    event.listen(filled.database.engine, "before_cursor_execute", note)
    list_receipts(filled.database, wanted)
    statement, parameters = next(item for item in seen if "FROM receipts" in item[0])
    with filled.database.read() as connection:
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert any(index in step for step in plan)
    assert [
        step for step in plan if step.startswith("SCAN") and "CONSTANT" not in step and "SUBQUERY" not in step
    ] == []


def test_a_call_without_an_end_is_open_for_its_run_and_its_session(filled: Store) -> None:
    call = OpenCall(
        receipt_id="rc-open",
        session_id="s-1",
        run_id="run-1",
        issue_id="id-of-PAY-12",
        tool="push",
        operation_id="operation-of-rc-open",
        call_key=None,
        arguments_fingerprint="f" * 64,
        at=NOW,
    )
    database = filled.database
    found = [open_calls(database), open_calls(database, run_id="run-1"), open_calls(database, session_id="s-1")]
    assert found == [(call,), (call,), (call,)]
    assert open_calls(database, run_id="run-2") == ()


def test_an_open_call_is_closed_as_unknown_once_and_its_repeat_is_told_so(filled: Store) -> None:
    at = NOW + timedelta(minutes=2)
    closed = [
        close_as_unknown(filled.database, name, at=at) for name in ("rc-open", "rc-open", "rc-1-write", "rc-1-no", "x")
    ]
    assert closed == [True, False, False, False, False]
    shown = show_receipt(filled.database, "rc-open")
    assert shown is not None
    facts = ("outcome", "code", "effect", "duration_ms", "ended_at")
    assert [shown[name] for name in facts] == [
        "failed",
        "effect_unknown",
        "unknown",
        120_000,
        "2026-03-01T12:02:00.000000Z",
    ]
    entry = asyncio.run(filled.receipts.journal("s-1", "key:open"))
    assert entry is not None
    assert entry.outcome is not None
    failure = entry.outcome["failure"]
    assert isinstance(failure, dict)
    assert (failure["code"], failure["effect"], failure["receipt_id"]) == ("effect_unknown", "unknown", "rc-open")
    assert isinstance(shown["result_sha256"], str)
    assert len(shown["result_sha256"]) == len(hashlib.sha256().hexdigest())
    assert verify(filled.database).ok
    assert open_calls(filled.database) == ()
