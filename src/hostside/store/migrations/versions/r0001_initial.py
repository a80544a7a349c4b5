"""Receipts with their chain, journal, outcomes, sessions, tokens, runs (D7, D10, design §5.1)."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NUMBERS = {"attempt", "seq", "exit_code", "result_bytes", "duration_ms", "chain_count"}
_LONG = {"pid", "pid_started_at"}

_RUN = (
    "run_id! kind! state! reason attempt! issue_id identifier tracker agent! agent_version model edge isolation network "
    "native_tools workspace branch workflow_sha256 policy_sha256 started_by! agent_session_id pid pid_started_at "
    "state_before state_after usage exit_code bound_project_id started_at! ended_at"
)
_SESSION = (
    "session_id! run_id attempt! edge! server_id! principal! issue_id issue_identifier issue workspace "
    "registry_fingerprint! granted! capabilities! profile! mode! policy! reach! opened_at! expires_at! revoked_at "
    "chain_head! chain_count!"
)
_EVENT = (
    "session_id! seq! phase! receipt_id! at! ended_at prev_hash! hash! run_id issue_id edge principal workspace_id "
    "registry_fingerprint tool tool_version call_key operation_id arguments_fingerprint arguments_redacted approval_id "
    "replay_of outcome code effect exit_code result_sha256 result_bytes duration_ms"
)
_APPEND_ONLY = """
CREATE TRIGGER receipt_events_{what} BEFORE {WHAT} ON receipt_events
BEGIN SELECT RAISE(ABORT, 'receipt events are append-only'); END
"""
_VIEW = """
CREATE VIEW receipts AS
SELECT s.receipt_id, s.session_id, s.run_id, s.issue_id, n.issue_identifier, s.edge, s.principal, s.workspace_id,
       s.registry_fingerprint, s.tool, s.tool_version, s.call_key, s.operation_id, s.arguments_fingerprint,
       s.arguments_redacted, s.approval_id, s.replay_of,
       COALESCE(f.outcome, s.outcome, 'unknown') AS outcome,
       COALESCE(f.code, s.code) AS code,
       COALESCE(f.effect, s.effect, 'unknown') AS effect,
       COALESCE(f.exit_code, s.exit_code) AS exit_code,
       COALESCE(f.result_sha256, s.result_sha256) AS result_sha256,
       COALESCE(f.result_bytes, s.result_bytes) AS result_bytes,
       COALESCE(f.duration_ms, s.duration_ms) AS duration_ms,
       s.at AS started_at,
       COALESCE(f.at, s.ended_at) AS ended_at,
       s.event_id
FROM receipt_events AS s
LEFT JOIN receipt_events AS f ON s.phase = 'started' AND f.receipt_id = s.receipt_id AND f.phase = 'finished'
LEFT JOIN sessions AS n ON n.session_id = s.session_id
WHERE s.phase IN ('started', 'combined')
"""


def upgrade() -> None:
    """Create every table, the append-only triggers and the one-row-per-call view."""
    _create("runs", *_columns(_RUN), sa.PrimaryKeyConstraint("run_id", name="pk_runs"))
    _index("runs", "state")
    _index("runs", "issue_id")
    _index("runs", "started_at")
    _create(
        "run_events",
        _row_id("event_id"),
        *_columns("run_id! at! name! facts!"),
        _belongs("run_events", "run_id", "runs"),
    )
    _index("run_events", "run_id", "event_id")
    _create(
        "acceptance",
        _row_id("acceptance_id"),
        *_columns("run_id! who! what! at!"),
        _belongs("acceptance", "run_id", "runs"),
    )
    _index("acceptance", "run_id")
    _create(
        "sessions",
        *_columns(_SESSION),
        sa.PrimaryKeyConstraint("session_id", name="pk_sessions"),
        _belongs("sessions", "run_id", "runs"),
    )
    _index("sessions", "run_id")
    _index("sessions", "issue_identifier")
    _index("sessions", "opened_at")
    _create(
        "tokens",
        *_columns("sha256! session_id! kind! server_id! expires_at! revoked_at"),
        sa.PrimaryKeyConstraint("sha256", name="pk_tokens"),
        _belongs("tokens", "session_id", "sessions"),
        sa.UniqueConstraint("session_id", "kind", name="uq_tokens_session_id_kind"),
    )
    _receipts()


def _receipts() -> None:
    _create(
        "receipt_events",
        _row_id("event_id"),
        *_columns(_EVENT),
        _belongs("receipt_events", "session_id", "sessions"),
        sa.UniqueConstraint("session_id", "seq", name="uq_receipt_events_session_id_seq"),
        sa.UniqueConstraint("receipt_id", "phase", name="uq_receipt_events_receipt_id_phase"),
    )
    for column in ("run_id", "issue_id", "tool"):
        _index("receipt_events", column, "event_id")
    _create(
        "journal",
        *_columns("session_id! key! receipt_id! tool! fingerprint!"),
        sa.PrimaryKeyConstraint("session_id", "key", name="pk_journal"),
        _belongs("journal", "session_id", "sessions"),
    )
    _create("outcomes", *_columns("receipt_id! at! result!"), sa.PrimaryKeyConstraint("receipt_id", name="pk_outcomes"))
    _index("outcomes", "at")
    for what in ("update", "delete"):
        op.execute(_APPEND_ONLY.format(what=what, WHAT=what.upper()))
    op.execute(_VIEW)


def _create(table: str, *parts: SchemaItem) -> None:
    op.create_table(table, *parts)


def _columns(words: str) -> list[sa.Column[Any]]:
    """Return the columns that `words` names; `!` means NOT NULL."""
    return [_column(word.rstrip("!"), nullable=not word.endswith("!")) for word in words.split()]


def _column(name: str, *, nullable: bool) -> sa.Column[Any]:
    kind: sa.types.TypeEngine[Any] = sa.Text()
    if name in _NUMBERS:
        kind = sa.Integer()
    elif name in _LONG:
        kind = sa.BigInteger()
    return sa.Column(name, kind, nullable=nullable)


def _row_id(name: str) -> sa.Column[Any]:
    return sa.Column(name, _ID, primary_key=True)


def _belongs(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{parent}.{column}"], name=f"fk_{table}_{column}")


def _index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, list(columns))
