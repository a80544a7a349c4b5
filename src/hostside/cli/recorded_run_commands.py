"""`hostside runs list|show|stop`."""

from pathlib import Path
from typing import Any

from hostside.app.host import App, utc_now
from hostside.app.stopping import stop_run
from hostside.cli.output import fields, moment, note, plain, print_json, say, table
from hostside.cli.stopping import DONE, CommandFailed, not_found
from hostside.core.canonical import JsonObject
from hostside.errors import ConfigError
from hostside.store.runs import Run, RunState
from hostside.worker.run_recovery import forget_old_homes, recover

_HEADER = ("RUN", "STATE", "ISSUE", "AGENT", "EDGE", "ISOLATION", "STARTED", "ENDED", "REASON")
MAX_EVENTS = 1_000


def list_runs(*, state: str | None, issue: str | None, limit: int, as_json: bool, config: Path | None) -> int:
    """Print runs, newest last, after those left over by a dead host are ended."""
    if state is not None and state not in tuple(RunState):
        raise ConfigError(
            "invalid_configuration", f"there is no state {state}.", remedy=f"Use one of: {', '.join(RunState)}."
        )
    with App.open(config=config) as app:
        end_leftovers(app)
        runs = app.runs.list(state=None if state is None else RunState(state), issue=issue, limit=limit)
    if as_json:
        print_json({"runs": [run.as_object() for run in runs]})
        return DONE
    for line in table([_row(run) for run in runs], header=_HEADER) if runs else ["no runs"]:
        say(line)
    return DONE


def show_run(run_id: str, *, as_json: bool, config: Path | None) -> int:
    """Print one run with its sessions and events. Raises CommandFailed for an unknown one."""
    with App.open(config=config) as app:
        end_leftovers(app)
        run = app.runs.show(run_id)
        if run is None:
            raise _no_run(run_id)
        sessions = app.sessions.list(run_id=run_id)
        events = app.runs.events(run_id, limit=MAX_EVENTS)
        accepted = app.runs.acceptances(run_id)
    url = _server_url(events)
    if as_json:
        more = {"url": url, "sessions": list(sessions), "events": list(events), "acceptances": list(accepted)}
        print_json({**run.as_object(), **more})
        return DONE
    shown = {name: value for name, value in run.as_object().items() if value is not None}
    for line in fields({**shown, "url": url or "none: no port was opened"}):
        say(line)
    for row in sessions:
        expiry = f"expires {moment(row['expires_at'])}"
        ended = f"revoked {moment(row['revoked_at'])}" if row["revoked_at"] else expiry
        say(plain(f"session   {row['session_id']} · attempt {row['attempt']} · {row['edge']} · token {ended}"))
    say()
    for event in events:
        say(plain(f"{moment(event['at'])}  {event['name']}"))
    note(f"its calls: hostside receipts list --run {run_id}")
    return DONE


def stop(run_id: str, *, seconds: int, as_json: bool, config: Path | None) -> int:
    """Stop a run. Raises CommandFailed for an unknown one, and for one that has not ended in time."""
    with App.open(config=config) as app:
        found = stop_run(app, run_id, seconds=seconds)
    if found is None:
        raise _no_run(run_id)
    if not found.ended:
        raise CommandFailed(
            "timed_out",
            f"run {run_id} was asked to stop and is still {found.run.state}; its token is dead.",
            remedy=f"Wait and look again, or end its process: kill -9 {found.run.pid}; then `hostside runs list`.",
        )
    if as_json:
        print_json({"ok": True, "run_id": run_id, "state": found.run.state.value, "signalled": found.signalled})
    else:
        say(plain(f"{run_id}  {found.run.state} ({found.run.reason or '-'})"))
    return DONE


def end_leftovers(app: App) -> None:
    """End every run whose host is gone, and say which."""
    for run_id in recover(app.database, app.runs, app.sessions, now=utc_now):
        note(plain(f"run {run_id} was left over by a dead host; it is ended now and its token is dead"))
    forget_old_homes(app.paths.runs, app.runs, now=utc_now)


def _no_run(run_id: str) -> CommandFailed:
    return not_found("run", run_id, remedy="`hostside runs list` shows them.")


def _server_url(events: tuple[JsonObject, ...]) -> str | None:
    urls: list[Any] = []
    for event in events:
        facts = event["facts"]
        if event["name"] == "edge_started" and isinstance(facts, dict) and facts.get("url"):
            urls.append(facts.get("url"))
    return None if not urls else str(urls[-1])


def _row(run: Run) -> tuple[object, ...]:
    facts = run.as_object()
    times = moment(facts["started_at"]), moment(facts["ended_at"])
    words = run.identifier or "-", run.agent, run.edge or "-", run.isolation or "-"
    return run.run_id, run.state.value, *words, *times, run.reason or "-"
