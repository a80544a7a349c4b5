"""Recompute every chain and name what does not hold (D7). Whoever can write the file and knows this code can also write
a chain that holds: keep an exported head elsewhere where that matters."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from hostside.store.chain import event_hash
from hostside.store.database import Database
from hostside.store.tables import GENESIS, receipt_events, sessions

_ROWS = 500
_SESSIONS = select(sessions.c.session_id).order_by(sessions.c.session_id)
_HEAD = select(sessions.c.chain_head, sessions.c.chain_count).where(sessions.c.session_id == bindparam("session_id"))
_EVENTS = (
    select(receipt_events).where(receipt_events.c.session_id == bindparam("session_id")).order_by(receipt_events.c.seq)
)
_ORPHANS = (
    select(receipt_events.c.session_id)
    .distinct()
    .where(receipt_events.c.session_id.not_in(select(sessions.c.session_id)))
    .order_by(receipt_events.c.session_id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenChain:
    """The first event of a session that does not hold. `receipt_id` is None where no event is left to name."""

    session_id: str
    seq: int
    receipt_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was checked: `receipts` counts calls. `broken` has at most one entry for each session."""

    ok: bool
    sessions: int
    receipts: int
    broken: tuple[BrokenChain, ...]


def verify(database: Database, session_id: str | None = None) -> VerifyReport:
    """Check one chain or all, a few hundred rows in memory at a time; other processes may write meanwhile.

    Raises StoreUnavailable when the file cannot be read.
    """
    checked, receipts, broken = 0, 0, []
    for name in _session_ids(database) if session_id is None else [session_id]:
        # One snapshot for each session: its events and its head belong together.
        with database.read() as connection, _lenient(connection):
            count, fault = _check(connection, name)
        checked, receipts = checked + 1, receipts + count
        if fault is not None:
            broken.append(fault)
    return VerifyReport(ok=not broken, sessions=checked, receipts=receipts, broken=tuple(broken))


def _session_ids(database: Database) -> list[str]:
    with database.read() as connection:
        known = connection.execute(_SESSIONS).scalars().all()
        return [*known, *connection.execute(_ORPHANS).scalars().all()]


def _check(connection: Connection, session_id: str) -> tuple[int, BrokenChain | None]:
    head, seq, receipts = GENESIS, 0, 0
    for row in _events(connection, session_id):
        reason = _fault(row, expected=seq + 1, previous=head)
        if reason is not None:
            return receipts, BrokenChain(session_id=session_id, seq=seq + 1, receipt_id=row.receipt_id, reason=reason)
        head, seq = row.hash, row.seq
        receipts += row.phase != "finished"
    record = connection.execute(_HEAD, {"session_id": session_id}).first()
    if record is None:
        reason = "the session's record is missing"
    elif record.chain_count != seq:
        reason = f"the session's record counts {record.chain_count} events, {seq} are there"
    elif record.chain_head != head:
        reason = "the session's record has another last hash"
    else:
        return receipts, None
    return receipts, BrokenChain(session_id=session_id, seq=seq + 1, receipt_id=None, reason=reason)


@contextmanager
def _lenient(connection: Connection) -> Iterator[None]:
    """Read text that is no UTF-8 any more as something that matches no hash, so that a damaged byte is named, not raised."""
    driver: Any = connection.connection.driver_connection
    driver.text_factory = _text
    try:
        yield
    finally:
        driver.text_factory = str


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _events(connection: Connection, session_id: str) -> Iterator[Row[Any]]:
    options = {"yield_per": _ROWS}
    return iter(connection.execute(_EVENTS, {"session_id": session_id}, execution_options=options))


def _fault(row: Row[Any], *, expected: int, previous: str) -> str | None:
    if row.seq != expected:
        return f"event {expected} is missing, {row.seq} follows"
    if row.prev_hash != previous:
        return "its link to the event before does not hold"
    try:
        holds = event_hash(row._asdict()) == row.hash
    except (TypeError, ValueError):  # bytes, or text that is no Unicode: nothing that the store writes
        holds = False
    return None if holds else "its content does not match its hash"
