"""The one database file: who may open it, how, and how a transaction begins (D8, D18).

Several processes have it open at once. Every write takes SQLite's write lock first (`BEGIN IMMEDIATE`), so that what a
transaction read still holds when it writes.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Row, Select, create_engine, event
from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError

from hostside.errors import ConfigError
from hostside.store.faults import StoreUnavailable
from hostside.store.folder_lock import alone_in
from hostside.store.schema_version import IMMEDIATE, SNAPSHOT, is_current

_BUSY_SECONDS = 10.0
_LOOKUP_BUSY_MS = 250
_OURS_TO_FIX = (IntegrityError, DataError, InterfaceError, ProgrammingError)


class Database:
    """An open, current database. Safe for any thread; a process that forks opens it anew."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self.engine = engine
        self._one_writer = threading.Lock()
        self._one_lookup = threading.Lock()
        self._lookups: Connection | None = None
        self._closed = False

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection that holds the write lock; commit at the end, roll back on any exception.

        Durable when the block is left (WAL, `synchronous=FULL`). Raises StoreUnavailable when the file cannot be
        written, or is locked for longer than 10 seconds; sqlalchemy's IntegrityError when a constraint was broken.
        """
        # Threads of this process queue here: SQLite's own waiting sleeps and is unfair.
        if not self._one_writer.acquire(timeout=_BUSY_SECONDS):
            raise StoreUnavailable("the database is busy")
        try:
            with self._connected(IMMEDIATE) as connection:
                yield connection
        finally:
            self._one_writer.release()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection that sees one snapshot and waits for no writer. Raises StoreUnavailable."""
        with self._connected(SNAPSHOT) as connection:
            yield connection

    @contextmanager
    def _connected(self, options: Mapping[str, Any]) -> Iterator[Connection]:
        self._check_open()
        try:
            with self.engine.connect().execution_options(**options) as connection, connection.begin():
                yield connection
        except _OURS_TO_FIX:
            raise
        except (DatabaseError, sqlite3.DatabaseError) as exc:
            raise StoreUnavailable(_short(exc)) from exc

    def lookup(self, statement: Select[Any], parameters: Mapping[str, Any]) -> Row[Any] | None:
        """Return the first row of one SELECT, on a connection kept for that: about 0.1 ms, at most 0.25 s of waiting.

        For the checks of every request. Sees what any process has committed before. Raises StoreUnavailable.
        """
        self._check_open()
        with self._one_lookup:
            try:
                if self._lookups is None:
                    self._lookups = self.engine.connect()
                    self._lookups.exec_driver_sql(f"PRAGMA busy_timeout = {_LOOKUP_BUSY_MS}")
                return self._lookups.execute(statement, parameters).first()
            except (SQLAlchemyError, sqlite3.DatabaseError) as exc:
                self._drop_lookups()
                raise StoreUnavailable(_short(exc)) from exc

    def close(self) -> None:
        """Close every connection. Later use raises StoreUnavailable."""
        self._closed = True
        with self._one_lookup:
            self._drop_lookups()
        self.engine.dispose()

    def _drop_lookups(self) -> None:
        if self._lookups is not None:
            # Not back to the pool: its waiting time is not the others'.
            self._lookups.invalidate()
            self._lookups.close()
            self._lookups = None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the database is closed")


def open_database(path: Path) -> Database:
    """Open the file, made with its folder where missing (0600, 0700), and bring its schema up to date.

    Raises ConfigError, with the remedy, when the folder is open to other users, the file is no database of this
    product, was written by a newer version, or cannot be written.
    """
    _check_folder(path.parent)
    _check_file(path)
    engine = _engine(path)
    try:
        with alone_in(path.parent):
            _prepare(engine, path)
    except (DatabaseError, sqlite3.DatabaseError) as exc:
        engine.dispose()
        raise _unusable(path, _short(exc)) from exc
    except ConfigError:
        engine.dispose()
        raise
    return Database(path, engine)


def _prepare(engine: Engine, path: Path) -> None:
    with engine.connect().execution_options(**SNAPSHOT) as connection, connection.begin():
        current = is_current(connection, path)
    _close_to_others(path)
    if not current:
        # A current file, the usual case at start-up, must not pay for Alembic's import.
        from hostside.store.upgrade import upgrade  # noqa: PLC0415

        upgrade(engine, path)


def _engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _BUSY_SECONDS},
        pool_use_lifo=True,
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver begins no transaction of its own: ours begin in `begin`.
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # REPLACE would otherwise delete without the triggers that keep receipts append-only.
        connection.execute("PRAGMA recursive_triggers = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get("hostside_begin")
        if statement is not None:
            connection.exec_driver_sql(statement)

    return engine


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as exc:
        raise _unusable(folder, exc.strerror or str(exc)) from exc
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(
            "invalid_configuration",
            f"{folder} is open to other users; host state must not be (D8).",
            remedy=f"chmod 700 {folder}, or name a folder of your own.",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, "the folder cannot be written")


def _check_file(path: Path) -> None:
    try:
        # SQLite gives its -wal and -shm files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # Not opened here to look: closing it would drop the locks that this process's other connections hold on it.
        if not path.is_file():
            raise _unusable(path, "it is not a regular file") from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise _unusable(path, "it cannot be written") from None
    except OSError as exc:
        raise _unusable(path, exc.strerror or str(exc)) from exc


def _close_to_others(path: Path) -> None:
    for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        try:
            if stat.S_IMODE(name.stat().st_mode) & 0o077:
                name.chmod(0o600)
        except FileNotFoundError:
            continue  # SQLite removes both when the last process leaves


def _unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"{path} cannot be used as the database: {reason}.",
        remedy="Give a file on a local disk that this user can write, or name another state folder.",
    )


def _short(exc: Exception) -> str:
    # The driver's own words; SQLAlchemy's text would add the statement and its values.
    return str(getattr(exc, "orig", None) or exc)[:200]
