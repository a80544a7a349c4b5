"""The hash chain of one session: each event's hash covers its own fields and the hash before it (D7)."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from hostside.core.canonical import JsonObject, digest
from hostside.core.receipt import Finished, Started
from hostside.store.faults import NotStored
from hostside.store.instants import to_text
from hostside.store.tables import receipt_events, sessions

Fields = dict[str, str | int | None]

_OUTSIDE = frozenset({"hash", "event_id"})
_EMPTY: Fields = {column.name: None for column in receipt_events.columns if column.name != "event_id"}
_HEADS = select(sessions.c.session_id, sessions.c.chain_head, sessions.c.chain_count).where(
    sessions.c.session_id.in_(bindparam("ids", expanding=True))
)
_MOVE = (
    update(sessions)
    .where(sessions.c.session_id == bindparam("of_session"))
    .values(chain_head=bindparam("head"), chain_count=bindparam("count"))
)
_APPEND = insert(receipt_events)


def event_hash(fields: Mapping[str, Any]) -> str:
    """Return the hash of one event: SHA-256 over the canonical JSON of its columns that are not null.

    `prev_hash` and `seq` are among them; the row's own number and hash are not.
    """
    covered: JsonObject = {name: value for name, value in fields.items() if value is not None and name not in _OUTSIDE}
    return digest(covered)


def append(connection: Connection, events: Sequence[Fields]) -> None:
    """Append `events` in order and move the heads of their sessions, inside the caller's write transaction.

    The head is read here and never remembered: another process may have closed a call of the same session.
    Raises NotStored for a session without a row.
    """
    if not events:
        return
    ids = sorted({str(event["session_id"]) for event in events})
    heads = {row.session_id: (row.chain_head, row.chain_count) for row in connection.execute(_HEADS, {"ids": ids})}
    rows: list[Fields] = []
    for event in events:
        session_id = str(event["session_id"])
        if session_id not in heads:
            raise NotStored(f"there is no session {session_id}")
        previous, count = heads[session_id]
        row = {**_EMPTY, **event, "seq": count + 1, "prev_hash": previous}
        row["hash"] = head = event_hash(row)
        rows.append(row)
        heads[session_id] = (head, count + 1)
    connection.execute(_APPEND, rows)
    connection.execute(
        _MOVE, [{"of_session": key, "head": head, "count": count} for key, (head, count) in heads.items()]
    )


def started_fields(event: Started, arguments: str) -> Fields:
    """Return the columns of a start. `arguments` is the canonical text of the redacted arguments."""
    return {
        "phase": "started",
        "receipt_id": event.receipt_id,
        "at": to_text(event.at),
        "session_id": event.session_id,
        "run_id": event.run_id,
        "issue_id": event.issue_id,
        "edge": event.edge,
        "principal": event.principal,
        "workspace_id": event.workspace_id,
        "registry_fingerprint": event.registry_fingerprint,
        "tool": storable(event.tool),
        "tool_version": event.tool_version,
        "call_key": None if event.call_key is None else storable(event.call_key),
        "operation_id": event.operation_id,
        "arguments_fingerprint": event.arguments_fingerprint,
        "arguments_redacted": arguments,
        "approval_id": event.approval_id,
        "replay_of": event.replay_of,
    }


def finished_fields(event: Finished) -> Fields:
    """Return the columns of an end."""
    return {
        "phase": "finished",
        "receipt_id": event.receipt_id,
        "at": to_text(event.at),
        "session_id": event.session_id,
        **_result_fields(event),
    }


def combined_fields(started: Started, finished: Finished, arguments: str) -> Fields:
    """Return the columns of a call that is kept as one event: a read or a refusal."""
    return {
        **started_fields(started, arguments),
        "phase": "combined",
        "ended_at": to_text(finished.at),
        **_result_fields(finished),
    }


def _result_fields(event: Finished) -> Fields:
    return {
        "outcome": event.outcome.value,
        "code": None if event.code is None else event.code.value,
        "effect": event.effect.value,
        "exit_code": event.exit_code,
        "result_sha256": event.result_sha256,
        "result_bytes": event.result_bytes,
        "duration_ms": event.duration_ms,
    }


def storable(text: str) -> str:
    """Return `text` with lone surrogates escaped: a caller's word may hold them, a database cannot."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
