"""The receipt log and the journal, durable (D7): `core.receipt.ReceiptLog` over the one writer of this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, select
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from hostside.core.canonical import JsonObject, encode, parse
from hostside.core.receipt import Finished, JournalEntry, Started
from hostside.errors import ReceiptUnavailable
from hostside.store.chain import Fields, append, combined_fields, finished_fields, started_fields, storable
from hostside.store.database import Database
from hostside.store.faults import StoreUnavailable
from hostside.store.instants import to_text
from hostside.store.tables import journal, outcomes, sessions
from hostside.store.writer import GroupWriter

_KEEP_OUTCOME = insert(outcomes)
_inserted = sqlite_insert(journal)
_POINT_KEY = _inserted.on_conflict_do_update(
    index_elements=["session_id", "key"],
    set_={name: _inserted.excluded[name] for name in ("receipt_id", "tool", "fingerprint")},
)
_JOURNAL = (
    select(journal.c.receipt_id, journal.c.tool, journal.c.fingerprint, outcomes.c.result)
    .outerjoin(outcomes, outcomes.c.receipt_id == journal.c.receipt_id)
    .where(journal.c.session_id == bindparam("session_id"), journal.c.key == bindparam("key"))
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReceiptRows:
    """What one event adds: itself, and with it the journal keys of a start or the outcome of an end."""

    event: Fields
    keys: tuple[Fields, ...] = ()
    outcome: Fields | None = None

    @classmethod
    def write(cls, connection: Connection, entries: Sequence["ReceiptRows"]) -> None:
        """Append every event to its chain. Raises NotStored and IntegrityError; the transaction is then undone."""
        append(connection, [entry.event for entry in entries])
        keys = [key for entry in entries for key in entry.keys]
        if keys:
            connection.execute(_POINT_KEY, keys)
        kept = [entry.outcome for entry in entries if entry.outcome is not None]
        if kept:
            connection.execute(_KEEP_OUTCOME, kept)


class ReceiptStore:
    """`ReceiptLog` of this host. A session must have its row (`SessionStore.open`) before its first receipt."""

    def __init__(self, database: Database, writer: GroupWriter) -> None:
        self._database = database
        self._writer = writer

    async def started(self, event: Started, *, journal_keys: tuple[str, ...]) -> None:
        """Make the start and its journal keys durable. Raises ReceiptUnavailable; then nothing is kept."""
        fields = started_fields(event, encode(event.arguments_redacted))
        keys = tuple(_key_row(event, key) for key in journal_keys)
        await self._durable(ReceiptRows(event=fields, keys=keys))

    async def finished(self, event: Finished, *, outcome: JsonObject) -> None:
        """Make the end and its outcome durable. Raises ReceiptUnavailable, also for a call that has ended already."""
        await self._durable(ReceiptRows(event=finished_fields(event), outcome=outcome_row(event, outcome)))

    def record(self, started: Started, finished: Finished) -> None:
        """Append one combined event within 100 ms, and never after a state-changing row that came later.

        Raises ReceiptUnavailable at once while the last write has failed. What was accepted before is kept and
        retried.
        """
        fields = combined_fields(started, finished, encode(started.arguments_redacted))
        try:
            self._writer.later(ReceiptRows(event=fields))
        except StoreUnavailable as exc:
            raise ReceiptUnavailable(str(exc)) from exc

    def ensure_recordable(self) -> None:
        """Raise ReceiptUnavailable while the last write has failed, or after `close`. No I/O."""
        failure = self._writer.failure
        if failure is not None:
            raise ReceiptUnavailable(failure)

    async def journal(self, session_id: str, key: str) -> JournalEntry | None:
        """Return the latest call under this key, or None. Raises ReceiptUnavailable.

        A lookup of one row on the caller's own thread: readers never wait for a writer.
        """
        try:
            row = self._database.lookup(_JOURNAL, {"session_id": session_id, "key": storable(key)})
        except StoreUnavailable as exc:
            raise ReceiptUnavailable(str(exc)) from exc
        if row is None:
            return None
        outcome = None if row.result is None else parse(row.result)
        assert outcome is None or isinstance(outcome, dict)
        return JournalEntry(receipt_id=row.receipt_id, tool=row.tool, fingerprint=row.fingerprint, outcome=outcome)

    async def flush(self) -> None:
        """Return when every event accepted so far is durable. Raises ReceiptUnavailable."""
        try:
            await self._writer.flush()
        except StoreUnavailable as exc:
            raise ReceiptUnavailable(str(exc)) from exc

    def close(self) -> None:
        """Write what waits and close this process's writer, run events included."""
        self._writer.close()

    async def _durable(self, rows: ReceiptRows) -> None:
        try:
            await self._writer.durable(rows)
        except StoreUnavailable as exc:
            raise ReceiptUnavailable(str(exc)) from exc


def outcome_row(event: Finished, outcome: JsonObject) -> Fields:
    """Return the row that keeps the outcome of one call."""
    return {"receipt_id": event.receipt_id, "at": to_text(event.at), "result": encode(outcome)}


def delete_outcomes(database: Database, *, ended_before: datetime, now: datetime) -> int:
    """Delete the outcomes of calls that ended before `ended_before`, and return how many (D7: retention).

    Those of sessions that are still open stay, whatever their age: a repeated call is answered from them. Receipts stay.
    """
    open_sessions = select(sessions.c.session_id).where(
        sessions.c.revoked_at.is_(None), sessions.c.expires_at > to_text(now)
    )
    needed = select(journal.c.receipt_id).where(journal.c.session_id.in_(open_sessions))
    statement = delete(outcomes).where(outcomes.c.at < to_text(ended_before), outcomes.c.receipt_id.not_in(needed))
    with database.write() as connection:
        return connection.execute(statement).rowcount


def _key_row(event: Started, key: str) -> Fields:
    return {
        "session_id": event.session_id,
        "key": storable(key),
        "receipt_id": event.receipt_id,
        "tool": event.tool,
        "fingerprint": event.arguments_fingerprint or "",
    }
