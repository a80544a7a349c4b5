"""A session read back from its row: what a process needs that serves it without having opened it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select

from hostside.core.call import Workspace
from hostside.core.canonical import parse
from hostside.core.policy import Mode, Policy, Profile
from hostside.core.spec import Capability
from hostside.store.database import Database
from hostside.store.instants import optional_instant, to_instant
from hostside.store.tables import sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """The frozen facts of a session, without its tools: these are kept by fingerprint. Times are aware UTC."""

    session_id: str
    run_id: str | None
    edge: str
    server_id: str
    principal: str
    issue_id: str | None
    issue_identifier: str | None
    workspace: Workspace | None
    registry_fingerprint: str
    profile: Profile
    mode: Mode
    policy: Policy
    opened_at: datetime
    expires_at: datetime
    revoked_at: datetime | None


def read_session(database: Database, session_id: str) -> SessionRecord | None:
    """Return the session, or None. Raises StoreUnavailable when the file cannot be read."""
    with database.read() as connection:
        row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).first()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> SessionRecord:
    policy, workspace = parse(row.policy), None if row.workspace is None else parse(row.workspace)
    assert isinstance(policy, dict)
    values: Any = policy
    place: Any = workspace
    return SessionRecord(
        session_id=row.session_id,
        run_id=row.run_id,
        edge=row.edge,
        server_id=row.server_id,
        principal=row.principal,
        issue_id=row.issue_id,
        issue_identifier=row.issue_identifier,
        workspace=None if place is None else Workspace(id=place["id"], root=place["root"], branch=place["branch"]),
        registry_fingerprint=row.registry_fingerprint,
        profile=Profile(row.profile),
        mode=Mode(row.mode),
        policy=Policy(
            configuration=frozenset(map(Capability, values["configuration"])),
            confirm=frozenset(values["confirm"]),
            calls_per_minute=values["calls_per_minute"],
            list_unreachable=values["list_unreachable"],
        ),
        opened_at=to_instant(row.opened_at),
        expires_at=to_instant(row.expires_at),
        revoked_at=optional_instant(row.revoked_at),
    )
