"""The hash chain: every history of any sessions verifies, and every tampering is named (D7)."""

import asyncio
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostside.store.verify import BrokenChain, VerifyReport, verify
from tests.store.rows import OUTCOME, Store, finished, open_store, record, session, started

SESSIONS = ("s-1", "s-2", "s-3")
steps = st.lists(
    st.tuples(st.sampled_from(SESSIONS), st.sampled_from(["record", "start", "end", "flush"])), max_size=40
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy: migrating anew for each example would be all the time there is."""
    path = tmp_path_factory.mktemp("empty") / "hostside.db"
    open_store(path).close()
    return path


@settings(max_examples=25)
@given(steps=steps)
def test_any_interleaving_of_sessions_verifies(empty: Path, steps: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(empty, folder)
        store = open_store(Path(folder) / "hostside.db")
        for name in SESSIONS:
            store.sessions.open(session(name))
        calls = asyncio.run(_act(store, steps))
        store.receipts.close()
        assert verify(store.database) == VerifyReport(ok=True, sessions=3, receipts=calls, broken=())
        store.close()


async def _act(store: Store, steps: list[tuple[str, str]]) -> int:
    open_calls: dict[str, list[str]] = {name: [] for name in SESSIONS}
    calls = 0
    for name, step in steps:
        if step == "flush":
            await store.receipts.flush()
        elif step == "end":
            if open_calls[name]:
                await store.receipts.finished(finished(open_calls[name].pop(), name), outcome=OUTCOME)
        else:
            calls += 1
            receipt_id = f"rc-{calls}"
            if step == "record":
                record(store, receipt_id, name)
            else:
                await store.receipts.started(started(receipt_id, name), journal_keys=("key:a",))
                open_calls[name].append(receipt_id)
    return calls


@pytest.fixture
def written(store: Store, path: Path) -> Path:
    """Two sessions of five reads each, closed: the file alone."""
    for name in ("s-1", "s-2"):
        store.sessions.open(session(name))
        for number in range(1, 6):
            record(store, f"{name}:{number}", name)
    store.close()
    return path


def _tamper(path: Path, *statements: str) -> None:
    """Change the file as its owner could, past the triggers."""
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TRIGGER receipt_events_update")
        raw.execute("DROP TRIGGER receipt_events_delete")
        for statement in statements:
            raw.execute(statement)
    raw.close()


def _verified(path: Path) -> tuple[BrokenChain, ...]:
    store = open_store(path)
    report = verify(store.database)
    assert verify(store.database, "s-1").ok is (not any(item.session_id == "s-1" for item in report.broken))
    store.close()
    return report.broken


def test_an_untouched_file_verifies(written: Path) -> None:
    assert _verified(written) == ()


THIRD = "session_id = 's-2' AND seq = 3"


@pytest.mark.parametrize(
    "change",
    [
        "tool = 'get_issuf'",
        "outcome = 'failed'",
        "duration_ms = 1001",
        "call_key = ''",
        "at = '2026-03-01T12:00:00.000001Z'",
        'arguments_redacted = \'{"body":"hellp"}\'',
        "principal = CAST(x'61ff' AS TEXT)",
        "edge = x'68747470'",
        "hash = replace(hash, substr(hash, 1, 1), 'x')",
    ],
)
def test_a_changed_field_is_named(written: Path, change: str) -> None:
    _tamper(written, f"UPDATE receipt_events SET {change} WHERE {THIRD}")
    assert _verified(written) == (
        BrokenChain(session_id="s-2", seq=3, receipt_id="s-2:3", reason="its content does not match its hash"),
    )


def test_one_changed_byte_of_the_file_is_named(written: Path) -> None:
    content = written.read_bytes()
    assert content.count(b"operation-of-s-1:4") == 1
    written.write_bytes(content.replace(b"operation-of-s-1:4", b"operation-of-s-1;4"))
    assert [(item.session_id, item.seq) for item in _verified(written)] == [("s-1", 4)]


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        (
            f"DELETE FROM receipt_events WHERE {THIRD}",
            BrokenChain(session_id="s-2", seq=3, receipt_id="s-2:4", reason="event 3 is missing, 4 follows"),
        ),
        (
            "DELETE FROM receipt_events WHERE session_id = 's-2' AND seq > 3",
            BrokenChain(
                session_id="s-2",
                seq=4,
                receipt_id=None,
                reason="the session's record counts 5 events, 3 are there",
            ),
        ),
        (
            "DELETE FROM receipt_events WHERE session_id = 's-2'",
            BrokenChain(
                session_id="s-2",
                seq=1,
                receipt_id=None,
                reason="the session's record counts 5 events, 0 are there",
            ),
        ),
        (
            f"UPDATE receipt_events SET prev_hash = hash WHERE {THIRD}",
            BrokenChain(
                session_id="s-2", seq=3, receipt_id="s-2:3", reason="its link to the event before does not hold"
            ),
        ),
        (
            "UPDATE sessions SET chain_head = replace(chain_head, substr(chain_head, 1, 1), 'x') WHERE session_id = 's-2'",
            BrokenChain(session_id="s-2", seq=6, receipt_id=None, reason="the session's record has another last hash"),
        ),
        (
            "DELETE FROM sessions WHERE session_id = 's-2'",
            BrokenChain(session_id="s-2", seq=6, receipt_id=None, reason="the session's record is missing"),
        ),
    ],
    ids=["gap", "cut tail", "all cut", "link", "head", "session"],
)
def test_a_missing_or_moved_event_is_named(written: Path, statement: str, broken: BrokenChain) -> None:
    _tamper(written, statement)
    assert _verified(written) == (broken,)


def test_two_swapped_events_are_named(written: Path) -> None:
    _tamper(
        written,
        "UPDATE receipt_events SET seq = 99 WHERE session_id = 's-1' AND seq = 2",
        "UPDATE receipt_events SET seq = 2 WHERE session_id = 's-1' AND seq = 4",
        "UPDATE receipt_events SET seq = 4 WHERE session_id = 's-1' AND seq = 99",
    )
    assert [(item.session_id, item.seq, item.receipt_id) for item in _verified(written)] == [("s-1", 2, "s-1:4")]


def test_an_event_hashed_before_a_column_was_added_still_verifies(written: Path) -> None:
    with sqlite3.connect(written) as raw:
        raw.execute("ALTER TABLE receipt_events ADD COLUMN later TEXT")
    raw.close()
    assert _verified(written) == ()


def test_a_session_that_does_not_exist_does_not_verify(store: Store) -> None:
    assert verify(store.database, "nobody").broken == (
        BrokenChain(session_id="nobody", seq=1, receipt_id=None, reason="the session's record is missing"),
    )
