"""Reading receipts: lists, one in full, and all of them for an export. Plain JSON objects, `receipt_id` first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, literal, select

from hostside.core.canonical import JsonObject, JsonValue, parse
from hostside.store.database import Database
from hostside.store.tables import journal, outcomes, receipt_events, receipts, runs, sessions

_PAGE = 1_000
_HIDDEN = ("event_id", "arguments_redacted")
#: Who stands behind a receipt (D7), taken from its run.
_WHO = (
    "started_by",
    "agent",
    "agent_version",
    "model",
    "workflow_sha256",
    "policy_sha256",
    "isolation",
    "native_tools",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFilter:
    """Which receipts. Absent means any. `issue` is an id or an identifier; `outcome` may be `unknown` (no end yet)."""

    run_id: str | None = None
    session_id: str | None = None
    issue: str | None = None
    tool: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPage:
    """Receipts, newest last. `before` asks for the page of older ones; None when there are none."""

    receipts: tuple[JsonObject, ...]
    before: int | None


def list_receipts(
    database: Database, wanted: ReceiptFilter | None = None, *, limit: int = 100, before: int | None = None
) -> ReceiptPage:
    """Return the newest `limit` receipts that match, newest last. By run, issue or tool an index answers."""
    conditions = _conditions(wanted or ReceiptFilter())
    if before is not None:
        conditions.append(receipts.c.event_id < before)
    statement = select(receipts).where(*conditions).order_by(receipts.c.event_id.desc()).limit(limit + 1)
    with database.read() as connection:
        rows = connection.execute(statement).all()
    page = rows[:limit]
    return ReceiptPage(
        receipts=tuple(_receipt(row) for row in reversed(page)),
        before=page[-1].event_id if len(rows) > limit and page else None,
    )


def each_receipt(database: Database, wanted: ReceiptFilter | None = None) -> Iterator[JsonObject]:
    """Yield every receipt that matches, oldest first, a page in memory at a time. For an export."""
    conditions, after = _conditions(wanted or ReceiptFilter()), 0
    while True:
        statement = (
            select(receipts).where(*conditions, receipts.c.event_id > after).order_by(receipts.c.event_id).limit(_PAGE)
        )
        with database.read() as connection:
            rows = connection.execute(statement).all()
        yield from map(_receipt, rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1].event_id


def show_receipt(database: Database, receipt_id: str) -> JsonObject | None:
    """Return one receipt with its chained `events`, its `journal_keys`, the stored `result` (null once retention has
    deleted it, and for reads and refusals), and its `run`'s who and what; None when there is none."""
    with database.read() as connection:
        row = connection.execute(select(receipts).where(receipts.c.receipt_id == receipt_id)).first()
        if row is None:
            return None
        return {**_receipt(row), **_details(connection, row)}


def _details(connection: Connection, row: Row[Any]) -> JsonObject:
    events = connection.execute(
        select(receipt_events).where(receipt_events.c.receipt_id == row.receipt_id).order_by(receipt_events.c.seq)
    ).all()
    keys = connection.execute(
        select(journal.c.key)
        .where(journal.c.session_id == row.session_id, journal.c.receipt_id == row.receipt_id)
        .order_by(journal.c.key)
    )
    result = connection.execute(select(outcomes.c.result).where(outcomes.c.receipt_id == row.receipt_id)).scalar()
    run = connection.execute(select(runs).where(runs.c.run_id == row.run_id)).first()
    return {
        "journal_keys": list(keys.scalars()),
        "result": None if result is None else parse(result),
        "events": [
            {"seq": event.seq, "phase": event.phase, "at": event.at, "prev_hash": event.prev_hash, "hash": event.hash}
            for event in events
        ],
        "run": None if run is None else {name: run._mapping[name] for name in _WHO},
    }


def _conditions(wanted: ReceiptFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    for name in ("run_id", "session_id", "tool", "outcome"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(receipts.c[name] == value)
    if wanted.issue is not None:
        ids = select(literal(wanted.issue)).union(
            select(sessions.c.issue_id).where(sessions.c.issue_identifier == wanted.issue)
        )
        conditions.append(receipts.c.issue_id.in_(ids))
    return conditions


def _receipt(row: Row[Any]) -> JsonObject:
    value: dict[str, JsonValue] = {name: item for name, item in row._mapping.items() if name not in _HIDDEN}
    value["arguments"] = parse(row.arguments_redacted)
    return value
