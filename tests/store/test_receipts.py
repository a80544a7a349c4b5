"""Receipts and the journal: durable when they say so, in order, never changed (D7)."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from hostside.core.receipt import JournalEntry, Outcome, ReceiptLog
from hostside.errors import Effect, FailureCode, ReceiptUnavailable
from hostside.store.receipts import delete_outcomes
from hostside.store.tables import outcomes, receipt_events, receipts
from hostside.store.verify import verify
from tests.store.rows import NOW, OUTCOME, Store, finished, record, run, session, started

Runner = Callable[[Coroutine[Any, Any, None]], None]
loops = pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def _ids(store: Store) -> list[str]:
    with store.database.read() as connection:
        rows = connection.execute(select(receipt_events.c.phase, receipt_events.c.receipt_id).order_by("event_id"))
        return [f"{row.phase} {row.receipt_id}" for row in rows]


@loops
def test_a_start_and_an_end_are_in_the_file_when_they_return(store: Store, loop: Runner) -> None:
    store.sessions.open(session())
    log: ReceiptLog = store.receipts

    async def call() -> None:
        await log.started(started("rc-1"), journal_keys=("key:a",))
        assert _ids(store) == ["started rc-1"]
        await log.finished(finished("rc-1"), outcome=OUTCOME)
        assert _ids(store) == ["started rc-1", "finished rc-1"]

    loop(call())
    with store.database.read() as connection:
        row = connection.execute(select(receipts)).one()._asdict()
    assert row.pop("event_id") == 1
    assert row == {
        "receipt_id": "rc-1",
        "session_id": "s-1",
        "run_id": None,
        "issue_id": "id-of-PAY-12",
        "issue_identifier": "PAY-12",
        "edge": "http",
        "principal": "agent:s-1",
        "workspace_id": None,
        "registry_fingerprint": started("rc-1").registry_fingerprint,
        "tool": "add_comment",
        "tool_version": "1",
        "call_key": None,
        "operation_id": "operation-of-rc-1",
        "arguments_fingerprint": "f" * 64,
        "arguments_redacted": '{"body":"hello"}',
        "approval_id": None,
        "replay_of": None,
        "outcome": "ok",
        "code": None,
        "effect": "reported",
        "exit_code": None,
        "result_sha256": "e" * 64,
        "result_bytes": 20,
        "duration_ms": 1000,
        "started_at": "2026-03-01T12:00:00.000000Z",
        "ended_at": "2026-03-01T12:00:01.000000Z",
    }


@loops
def test_64_callers_at_once_are_all_durable_and_share_commits(store: Store, loop: Runner) -> None:
    store.sessions.open(session())

    async def call(number: int) -> None:
        await store.receipts.started(started(f"rc-{number}"), journal_keys=())
        assert _one(store, f"rc-{number}") == 1
        await store.receipts.finished(finished(f"rc-{number}"), outcome=OUTCOME)

    async def everybody() -> None:
        await asyncio.gather(*(call(number) for number in range(64)))

    loop(everybody())
    report = verify(store.database)
    assert (report.ok, report.receipts, len(_ids(store))) == (True, 64, 128)


def _one(store: Store, receipt_id: str) -> int:
    with store.database.read() as connection:
        statement = select(func.count()).where(receipt_events.c.receipt_id == receipt_id)
        return connection.execute(statement).scalar_one()


def test_loops_in_several_threads_share_one_writer(store: Store) -> None:
    store.sessions.open(session())
    failures: list[BaseException] = []

    async def calls(name: str) -> None:
        for number in range(20):
            await store.receipts.started(started(f"{name}-{number}"), journal_keys=())

    def work(name: str) -> None:
        try:
            asyncio.run(calls(name))
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (failures, len(_ids(store)), verify(store.database).ok) == ([], 80, True)


def test_a_read_is_in_the_file_before_a_later_start_returns(store: Store) -> None:
    store.sessions.open(session())

    async def call() -> None:
        record(store, "rc-1")
        record(store, "rc-2")
        await store.receipts.started(started("rc-3"), journal_keys=())
        assert _ids(store) == ["combined rc-1", "combined rc-2", "started rc-3"]

    asyncio.run(call())


def test_a_read_reaches_the_file_without_a_later_write(store: Store) -> None:
    store.sessions.open(session())
    record(store, "rc-1")
    seen = threading.Event()

    def watch() -> None:
        while not seen.is_set():
            if _ids(store):
                seen.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    in_time = seen.wait(5.0)
    seen.set()
    watcher.join(5)
    assert in_time


def test_close_writes_what_waits(store: Store) -> None:
    store.sessions.open(session())
    for number in range(700):
        record(store, f"rc-{number}")
    store.receipts.close()
    assert len(_ids(store)) == 700
    with pytest.raises(ReceiptUnavailable, match="closed"):
        store.receipts.ensure_recordable()
    with pytest.raises(ReceiptUnavailable, match="closed"):
        asyncio.run(store.receipts.started(started("rc-x"), journal_keys=()))


def test_flush_returns_when_all_reads_are_in_the_file(store: Store) -> None:
    store.sessions.open(session())

    async def call() -> None:
        for number in range(50):
            record(store, f"rc-{number}")
        await store.receipts.flush()
        assert len(_ids(store)) == 50

    asyncio.run(call())


@pytest.mark.parametrize(
    "statement",
    [
        update(receipt_events).values(outcome="ok"),
        delete(receipt_events),
        text("INSERT OR REPLACE INTO receipt_events SELECT * FROM receipt_events"),
    ],
    ids=["update", "delete", "replace"],
)
def test_an_event_can_neither_be_changed_nor_deleted(store: Store, statement: Any) -> None:
    store.sessions.open(session())
    record(store, "rc-1")
    store.receipts.close()
    with pytest.raises(IntegrityError, match="append-only"), store.database.write() as connection:
        connection.execute(statement)
    assert verify(store.database).receipts == 1


def test_a_start_for_a_session_without_a_row_is_refused_and_its_neighbours_are_kept(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.sessions.open(session())

    async def call() -> None:
        results = await asyncio.gather(
            store.receipts.started(started("rc-1"), journal_keys=()),
            store.receipts.started(started("rc-2", "s-unknown"), journal_keys=()),
            store.receipts.started(started("rc-3"), journal_keys=()),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), ReceiptUnavailable, type(None)]
        store.receipts.ensure_recordable()

    asyncio.run(call())
    assert _ids(store) == ["started rc-1", "started rc-3"]
    assert "refused by the database" in caplog.text


def test_a_call_cannot_end_twice(store: Store) -> None:
    store.sessions.open(session())

    async def call() -> None:
        await store.receipts.started(started("rc-1"), journal_keys=())
        await store.receipts.finished(finished("rc-1"), outcome=OUTCOME)
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.finished(finished("rc-1"), outcome=OUTCOME)

    asyncio.run(call())
    assert (_ids(store), verify(store.database).ok) == (["started rc-1", "finished rc-1"], True)


def test_words_of_a_caller_that_are_no_unicode_are_kept_escaped(store: Store) -> None:
    store.sessions.open(session())
    record(store, "rc-1", tool="naïve\ud800")
    store.receipts.close()
    with store.database.read() as connection:
        assert connection.execute(select(receipts.c.tool)).scalar_one() == "naïve\\ud800"
    assert verify(store.database).ok


def test_the_journal_answers_with_the_latest_call_of_a_key(store: Store) -> None:
    store.sessions.open(session())
    store.sessions.open(session("s-2"))
    log = store.receipts

    async def call() -> list[JournalEntry | None]:
        seen = [await log.journal("s-1", "key:a")]
        await log.started(started("rc-1"), journal_keys=("key:a", "delivery:1"))
        seen.append(await log.journal("s-1", "key:a"))
        await log.finished(
            finished("rc-1", outcome=Outcome.FAILED, code=FailureCode.TOOL_FAILED, effect=Effect.NONE),
            outcome=OUTCOME,
        )
        seen.append(await log.journal("s-1", "delivery:1"))
        await log.started(started("rc-2"), journal_keys=("key:a",))
        seen.append(await log.journal("s-1", "key:a"))
        seen.append(await log.journal("s-2", "key:a"))
        return seen

    facts = {"tool": "add_comment", "fingerprint": "f" * 64}
    assert asyncio.run(call()) == [
        None,
        JournalEntry(receipt_id="rc-1", outcome=None, **facts),
        JournalEntry(receipt_id="rc-1", outcome=OUTCOME, **facts),
        JournalEntry(receipt_id="rc-2", outcome=None, **facts),
        None,
    ]


def test_retention_deletes_outcomes_of_ended_sessions_alone(store: Store) -> None:
    store.runs.create(run())
    store.sessions.open(session("over", run_id="run-1"))
    store.sessions.open(session("open"))

    async def call() -> None:
        for name in ("over", "open"):
            await store.receipts.started(started(f"rc-{name}", name), journal_keys=("key:a",))
            await store.receipts.finished(finished(f"rc-{name}", name), outcome=OUTCOME)

    asyncio.run(call())
    store.sessions.revoke("over")
    assert delete_outcomes(store.database, ended_before=NOW, now=NOW) == 0
    later = NOW.replace(day=2)
    assert delete_outcomes(store.database, ended_before=later, now=NOW) == 1
    with store.database.read() as connection:
        assert connection.execute(select(outcomes.c.receipt_id)).scalars().all() == ["rc-open"]
    assert verify(store.database).receipts == 2


def test_an_event_of_no_session_cannot_be_slipped_in(store: Store) -> None:
    row = dict.fromkeys(("session_id", "phase", "receipt_id", "at", "prev_hash", "hash"), "x")
    with pytest.raises(IntegrityError, match="FOREIGN KEY"), store.database.write() as connection:
        connection.execute(insert(receipt_events), {**row, "seq": 1})
