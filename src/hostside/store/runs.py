"""Runs: one row for each, a state that only moves forward, and what happened on the way (design §5.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from hostside.core.canonical import JsonObject, JsonValue, encode, parse, snapshot
from hostside.store.chain import Fields
from hostside.store.database import Database
from hostside.store.faults import NotStored, StateConflict
from hostside.store.instants import optional_instant, optional_text, to_instant, to_text
from hostside.store.tables import acceptance, run_events, runs
from hostside.store.writer import GroupWriter


class RunState(StrEnum):
    """Where a run is. The last four are final."""

    PREPARING = "preparing"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    PARKED = "parked"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


FINAL: frozenset[RunState] = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.INTERRUPTED})
_ENDS: frozenset[RunState] = FINAL | {RunState.STOPPING}
#: Success is only reached by a run whose agent runs or is being stopped; `parked` may start over.
NEXT: Mapping[RunState, frozenset[RunState]] = {
    RunState.PREPARING: (_ENDS - {RunState.SUCCEEDED}) | {RunState.RUNNING, RunState.WAITING_APPROVAL, RunState.PARKED},
    RunState.RUNNING: _ENDS | {RunState.WAITING_APPROVAL, RunState.PARKED},
    RunState.WAITING_APPROVAL: (_ENDS - {RunState.SUCCEEDED}) | {RunState.PREPARING, RunState.RUNNING, RunState.PARKED},
    RunState.PARKED: (_ENDS - {RunState.SUCCEEDED}) | {RunState.PREPARING, RunState.RUNNING, RunState.WAITING_APPROVAL},
    RunState.STOPPING: FINAL,
    **{state: frozenset() for state in FINAL},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `pid` and `pid_started_at` (clock ticks since boot) name its process; `usage` is the agent's own count."""

    run_id: str
    kind: str
    state: RunState
    agent: str
    started_by: str
    started_at: datetime
    reason: str | None = None
    attempt: int = 1
    issue_id: str | None = None
    identifier: str | None = None
    tracker: str | None = None
    agent_version: str | None = None
    model: str | None = None
    edge: str | None = None
    isolation: str | None = None
    network: str | None = None
    native_tools: str | None = None
    workspace: str | None = None
    branch: str | None = None
    workflow_sha256: str | None = None
    policy_sha256: str | None = None
    agent_session_id: str | None = None
    pid: int | None = None
    pid_started_at: int | None = None
    state_before: str | None = None
    state_after: str | None = None
    usage: Mapping[str, JsonValue] | None = None
    exit_code: int | None = None
    bound_project_id: str | None = None
    ended_at: datetime | None = None

    def as_object(self) -> JsonObject:
        """Return every field as JSON, `run_id` first, times as UTC text."""
        return {"run_id": self.run_id, **{name: _json(getattr(self, name)) for name in _FIELDS if name != "run_id"}}


_FIELDS = tuple(field.name for field in fields(Run))


class RunChanges(TypedDict, total=False):
    """What `RunStore.update` may change: everything but who started what, and when."""

    state: RunState
    reason: str | None
    attempt: int
    agent_version: str | None
    model: str | None
    edge: str | None
    isolation: str | None
    network: str | None
    native_tools: str | None
    workspace: str | None
    branch: str | None
    workflow_sha256: str | None
    policy_sha256: str | None
    agent_session_id: str | None
    pid: int | None
    pid_started_at: int | None
    state_before: str | None
    state_after: str | None
    usage: Mapping[str, JsonValue] | None
    exit_code: int | None
    bound_project_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunEventRows:
    """One event of a run, on its way through the writer."""

    row: Fields

    @classmethod
    def write(cls, connection: Connection, entries: Sequence["RunEventRows"]) -> None:
        """Insert the events. Raises IntegrityError for a run without a row."""
        connection.execute(insert(run_events), [entry.row for entry in entries])


class RunStore:
    """The runs of every process. Methods are synchronous and wait for the disk, except `note`."""

    def __init__(self, database: Database, writer: GroupWriter, *, now: Callable[[], datetime]) -> None:
        self._database = database
        self._writer = writer
        self._now = now

    def create(self, run: Run) -> None:
        """Insert the run. Raises StateConflict when the id exists."""
        try:
            with self._database.write() as connection:
                connection.execute(insert(runs), {name: _column(getattr(run, name)) for name in _FIELDS})
        except IntegrityError as exc:
            raise StateConflict(f"run {run.run_id} exists already") from exc

    def update(self, run_id: str, **changes: Unpack[RunChanges]) -> Run:
        """Change fields and return the run as it is now. A final state sets `ended_at`.

        Raises NotStored for an unknown run; StateConflict for a state that does not follow (`NEXT`), so that a run that
        another process has ended stays as it ended.
        """
        with self._database.write() as connection:
            run = _require(connection, run_id)
            values: dict[str, Any] = {name: _column(value) for name, value in changes.items()}
            state = changes.get("state")
            if state is not None and state is not run.state:
                if state not in NEXT[run.state]:
                    raise StateConflict(f"run {run_id} is {run.state}; it cannot become {state}")
                if state in FINAL:
                    values["ended_at"] = to_text(self._now())
            if values:
                connection.execute(update(runs).where(runs.c.run_id == run_id).values(**values))
            return _require(connection, run_id)

    def show(self, run_id: str) -> Run | None:
        """Return the run, or None."""
        with self._database.read() as connection:
            row = connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
        return None if row is None else _run(row)

    def list(self, *, state: RunState | None = None, issue: str | None = None, limit: int = 100) -> tuple[Run, ...]:
        """Return the newest runs, newest last. `issue` is an id or an identifier."""
        statement = select(runs).order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(limit)
        if state is not None:
            statement = statement.where(runs.c.state == state.value)
        if issue is not None:
            statement = statement.where((runs.c.issue_id == issue) | (runs.c.identifier == issue))
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
        return tuple(_run(row) for row in reversed(rows))

    def live_runs(self) -> tuple[Run, ...]:
        """Return every run in a state that is not final, oldest first, with the identity of its process."""
        live = [state.value for state in RunState if state not in FINAL]
        with self._database.read() as connection:
            rows = connection.execute(select(runs).where(runs.c.state.in_(live)).order_by(runs.c.started_at)).all()
        return tuple(_run(row) for row in rows)

    def mark_interrupted(self, run_id: str, reason: str) -> bool:
        """End a run whose process is gone. False when it has ended already, here or by another process.

        Raises NotStored for an unknown run.
        """
        with self._database.write() as connection:
            if _require(connection, run_id).state in FINAL:
                return False
            ended = {"state": RunState.INTERRUPTED.value, "reason": reason, "ended_at": to_text(self._now())}
            connection.execute(update(runs).where(runs.c.run_id == run_id).values(**ended))
        return True

    def note(self, run_id: str, name: str, facts: Mapping[str, JsonValue], *, at: datetime) -> None:
        """Add an event to a run, durable within 100 ms. `facts` must hold no secret.

        Raises StoreUnavailable while the last write has failed, and core's JsonRejected for facts that are no JSON.
        """
        row: Fields = {"run_id": run_id, "at": to_text(at), "name": name, "facts": encode(snapshot(facts))}
        self._writer.later(RunEventRows(row=row))

    def note_durably(self, run_id: str, name: str, facts: Mapping[str, JsonValue], *, at: datetime) -> None:
        """Add an event and wait until it is on the disk, for what recovery must find. Raises StoreUnavailable."""
        row: Fields = {"run_id": run_id, "at": to_text(at), "name": name, "facts": encode(snapshot(facts))}
        with self._database.write() as connection:
            RunEventRows.write(connection, [RunEventRows(row=row)])

    def events(self, run_id: str, *, after: int = 0, limit: int = 1_000) -> tuple[JsonObject, ...]:
        """Return events of a run in their order: `event_id, at, name, facts`. Page on with the last `event_id`."""
        statement = (
            select(run_events)
            .where(run_events.c.run_id == run_id, run_events.c.event_id > after)
            .order_by(run_events.c.event_id)
            .limit(limit)
        )
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
        return tuple(
            {"event_id": row.event_id, "at": row.at, "name": row.name, "facts": parse(row.facts)} for row in rows
        )

    def accept(self, run_id: str, *, who: str, what: str) -> None:
        """Record that a person accepted a run's work. Raises StateConflict for an unknown run."""
        row = {"run_id": run_id, "who": who, "what": what, "at": to_text(self._now())}
        try:
            with self._database.write() as connection:
                connection.execute(insert(acceptance), row)
        except IntegrityError as exc:
            raise StateConflict(f"there is no run {run_id}") from exc

    def acceptances(self, run_id: str) -> tuple[JsonObject, ...]:
        """Return who accepted what of a run, oldest first."""
        statement = select(acceptance).where(acceptance.c.run_id == run_id).order_by(acceptance.c.acceptance_id)
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
        return tuple({"run_id": row.run_id, "who": row.who, "what": row.what, "at": row.at} for row in rows)


def _require(connection: Connection, run_id: str) -> Run:
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
    if row is None:
        raise NotStored(f"there is no run {run_id}")
    return _run(row)


def _run(row: Row[Any]) -> Run:
    values = dict(row._mapping)
    usage = None if row.usage is None else parse(row.usage)
    assert usage is None or isinstance(usage, dict)
    values.update(
        state=RunState(row.state),
        usage=usage,
        started_at=to_instant(row.started_at),
        ended_at=optional_instant(row.ended_at),
    )
    return Run(**values)


def _column(value: object) -> str | int | None:
    if isinstance(value, datetime):
        return optional_text(value)
    if isinstance(value, Mapping):
        return encode(snapshot(value))
    if isinstance(value, StrEnum):
        return value.value
    assert value is None or isinstance(value, str | int)
    return value


def _json(value: object) -> JsonValue:
    return snapshot(value) if isinstance(value, Mapping) else _column(value)
