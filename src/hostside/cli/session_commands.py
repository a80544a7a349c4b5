"""`hostside sessions open|list|revoke`."""

import shlex
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import uvloop

from hostside.app.host import App, utc_now
from hostside.app.http_sessions import TOKEN_VARIABLE, open_http_session
from hostside.app.server_records import ServerFolder
from hostside.cli.output import fields, moment, note, plain, print_json, say, table
from hostside.cli.stopping import DONE, not_found
from hostside.core.canonical import JsonObject
from hostside.store.instants import to_instant
from hostside.store.session_records import read_session

_HEADER = ("SESSION", "STATE", "EDGE", "PROFILE", "ISSUE", "RUN", "OPENED", "EXPIRES", "EVENTS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person asked for; None leaves it to the server or the configuration."""

    issue: str | None
    tracker: str | None
    profile: str | None
    workspace: Path | None
    server: str | None
    minutes: int


def open_session(wishes: Wishes, *, as_json: bool, config: Path | None) -> int:
    """Open a session on a running server and print its token. It is in no file and cannot be shown again."""

    async def work() -> JsonObject:
        with App.open(config=config) as app:
            server = ServerFolder(app.paths).find(wishes.server)
            return await open_http_session(
                app,
                server,
                issue=wishes.issue,
                tracker=wishes.tracker,
                profile=wishes.profile,
                workspace=wishes.workspace,
                life=timedelta(minutes=wishes.minutes),
            )

    opened = uvloop.run(work())
    if as_json:
        print_json(opened)
        return DONE
    shown = {"session": opened["session_id"], "url": opened["url"], "token": opened["token"]}
    for line in fields({**shown, "expires": moment(opened["expires_at"])}):
        say(line)
    arguments = opened["codex_args"]
    assert isinstance(arguments, list)
    note("the token is shown once; --json also gives the client's configuration")
    note(plain(f"codex: {TOKEN_VARIABLE}=TOKEN codex {shlex.join(map(str, arguments))}"))
    return DONE


def list_sessions(*, run: str | None, open_only: bool, limit: int, as_json: bool, config: Path | None) -> int:
    """Print sessions, newest last."""
    with App.open(config=config) as app:
        rows = app.sessions.list(run_id=run, open_only=open_only, limit=limit)
    if as_json:
        print_json({"sessions": list(rows)})
        return DONE
    for line in table([_row(row) for row in rows], header=_HEADER) if rows else ["no sessions"]:
        say(line)
    return DONE


def revoke_session(session_id: str, *, as_json: bool, config: Path | None) -> int:
    """Revoke a session; one that was revoked before stays so. Raises CommandFailed for an unknown one."""
    with App.open(config=config) as app:
        if read_session(app.database, session_id) is None:
            raise not_found("session", session_id, remedy="`hostside sessions list` shows them.")
        revoked = app.sessions.revoke(session_id)
    if as_json:
        print_json({"ok": True, "session_id": session_id, "revoked": revoked})
    else:
        say(plain(f"{session_id}  {'revoked' if revoked else 'was revoked before'}"))
    return DONE


def _row(row: JsonObject) -> tuple[object, ...]:
    if row["revoked_at"] is not None:
        state = "revoked"
    else:
        state = "open" if to_instant(str(row["expires_at"])) > utc_now() else "expired"
    issue, run = row["issue_identifier"] or "-", row["run_id"] or "-"
    times = moment(row["opened_at"]), moment(row["expires_at"])
    return row["session_id"], state, row["edge"], row["profile"], issue, run, *times, row["receipt_events"]
