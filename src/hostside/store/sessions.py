"""Sessions and their tokens (D10). A token is shown once; the file holds its SHA-256 alone (R-215)."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from hostside.core.canonical import JsonObject
from hostside.core.session import Session
from hostside.store.database import Database
from hostside.store.faults import NotStored, StateConflict
from hostside.store.instants import optional_instant, to_instant, to_text
from hostside.store.session_facts import session_row
from hostside.store.tables import sessions, tokens

MAX_TOKEN_LIFE = timedelta(hours=24)
TOKEN_PREFIX = "hst_"
_TOKEN_BYTES = 32
_TOKEN_LENGTH = len(TOKEN_PREFIX) + 43

_AUTHENTICATE = (
    select(
        tokens,
        sessions.c.run_id,
        sessions.c.expires_at.label("session_expires_at"),
        sessions.c.revoked_at.label("session_revoked_at"),
    )
    .join(sessions, sessions.c.session_id == tokens.c.session_id)
    .where(tokens.c.sha256 == bindparam("sha256"))
)
_OPEN = select(sessions.c.expires_at, sessions.c.revoked_at).where(sessions.c.session_id == bindparam("session_id"))


class TokenKind(StrEnum):
    """What a token opens: the tool edge, or the model proxy alone."""

    EDGE = "edge"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token as the host knows it, never its text. `expires_at` and `revoked_at` are aware UTC."""

    sha256: str
    session_id: str
    run_id: str | None
    kind: TokenKind
    server_id: str
    expires_at: datetime
    revoked_at: datetime | None


class SessionStore:
    """The session and token rows of every process. Methods are synchronous; only `authenticate` and `is_open` are quick
    enough for an event loop, the others write and wait for the disk."""

    def __init__(self, database: Database, *, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def open(self, session: Session) -> None:
        """Insert the session's row, with an empty chain. Its registry is kept by fingerprint.

        Raises StateConflict when the id exists or the run it names does not.
        """
        try:
            with self._database.write() as connection:
                connection.execute(insert(sessions), session_row(session))
        except IntegrityError as exc:
            raise StateConflict(f"session {session.session_id} exists already, or its run does not") from exc

    def mint_token(self, session_id: str, kind: TokenKind, *, server_id: str, expires_at: datetime) -> str:
        """Return a new token: `hst_` and 256 random bits. It lives until `expires_at`, the end of its session or 24
        hours from now, whichever comes first.

        Raises NotStored for an unknown session; StateConflict when the session is over, or holds a live token of this
        kind: there is at most one, and handing out a second would leave two ways in.
        """
        token = new_token()
        now = self._now()
        with self._database.write() as connection:
            session = self._live_session(connection, session_id, now)
            earlier = connection.execute(
                select(tokens).where(tokens.c.session_id == session_id, tokens.c.kind == kind.value)
            ).first()
            if earlier is not None:
                if earlier.revoked_at is None and to_instant(earlier.expires_at) > now:
                    raise StateConflict(f"session {session_id} has a live {kind} token")
                connection.execute(tokens.delete().where(tokens.c.sha256 == earlier.sha256))
            row = {
                "sha256": token_sha256(token),
                "session_id": session_id,
                "kind": kind.value,
                "server_id": server_id,
                "expires_at": to_text(min(expires_at, now + MAX_TOKEN_LIFE, to_instant(session.expires_at))),
                "revoked_at": None,
            }
            connection.execute(insert(tokens), row)
        return token

    def authenticate(self, token_text: str, *, server_id: str, kind: TokenKind, now: datetime) -> TokenRecord | None:
        """Return the token's record, or None: unknown, expired, revoked, of another server or kind, or its session over.

        One lookup, no write, about 0.1 ms. A revocation by any process counts from the next call on. Raises
        StoreUnavailable when the file cannot be read: not authenticated either.
        """
        if len(token_text) != _TOKEN_LENGTH or not token_text.startswith(TOKEN_PREFIX) or not token_text.isascii():
            return None
        sha256 = token_sha256(token_text)
        row = self._database.lookup(_AUTHENTICATE, {"sha256": sha256})
        if row is None or not hmac.compare_digest(row.sha256, sha256):
            return None
        record = _token_record(row)
        if not hmac.compare_digest(record.server_id.encode(), server_id.encode()) or record.kind is not kind:
            return None
        over = record.revoked_at is not None or row.session_revoked_at is not None
        if over or now >= record.expires_at or now >= to_instant(row.session_expires_at):
            return None
        return record

    def is_open(self, session_id: str, *, now: datetime) -> bool:
        """Return whether the session exists, is not revoked and not past its end. One lookup, as `authenticate`."""
        row = self._database.lookup(_OPEN, {"session_id": session_id})
        return row is not None and row.revoked_at is None and now < to_instant(row.expires_at)

    def revoke_token(self, sha256: str) -> bool:
        """Revoke one token; return whether it was live until now."""
        return self._revoke(tokens.c.sha256 == sha256, None) > 0

    def revoke(self, session_id: str) -> bool:
        """Revoke a session and its tokens; return whether the session was not revoked before."""
        return self._revoke(tokens.c.session_id == session_id, sessions.c.session_id == session_id) > 0

    def revoke_run(self, run_id: str) -> int:
        """Revoke every session of a run with its tokens; return how many sessions were not revoked before."""
        of_run = select(sessions.c.session_id).where(sessions.c.run_id == run_id)
        return self._revoke(tokens.c.session_id.in_(of_run), sessions.c.run_id == run_id)

    def revoke_server(self, server_id: str) -> int:
        """Revoke every session of a server with its tokens: they end with it (R-218). Returns how many were open."""
        of_server = select(sessions.c.session_id).where(sessions.c.server_id == server_id)
        return self._revoke(tokens.c.session_id.in_(of_server), sessions.c.server_id == server_id)

    def list(self, *, run_id: str | None = None, open_only: bool = False, limit: int = 100) -> tuple[JsonObject, ...]:
        """Return sessions as JSON objects, `session_id` first, newest last. Tokens appear by kind and time alone."""
        statement = select(sessions).order_by(sessions.c.opened_at.desc(), sessions.c.session_id.desc()).limit(limit)
        if run_id is not None:
            statement = statement.where(sessions.c.run_id == run_id)
        if open_only:
            now = to_text(self._now())
            statement = statement.where(sessions.c.revoked_at.is_(None), sessions.c.expires_at > now)
        with self._database.read() as connection:
            rows = connection.execute(statement).all()
            held = connection.execute(
                select(tokens).where(tokens.c.session_id.in_([row.session_id for row in rows])).order_by(tokens.c.kind)
            ).all()
        return tuple(
            _listed(row, [token for token in held if token.session_id == row.session_id]) for row in reversed(rows)
        )

    def tokens(self, session_id: str) -> tuple[TokenRecord, ...]:
        """Return the records of a session's tokens, by kind."""
        statement = (
            select(tokens, sessions.c.run_id)
            .join(sessions, sessions.c.session_id == tokens.c.session_id)
            .where(tokens.c.session_id == session_id)
            .order_by(tokens.c.kind)
        )
        with self._database.read() as connection:
            return tuple(_token_record(row) for row in connection.execute(statement))

    def _live_session(self, connection: Connection, session_id: str, now: datetime) -> Row[Any]:
        row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).first()
        if row is None:
            raise NotStored(f"there is no session {session_id}")
        if row.revoked_at is not None or now >= to_instant(row.expires_at):
            raise StateConflict(f"session {session_id} is over")
        return row

    def _revoke(self, which_tokens: Any, which_sessions: Any) -> int:
        at = to_text(self._now())
        with self._database.write() as connection:
            count = connection.execute(
                update(tokens).where(which_tokens, tokens.c.revoked_at.is_(None)).values(revoked_at=at)
            ).rowcount
            if which_sessions is not None:
                count = connection.execute(
                    update(sessions).where(which_sessions, sessions.c.revoked_at.is_(None)).values(revoked_at=at)
                ).rowcount
        return count


def new_token() -> str:
    """Return `hst_` and 256 random bits as 43 characters of base64url."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_sha256(token: str) -> str:
    """Return what the store keeps of a token. The token is 256 random bits, so no salt or slow hash is due."""
    return hashlib.sha256(token.encode("ascii", "replace")).hexdigest()


def _token_record(row: Row[Any]) -> TokenRecord:
    return TokenRecord(
        sha256=row.sha256,
        session_id=row.session_id,
        run_id=row.run_id,
        kind=TokenKind(row.kind),
        server_id=row.server_id,
        expires_at=to_instant(row.expires_at),
        revoked_at=optional_instant(row.revoked_at),
    )


def _listed(row: Row[Any], held: "list[Row[Any]]") -> JsonObject:
    return {
        "session_id": row.session_id,
        "run_id": row.run_id,
        "attempt": row.attempt,
        "edge": row.edge,
        "server_id": row.server_id,
        "principal": row.principal,
        "issue_id": row.issue_id,
        "issue_identifier": row.issue_identifier,
        "profile": row.profile,
        "mode": row.mode,
        "registry_fingerprint": row.registry_fingerprint,
        "opened_at": row.opened_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "receipt_events": row.chain_count,
        "tokens": [
            {"kind": token.kind, "expires_at": token.expires_at, "revoked_at": token.revoked_at} for token in held
        ],
    }
