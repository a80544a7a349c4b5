"""Opening the file: who may, which file, which version (D8, D18)."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select

import hostside.store.migrations
from hostside.errors import ConfigError
from hostside.store.database import open_database
from hostside.store.faults import StoreUnavailable
from hostside.store.schema_version import SCHEMA_VERSION
from hostside.store.tables import metadata, receipts, runs
from tests.store.rows import Store, record, run, session
from tests.store.tight_disk import mounted


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_files_are_the_owners_alone(store: Store, path: Path) -> None:
    store.sessions.open(session())
    assert {item.name: _mode(item) for item in path.parent.iterdir()} == {
        "hostside.db": 0o600,
        "hostside.db-shm": 0o600,
        "hostside.db-wal": 0o600,
    }
    assert _mode(path.parent) == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(path: Path) -> None:
    open_database(path).close()
    path.chmod(0o644)
    open_database(path).close()
    assert _mode(path) == 0o600


def test_a_folder_that_others_may_enter_is_refused_with_the_remedy(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="open to other users") as caught:
        open_database(path)
    assert caught.value.remedy.startswith(f"chmod 700 {path.parent}")


def test_every_connection_is_durable_and_checks_its_references(store: Store) -> None:
    with store.database.write() as first, store.database.read() as second:
        for connection in (first, second):
            found = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers", "busy_timeout")
            ]
            assert found == ["wal", 2, 1, 1, 10_000]


def test_migrations_from_an_empty_file_give_the_tables_of_this_version(store: Store) -> None:
    with store.database.read() as connection:
        difference = compare_metadata(
            MigrationContext.configure(connection, opts={"include_object": _is_ours}), metadata
        )
        viewed = connection.execute(select(receipts)).all()
        columns = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(receipts)")]
    assert (difference, viewed) == ([], [])
    assert sorted(columns) == sorted(receipts.columns.keys())


def _is_ours(_item: object, name: str | None, _kind: str, _reflected: bool, _other: object) -> bool:
    return name != "alembic_version"


def test_the_newest_migration_is_the_version_that_files_carry() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(hostside.store.migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_heads() == [f"{SCHEMA_VERSION:04d}"]


def test_a_current_file_opens_without_loading_alembic(path: Path) -> None:
    open_database(path).close()
    code = (
        "import sys, pathlib; from hostside.store.database import open_database\n"
        "open_database(pathlib.Path(sys.argv[1])).close(); print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    open_database(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="written by a newer hostside"):
        open_database(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database, just some text that is long enough\n" * 40, b"SQLite format 3\x00" + b"\xff" * 4000]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be used as the database"):
        open_database(path)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE bookmarks (url TEXT)")
    raw.close()
    with pytest.raises(ConfigError, match="a database of another program"):
        open_database(path)


def test_a_folder_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir(parents=True, mode=0o700)
    path.parent.chmod(0o700)
    with pytest.raises(ConfigError, match="not a regular file"):
        open_database(path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    if os.geteuid():
        folder.mkdir(mode=0o500)
        with pytest.raises(ConfigError, match="cannot be written"):
            open_database(folder / "hostside.db")
        return
    with mounted(folder, "ro") as place, pytest.raises(ConfigError, match="cannot be written"):
        open_database(place / "hostside.db")


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        path = tmp_path / "hostside.db"
        open_database(path).close()
        path.chmod(0o400)
        with pytest.raises(ConfigError, match="cannot be written"):
            open_database(path)
        return
    with mounted(tmp_path / "state", "rw") as place:
        open_database(place / "hostside.db").close()
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        with pytest.raises(ConfigError, match="cannot be written"):
            open_database(place / "hostside.db")


def test_an_old_file_is_migrated_once_by_many_openers_at_once(path: Path) -> None:
    failures: list[Exception] = []

    def open_and_write(number: int) -> None:
        try:
            database = open_database(path)
            with database.write() as connection:
                connection.execute(insert(runs), {**run(f"run-{number}").as_object(), "usage": None})
            database.close()
        except Exception as exc:
            failures.append(exc)

    threads = [threading.Thread(target=open_and_write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    database = open_database(path)
    with database.read() as connection:
        assert len(connection.execute(select(runs.c.run_id)).all()) == 6
    database.close()


def test_a_failed_block_leaves_nothing(store: Store) -> None:
    def fail_half_way() -> None:
        with store.database.write() as connection:
            connection.execute(insert(runs), {**run().as_object(), "usage": None})
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert store.runs.show("run-1") is None


def test_a_closed_database_says_so(store: Store) -> None:
    store.sessions.open(session())
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.sessions.is_open("s-1", now=store.clock())
    with pytest.raises(StoreUnavailable, match="closed"), store.database.write():
        pytest.fail("a closed database gave a connection")
    with pytest.raises(Exception, match="closed"):
        record(store, "rc-1")
