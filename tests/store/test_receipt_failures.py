"""A disk that fails: nothing is half written, nothing accepted is lost, nothing runs unrecorded (D7)."""

import asyncio
import os
import threading
from pathlib import Path

import pytest
from sqlalchemy import func, select

from hostside.errors import ReceiptUnavailable
from hostside.store import writer as writer_module
from hostside.store.tables import journal, outcomes, receipt_events
from hostside.store.verify import verify
from tests.store.rows import OUTCOME, Store, finished, open_store, record, session, started
from tests.store.tight_disk import LARGE, TightDisk, mounted


@pytest.fixture
def disk(store: Store) -> TightDisk:
    store.sessions.open(session())
    return TightDisk(store.database)


def _counts(store: Store) -> tuple[int, ...]:
    with store.database.read() as connection:
        return tuple(
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (receipt_events, journal, outcomes)
        )


def _wait_until_recordable(store: Store) -> None:
    """Ask until it says yes; asking is what has a failed log tried again."""
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                store.receipts.ensure_recordable()
            except ReceiptUnavailable:
                continue
            done.set()

    asker = threading.Thread(target=ask)
    asker.start()
    in_time = done.wait(10)
    done.set()
    asker.join(5)
    assert in_time


@pytest.mark.parametrize("fault", ["full", "read_only"])
def test_a_start_that_cannot_be_written_is_refused_and_leaves_nothing(
    store: Store, disk: TightDisk, fault: str
) -> None:
    setattr(disk, fault, True)

    async def call() -> None:
        results = await asyncio.gather(
            *(
                store.receipts.started(started(f"rc-{number}", arguments=LARGE), journal_keys=(f"key:{number}",))
                for number in range(8)
            ),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [ReceiptUnavailable] * 8
        with pytest.raises(ReceiptUnavailable):
            store.receipts.ensure_recordable()
        with pytest.raises(ReceiptUnavailable):
            record(store, "rc-read")

    asyncio.run(call())
    assert _counts(store) == (0, 0, 0)


@pytest.mark.parametrize("fault", ["full", "read_only"])
def test_the_next_write_that_succeeds_ends_the_refusals(store: Store, disk: TightDisk, fault: str) -> None:
    async def call() -> None:
        setattr(disk, fault, True)
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.started(started("rc-1", arguments=LARGE), journal_keys=())
        setattr(disk, fault, False)
        await store.receipts.started(started("rc-2", arguments=LARGE), journal_keys=())
        store.receipts.ensure_recordable()
        record(store, "rc-3")
        await store.receipts.flush()

    asyncio.run(call())
    report = verify(store.database)
    assert (report.ok, report.receipts) == (True, 2)


def test_a_log_that_only_reads_would_use_notices_room_by_itself(store: Store, disk: TightDisk) -> None:
    async def call() -> None:
        disk.read_only = True
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.started(started("rc-1"), journal_keys=())
        disk.read_only = False

    asyncio.run(call())
    _wait_until_recordable(store)


def test_reads_accepted_before_the_failure_are_written_after_it_and_first(store: Store, disk: TightDisk) -> None:
    async def call() -> None:
        disk.read_only = True
        for number in range(5):
            record(store, f"rc-{number}")
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.flush()
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.started(started("rc-refused"), journal_keys=())
        with pytest.raises(ReceiptUnavailable):
            store.receipts.ensure_recordable()
        disk.read_only = False
        await store.receipts.started(started("rc-9"), journal_keys=())

    asyncio.run(call())
    with store.database.read() as connection:
        ids = connection.execute(select(receipt_events.c.receipt_id).order_by("event_id")).scalars().all()
    assert ids == ["rc-0", "rc-1", "rc-2", "rc-3", "rc-4", "rc-9"]
    assert verify(store.database).ok


def test_accepted_reads_are_retried_without_anybody_asking(
    store: Store, disk: TightDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_RETRY_SECONDS", 0.05)

    async def call() -> None:
        disk.read_only = True
        record(store, "rc-1")
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.flush()
        disk.read_only = False

    asyncio.run(call())
    _wait_until_recordable(store)
    assert _counts(store) == (1, 0, 0)


def test_an_end_that_cannot_be_written_leaves_the_call_open_without_an_outcome(store: Store, disk: TightDisk) -> None:
    async def call() -> None:
        await store.receipts.started(started("rc-1"), journal_keys=("key:a",))
        disk.read_only = True
        with pytest.raises(ReceiptUnavailable):
            await store.receipts.finished(finished("rc-1"), outcome=OUTCOME)
        entry = await store.receipts.journal("s-1", "key:a")
        assert entry is not None
        assert entry.outcome is None

    asyncio.run(call())
    assert _counts(store) == (1, 1, 0)


def test_too_many_waiting_reads_are_refused_not_gathered(
    store: Store, disk: TightDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_PENDING", 3)
    monkeypatch.setattr(writer_module, "_BATCH_SECONDS", 60.0)
    for number in range(3):
        record(store, f"rc-{number}")
    with pytest.raises(ReceiptUnavailable, match="3 rows wait"):
        record(store, "rc-4")


def test_what_cannot_be_written_by_the_end_is_said_in_the_log(
    store: Store, disk: TightDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.read_only = True
    record(store, "rc-1")
    store.receipts.close()
    assert "1 rows could not be written before the end" in caplog.text


@pytest.mark.system
def test_a_disk_that_is_really_full_refuses_and_recovers_when_there_is_room(tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "size=2m") as folder:
        store = open_store(folder / "hostside.db")
        store.sessions.open(session())
        filler = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY, 0o600)
        with pytest.raises(OSError, match="No space left"):
            _fill(filler)

        async def full() -> int:
            for number in range(50):
                try:
                    await store.receipts.started(started(f"rc-{number}", arguments=LARGE), journal_keys=("key:a",))
                except ReceiptUnavailable:
                    return number
            raise AssertionError("the disk was never full")

        written = asyncio.run(full())
        with pytest.raises(ReceiptUnavailable):
            store.receipts.ensure_recordable()
        assert _counts(store) == (written, min(written, 1), 0)
        os.ftruncate(filler, 0)
        os.close(filler)
        _wait_until_recordable(store)
        asyncio.run(store.receipts.started(started("rc-after", arguments=LARGE), journal_keys=()))
        report = verify(store.database)
        assert (report.ok, report.receipts) == (True, written + 1)
        store.close()


def _fill(handle: int) -> None:
    for _ in range(4_096):
        os.write(handle, b"\0" * 4_096)
