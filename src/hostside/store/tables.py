"""The tables (design §5.1), as the newest migration leaves them; a test compares the two.

Times are text (`instants`), JSON values canonical text (`core.canonical.encode`). Portable on purpose: triggers and the
view stand in the migration, everything else works on another database unchanged (D18).
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

GENESIS = "0" * 64

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_ROW_ID = BigInteger().with_variant(Integer(), "sqlite")

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("attempt", Integer, nullable=False),
    Column("issue_id", Text),
    Column("identifier", Text),
    Column("tracker", Text),
    Column("agent", Text, nullable=False),
    Column("agent_version", Text),
    Column("model", Text),
    Column("edge", Text),
    Column("isolation", Text),
    Column("network", Text),
    Column("native_tools", Text),
    Column("workspace", Text),
    Column("branch", Text),
    Column("workflow_sha256", Text),
    Column("policy_sha256", Text),
    Column("started_by", Text, nullable=False),
    Column("agent_session_id", Text),
    Column("pid", BigInteger),
    Column("pid_started_at", BigInteger),
    Column("state_before", Text),
    Column("state_after", Text),
    Column("usage", Text),
    Column("exit_code", Integer),
    Column("bound_project_id", Text),
    Column("started_at", Text, nullable=False),
    Column("ended_at", Text),
    Index(None, "state"),
    Index(None, "issue_id"),
    Index(None, "started_at"),
)

run_events = Table(
    "run_events",
    metadata,
    Column("event_id", _ROW_ID, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.run_id"), nullable=False),
    Column("at", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Index(None, "run_id", "event_id"),
)

acceptance = Table(
    "acceptance",
    metadata,
    Column("acceptance_id", _ROW_ID, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.run_id"), nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("at", Text, nullable=False),
    Index(None, "run_id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.run_id")),
    Column("attempt", Integer, nullable=False),
    Column("edge", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("issue_id", Text),
    Column("issue_identifier", Text),
    Column("issue", Text),
    Column("workspace", Text),
    Column("registry_fingerprint", Text, nullable=False),
    Column("granted", Text, nullable=False),
    Column("capabilities", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("reach", Text, nullable=False),
    Column("opened_at", Text, nullable=False),
    Column("expires_at", Text, nullable=False),
    Column("revoked_at", Text),
    Column("chain_head", Text, nullable=False),
    Column("chain_count", Integer, nullable=False),
    Index(None, "run_id"),
    Index(None, "issue_identifier"),
    Index(None, "opened_at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.session_id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("expires_at", Text, nullable=False),
    Column("revoked_at", Text),
    UniqueConstraint("session_id", "kind"),
)

#: Append-only: triggers refuse UPDATE and DELETE. One event for a start, one for an end, one `combined` event for a
#: read or a refusal, whose `at` is the start and `ended_at` the end. Null columns are no part of the hash, so that a
#: column added later leaves old hashes as they are.
receipt_events = Table(
    "receipt_events",
    metadata,
    Column("event_id", _ROW_ID, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.session_id"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("receipt_id", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("ended_at", Text),
    Column("prev_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("run_id", Text),
    Column("issue_id", Text),
    Column("edge", Text),
    Column("principal", Text),
    Column("workspace_id", Text),
    Column("registry_fingerprint", Text),
    Column("tool", Text),
    Column("tool_version", Text),
    Column("call_key", Text),
    Column("operation_id", Text),
    Column("arguments_fingerprint", Text),
    Column("arguments_redacted", Text),
    Column("approval_id", Text),
    Column("replay_of", Text),
    Column("outcome", Text),
    Column("code", Text),
    Column("effect", Text),
    Column("exit_code", Integer),
    Column("result_sha256", Text),
    Column("result_bytes", Integer),
    Column("duration_ms", Integer),
    UniqueConstraint("session_id", "seq"),
    UniqueConstraint("receipt_id", "phase"),
    Index(None, "run_id", "event_id"),
    Index(None, "issue_id", "event_id"),
    Index(None, "tool", "event_id"),
)

journal = Table(
    "journal",
    metadata,
    Column("session_id", Text, ForeignKey("sessions.session_id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("receipt_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    PrimaryKeyConstraint("session_id", "key"),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("receipt_id", Text, primary_key=True),
    Column("at", Text, nullable=False),
    Column("result", Text, nullable=False),
    Index(None, "at"),
)

#: One row for each call, from the view that the migration makes. Its own MetaData: it is not a table to be created.
receipts = Table(
    "receipts",
    MetaData(),
    *(Column(name, Text) for name in ("receipt_id", "session_id", "run_id", "issue_id", "issue_identifier")),
    *(Column(name, Text) for name in ("edge", "principal", "workspace_id", "registry_fingerprint")),
    *(Column(name, Text) for name in ("tool", "tool_version", "call_key", "operation_id")),
    *(Column(name, Text) for name in ("arguments_fingerprint", "arguments_redacted", "approval_id", "replay_of")),
    *(Column(name, Text) for name in ("outcome", "code", "effect")),
    Column("exit_code", Integer),
    Column("result_sha256", Text),
    Column("result_bytes", Integer),
    Column("duration_ms", Integer),
    Column("started_at", Text),
    Column("ended_at", Text),
    Column("event_id", _ROW_ID),
)
