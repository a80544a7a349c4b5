"""Homes of runs are kept for a conversation to be gone back to, and not for ever."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hostside.store.database import open_database
from hostside.store.runs import Run, RunState, RunStore
from hostside.store.writer import GroupWriter
from hostside.worker.run_recovery import HOMES_KEPT, forget_old_homes

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[tuple[RunStore, list[datetime]]]:
    (tmp_path / "state").mkdir(mode=0o700)
    database = open_database(tmp_path / "state" / "hostside.db")
    writer = GroupWriter(database)
    clock = [NOW]
    yield RunStore(database, writer, now=lambda: clock[0]), clock
    writer.close()
    database.close()


def test_a_home_goes_two_weeks_after_its_run_and_never_before(
    tmp_path: Path, runs: tuple[RunStore, list[datetime]]
) -> None:
    store, clock = runs
    folder = tmp_path / "runs"
    for name, ended in (("r-old", NOW - HOMES_KEPT * 2), ("r-new", NOW - timedelta(days=1)), ("r-live", None)):
        store.create(
            Run(run_id=name, kind="issue", state=RunState.PREPARING, agent="claude", started_by="x", started_at=NOW)
        )
        if ended is not None:
            clock[0] = ended
            store.update(name, state=RunState.FAILED)
        (folder / name / "home").mkdir(parents=True)
    (folder / "left-over").mkdir()
    old = (NOW - HOMES_KEPT * 2).timestamp()
    os.utime(folder / "left-over", (old, old))
    assert forget_old_homes(folder, store, now=lambda: NOW) == ("left-over", "r-old")
    assert sorted(os.listdir(folder)) == ["r-live", "r-new"]
    assert forget_old_homes(tmp_path / "nowhere", store, now=lambda: NOW) == ()
