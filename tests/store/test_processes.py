"""Several processes on one file, and processes that die in the middle of a write (D7, D18)."""

import asyncio
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select

from hostside.store.recovery import close_as_unknown, open_calls
from hostside.store.tables import receipt_events
from hostside.store.verify import verify
from tests.store.rows import NOW, Store, session, started

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]


def _writer(path: Path, session_id: str, prefix: str, count: int = 0) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-m", "tests.store.writing_process", str(path), session_id, prefix, str(count)]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _receipt_ids(store: Store, phase: str) -> set[str]:
    with store.database.read() as connection:
        statement = select(receipt_events.c.receipt_id).where(receipt_events.c.phase == phase)
        return set(connection.execute(statement).scalars())


def test_processes_on_one_session_and_on_others_write_one_unbroken_history(store: Store, path: Path) -> None:
    for name in ("shared", "own"):
        store.sessions.open(session(name))
    writers = [_writer(path, "shared", "a", 40), _writer(path, "shared", "b", 40), _writer(path, "own", "c", 40)]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, "")
    report = verify(store.database)
    assert (report.ok, report.sessions, report.receipts) == (True, 2, 240)
    assert _receipt_ids(store, "started") == {f"{prefix}-{number}" for prefix in "abc" for number in range(40)}


def _killed(path: Path, prefix: str, after: int) -> list[str]:
    """Kill the writer when it has said `after` lines; return everything that it had said."""
    with _writer(path, "s-1", prefix) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(after)]
        writer.kill()
        said += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [line.strip() for line in said if line.endswith("\n")]


def test_a_start_that_returned_survives_kill_9_at_any_moment_and_can_be_closed(store: Store, path: Path) -> None:
    store.sessions.open(session())
    draw = random.Random()
    said: set[str] = set()
    for number in range(10):
        rounds = [(f"k{number}{half}", draw.randint(1, 60)) for half in "xy"]
        with ThreadPoolExecutor(2) as pool:
            for lines in pool.map(lambda item: _killed(path, *item), rounds):
                said.update(lines)
        report = verify(store.database)
        assert report.broken == ()
    assert said <= _receipt_ids(store, "started")
    # A read that was put before a start is in the file when the start is.
    assert {f"{receipt_id}-read" for receipt_id in said} <= _receipt_ids(store, "combined")
    for call in open_calls(store.database, session_id="s-1"):
        assert close_as_unknown(store.database, call.receipt_id, at=NOW)
    assert open_calls(store.database) == ()
    assert _receipt_ids(store, "started") == _receipt_ids(store, "finished")
    asyncio.run(store.receipts.started(started("rc-after"), journal_keys=()))
    assert verify(store.database).ok


def test_a_revocation_by_another_process_counts_from_the_next_look_up(store: Store, path: Path) -> None:
    store.sessions.open(session())
    assert store.sessions.is_open("s-1", now=NOW)
    code = (
        "import sys, pathlib; from tests.store.rows import open_store\n"
        "store = open_store(pathlib.Path(sys.argv[1])); print(store.sessions.revoke('s-1')); store.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True\n"
    assert not store.sessions.is_open("s-1", now=NOW)
