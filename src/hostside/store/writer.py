"""One writer thread for each process: what arrives while a commit is under way forms the next group (D7).

Rows go through one first-in-first-out queue and one transaction for each group, so that no row is durable before one
that came earlier. A group is wholly in the file or not at all.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from hostside.store.database import Database
from hostside.store.faults import StoreUnavailable

_log = logging.getLogger(__name__)

_CLOSED = "the store is closed"
_GROUP = 512
_PENDING = 10_000
_BATCH_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_PROBE_SECONDS = 0.25
_CLOSE_SECONDS = 15.0

RowsT = TypeVar("RowsT", bound="Rows", contravariant=True)


class Rows(Protocol):
    """One entry of the queue. Entries of one type are written together, in their order."""

    @classmethod
    def write(cls: type[RowsT], connection: Connection, entries: Sequence[RowsT]) -> None:
        """Write all of `entries` inside the open transaction. Any exception undoes the whole group."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    rows: Rows | None
    waiter: _Waiter | None


class GroupWriter:
    """The queue and its thread. Any thread and any event loop may put; one instance for each process and database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._awaited = 0
        self._due_at: float | None = None
        self._probe_wanted = False
        self._failure: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hostside-store", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """Why the last write failed, or why no write is possible; None when all is well. No I/O.

        Asking has a failed store tried again soon, so that room on the disk is noticed without anybody's write.
        """
        if self._closed:
            return _CLOSED
        if self._failure is not None and not self._probe_wanted:
            with self._changed:
                self._probe_wanted = True
                soon = time.monotonic() + _PROBE_SECONDS
                self._due_at = soon if self._due_at is None else min(soon, self._due_at)
                self._changed.notify()
        return self._failure

    async def durable(self, rows: Rows) -> None:
        """Return when `rows` are durable. Raises StoreUnavailable; then nothing of them is kept.

        A caller that is cancelled while it waits does not take them back.
        """
        await self._wait_for(rows)

    async def flush(self) -> None:
        """Return when everything put before is durable. Raises StoreUnavailable when it is not."""
        await self._wait_for(None)

    def later(self, rows: Rows) -> None:
        """Make `rows` durable within 100 ms, and never after an entry that was put later.

        Raises StoreUnavailable at once when the last write failed. What was accepted before a failure is kept and
        written with the next group that succeeds.
        """
        failure = self.failure
        if failure is not None:
            raise StoreUnavailable(failure)
        with self._changed:
            self._check_open()
            if len(self._queue) >= _PENDING:
                raise StoreUnavailable(f"{_PENDING} rows wait to be written")
            self._queue.append(_Entry(rows, None))
            if self._due_at is None:
                # Rows that nobody awaits gather for a moment: one commit for many.
                self._due_at = time.monotonic() + _BATCH_SECONDS
                self._changed.notify()
            elif len(self._queue) == _GROUP:
                self._changed.notify()

    def close(self) -> None:
        """Write what waits and end the thread, within 15 seconds. Later calls raise StoreUnavailable."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.error("the writer did not end; rows may be lost", extra={"pending": len(self._queue)})

    async def _wait_for(self, rows: Rows | None) -> None:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._changed:
            self._check_open()
            self._queue.append(_Entry(rows, waiter))
            self._awaited += 1
            self._changed.notify()
        await waiter.future

    def _check_open(self) -> None:
        # Asked under the lock: whatever is put before the thread sees `_closed` is still written.
        if self._closed:
            raise StoreUnavailable(_CLOSED)

    def _run(self) -> None:
        try:
            while (group := self._next_group()) is not None:
                self._write(group)
        finally:
            self._end()

    def _next_group(self) -> list[_Entry] | None:
        """Wait until something is due. An empty group is a probe; None is the end."""
        with self._changed:
            while (delay := self._delay()) is None or delay > 0:
                self._changed.wait(delay)
            if self._closed and not self._queue:
                return None
            group = [self._queue.popleft() for _ in range(min(_GROUP, len(self._queue)))]
            self._awaited -= sum(1 for entry in group if entry.waiter is not None)
            self._due_at = time.monotonic() if self._queue else None
            self._probe_wanted = False
            return group

    def _delay(self) -> float | None:
        if self._closed or self._awaited or (self._failure is None and len(self._queue) >= _GROUP):
            return 0.0
        return None if self._due_at is None else max(0.0, self._due_at - time.monotonic())

    def _write(self, group: list[_Entry]) -> None:
        try:
            self._commit(group)
        except StoreUnavailable as exc:
            self._failed(group, str(exc))
        except Exception:
            # Not the disk: some entry cannot be written (its session is unknown, its receipt has ended). Others can.
            self._write_singly(group)
        else:
            self._succeeded(group)

    def _write_singly(self, group: list[_Entry]) -> None:
        for index, entry in enumerate(group):
            try:
                self._commit([entry])
            except StoreUnavailable as exc:
                self._failed(group[index:], str(exc))
                return
            except Exception as exc:
                _log.exception("a row was refused by the database")
                _wake([entry], str(exc)[:200])
            else:
                self._succeeded([entry])

    def _commit(self, group: list[_Entry]) -> None:
        by_type: dict[type[Rows], list[Rows]] = {}
        for entry in group:
            if entry.rows is not None:
                by_type.setdefault(type(entry.rows), []).append(entry.rows)
        if not by_type and self._failure is None:
            return
        with self._database.write() as connection:
            if not by_type:
                prove_writable(connection)
            for kind, entries in by_type.items():
                kind.write(connection, entries)

    def _succeeded(self, group: list[_Entry]) -> None:
        if self._failure is not None:
            _log.warning("the store can be written again")
            self._failure = None
        _wake(group, None)

    def _failed(self, group: list[_Entry], reason: str) -> None:
        """Tell everybody who waits, keep what nobody waits for, in its order."""
        with self._changed:
            if self._failure is None:
                _log.error("the store cannot be written: %s", reason)
            self._failure = reason
            entries = [*group, *self._queue]
            kept = [entry for entry in entries if entry.waiter is None]
            self._queue = deque(kept)
            self._awaited = 0
            self._due_at = time.monotonic() + _RETRY_SECONDS if kept else None
            if self._closed:
                self._lose()
        _wake(entries, reason)

    def _end(self) -> None:
        with self._changed:
            self._closed = True
            waiting = list(self._queue)
            self._lose()
        _wake(waiting, _CLOSED)

    def _lose(self) -> None:
        lost = sum(1 for entry in self._queue if entry.waiter is None)
        if lost:
            _log.error("%d rows could not be written before the end", lost)
        self._queue.clear()
        self._awaited = 0


def prove_writable(connection: Connection) -> None:
    """Write one page that changes nothing: a read-only or full disk fails here."""
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    connection.exec_driver_sql(f"PRAGMA user_version = {version}")


def _wake(group: Iterable[_Entry], failure: str | None) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for entry in group:
        if entry.waiter is not None:
            by_loop.setdefault(entry.waiter.loop, []).append(entry.waiter.future)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, futures, failure)
        except RuntimeError:
            continue  # that loop is closed: nobody waits there any more


def _settle(futures: Iterable["asyncio.Future[None]"], failure: str | None) -> None:
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(StoreUnavailable(failure))
