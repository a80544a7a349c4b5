"""Sessions, events and runs with every field set, for the store's tests."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.issue import Issue
from hostside.core.locality import NO_REACH
from hostside.core.policy import Profile
from hostside.core.receipt import Finished, Outcome, Started
from hostside.core.registry import Registry, RegistrySnapshot
from hostside.core.session import Session, open_session
from hostside.errors import Effect, FailureCode
from hostside.store.database import Database, open_database
from hostside.store.receipts import ReceiptStore
from hostside.store.runs import Run, RunState, RunStore
from hostside.store.sessions import SessionStore
from hostside.store.writer import GroupWriter

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OUTCOME: JsonObject = {"structured": {"comment_id": "c-1"}, "effect": "reported"}
EMPTY = Registry().snapshot()


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> datetime:
        return self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One process's view of a database file."""

    database: Database
    writer: GroupWriter
    receipts: ReceiptStore
    sessions: SessionStore
    runs: RunStore
    clock: Clock

    def close(self) -> None:
        """Close the writer, then the file."""
        self.writer.close()
        self.database.close()


def open_store(path: Path) -> Store:
    """Open the file with everything on top of it."""
    database, clock = open_database(path), Clock()
    writer = GroupWriter(database)
    return Store(
        database=database,
        writer=writer,
        receipts=ReceiptStore(database, writer),
        sessions=SessionStore(database, now=clock),
        runs=RunStore(database, writer, now=clock),
        clock=clock,
    )


def session(
    session_id: str = "s-1",
    *,
    run_id: str | None = None,
    identifier: str = "PAY-12",
    hours: float = 4,
    registry: RegistrySnapshot = EMPTY,
) -> Session:
    """Return an open session on an issue."""
    return open_session(
        session_id=session_id,
        registry=registry,
        edge="http",
        server_id="server-1",
        principal=f"agent:{session_id}",
        profile=Profile.FULL,
        reach=NO_REACH,
        opened_at=NOW,
        expires_at=NOW + timedelta(hours=hours),
        run_id=run_id,
        issue=Issue(id=f"id-of-{identifier}", identifier=identifier, title="Fix it", state="Todo", dispatchable=True),
    )


def run(run_id: str = "run-1", *, state: RunState = RunState.PREPARING, identifier: str = "PAY-12") -> Run:
    """Return a new run."""
    return Run(
        run_id=run_id,
        kind="issue",
        state=state,
        agent="scripted",
        started_by="alice",
        started_at=NOW,
        issue_id=f"id-of-{identifier}",
        identifier=identifier,
        policy_sha256="ab" * 32,
    )


def started(
    receipt_id: str,
    session_id: str = "s-1",
    *,
    run_id: str | None = None,
    tool: str = "add_comment",
    arguments: JsonValue = None,
    issue_id: str | None = "id-of-PAY-12",
) -> Started:
    """Return the start of a call."""
    return Started(
        receipt_id=receipt_id,
        at=NOW,
        session_id=session_id,
        run_id=run_id,
        issue_id=issue_id,
        edge="http",
        principal=f"agent:{session_id}",
        workspace_id=None,
        registry_fingerprint=EMPTY.fingerprint,
        tool=tool,
        tool_version="1",
        call_key=None,
        operation_id=f"operation-of-{receipt_id}",
        arguments_fingerprint="f" * 64,
        arguments_redacted={"body": "hello"} if arguments is None else arguments,
    )


def finished(
    receipt_id: str,
    session_id: str = "s-1",
    *,
    outcome: Outcome = Outcome.OK,
    code: FailureCode | None = None,
    effect: Effect = Effect.REPORTED,
) -> Finished:
    """Return the end of a call."""
    return Finished(
        receipt_id=receipt_id,
        at=NOW + timedelta(seconds=1),
        session_id=session_id,
        outcome=outcome,
        code=code,
        effect=effect,
        exit_code=None,
        result_sha256="e" * 64,
        result_bytes=20,
        duration_ms=1_000,
    )


def record(store: Store, receipt_id: str, session_id: str = "s-1", *, tool: str = "get_issue") -> None:
    """Record a read."""
    store.receipts.record(
        started(receipt_id, session_id, tool=tool), finished(receipt_id, session_id, effect=Effect.NONE)
    )
