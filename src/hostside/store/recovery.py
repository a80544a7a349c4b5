"""What a dead process left open: calls whose start has no end (D7). They are closed as unknown, never assumed done."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, exists, insert, select

from hostside.core.call import ToolFailure, ToolResult
from hostside.core.journal import stored
from hostside.core.outcome import sha256_of
from hostside.core.receipt import Finished, Outcome
from hostside.errors import Effect, FailureCode
from hostside.store.chain import append, finished_fields
from hostside.store.database import Database
from hostside.store.instants import to_instant
from hostside.store.receipts import outcome_row
from hostside.store.tables import outcomes, receipt_events


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call that was started and never ended. What it changed is not known until somebody looks."""

    receipt_id: str
    session_id: str
    run_id: str | None
    issue_id: str | None
    tool: str
    operation_id: str
    call_key: str | None
    arguments_fingerprint: str | None
    at: datetime


def open_calls(database: Database, *, run_id: str | None = None, session_id: str | None = None) -> tuple[OpenCall, ...]:
    """Return the open calls of a run, of a session, or of everybody (which reads every start), oldest first."""
    started, finished = receipt_events.alias("s"), receipt_events.alias("f")
    has_end = exists().where(finished.c.receipt_id == started.c.receipt_id, finished.c.phase == "finished")
    wanted: list[ColumnElement[bool]] = [started.c.phase == "started", ~has_end]
    if run_id is not None:
        wanted.append(started.c.run_id == run_id)
    if session_id is not None:
        wanted.append(started.c.session_id == session_id)
    statement = select(started).where(*wanted).order_by(started.c.event_id)
    with database.read() as connection:
        rows = connection.execute(statement).all()
    return tuple(
        OpenCall(
            receipt_id=row.receipt_id,
            session_id=row.session_id,
            run_id=row.run_id,
            issue_id=row.issue_id,
            tool=row.tool,
            operation_id=row.operation_id,
            call_key=row.call_key,
            arguments_fingerprint=row.arguments_fingerprint,
            at=to_instant(row.at),
        )
        for row in rows
    )


def close_as_unknown(database: Database, receipt_id: str, *, at: datetime) -> bool:
    """Append the end of an open call: failed, `effect_unknown`, effect `unknown`. A repeat is answered with the same.

    False when there is no such start, or it has an end by now. Only for calls whose process is known to be gone.
    """
    with database.write() as connection:
        events = connection.execute(select(receipt_events).where(receipt_events.c.receipt_id == receipt_id)).all()
        if len(events) != 1 or events[0].phase != "started":
            return False
        start = events[0]
        result = _unknown(receipt_id, start.tool)
        sha256, size = sha256_of(result.text())
        finished = Finished(
            receipt_id=receipt_id,
            at=at,
            session_id=start.session_id,
            outcome=Outcome.FAILED,
            code=FailureCode.EFFECT_UNKNOWN,
            effect=Effect.UNKNOWN,
            exit_code=None,
            result_sha256=sha256,
            result_bytes=size,
            duration_ms=max(0, round((at - to_instant(start.at)).total_seconds() * 1000)),
        )
        append(connection, [finished_fields(finished)])
        connection.execute(insert(outcomes), outcome_row(finished, stored(result)))
    return True


def _unknown(receipt_id: str, tool: str) -> ToolResult:
    return ToolResult(
        failure=ToolFailure(
            code=FailureCode.EFFECT_UNKNOWN,
            message=f"The host ended while {tool} ran; whether it took effect is not known.",
            remedy="Read the current state; repeat only what is missing, with changed arguments or a new key.",
            effect=Effect.UNKNOWN,
            receipt_id=receipt_id,
        )
    )
