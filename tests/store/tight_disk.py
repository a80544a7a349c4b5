"""Disks that fail on demand."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from hostside.core.canonical import JsonObject
from hostside.store.database import Database


class TightDisk:
    """Makes SQLite itself refuse: `full` lets the file grow no more, `read_only` lets nothing be written."""

    def __init__(self, database: Database) -> None:
        self.full = False
        self.read_only = False
        event.listen(database.engine, "checkout", self._limit)

    def _limit(self, connection: sqlite3.Connection, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA query_only = {int(self.read_only)}")
        connection.execute(f"PRAGMA max_page_count = {1 if self.full else 2**30}")


#: Arguments that do not fit into the pages that a file already has.
LARGE: JsonObject = {"body": "x" * 60_000}


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Give `folder` as a memory disk of its own; skip the test where this user may not mount."""
    folder.mkdir(mode=0o700)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip(f"mounting a memory disk needs root: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True, capture_output=True)
