"""After a crash: runs whose host is gone are ended, their children too, their tokens revoked, their calls closed (R-219)."""

import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from hostside.core.canonical import JsonValue
from hostside.store.database import Database
from hostside.store.recovery import close_as_unknown, open_calls
from hostside.store.runs import Run, RunStore
from hostside.store.sessions import SessionStore
from hostside.worker.process_identity import kill_recorded, started_at
from hostside.worker.removal import remove_tree

REASON = "host_gone"
HOMES_KEPT = timedelta(days=14)
_log = logging.getLogger(__name__)


def recover(
    database: Database, runs: RunStore, sessions: SessionStore, *, now: Callable[[], datetime]
) -> tuple[str, ...]:
    """End every run whose host process is gone; return their ids. Safe to run at any time, by any process.

    Order matters: the token dies first, then the children, then the calls they left open are closed as unknown, and
    only then is the run final, so that a crash in the middle is taken up by the next pass.
    """
    ended = []
    for run in runs.live_runs():
        if _is_alive(run):
            continue
        sessions.revoke_run(run.run_id)
        if not _ended(runs, run):
            continue  # the next pass tries again; until then the run is not called over
        for call in open_calls(database, run_id=run.run_id):
            close_as_unknown(database, call.receipt_id, at=now())
        if runs.mark_interrupted(run.run_id, REASON):
            ended.append(run.run_id)
    return tuple(ended)


def forget_old_homes(folder: Path, runs: RunStore, *, now: Callable[[], datetime]) -> tuple[str, ...]:
    """Remove the homes of runs that ended more than `HOMES_KEPT` ago, with their transcripts; return their names.

    They are kept that long so that a conversation can be gone back to. What is no run's is judged by its own age.
    """
    gone = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return ()
    for name in names:
        run = runs.show(name)
        changed = datetime.fromtimestamp(os.lstat(folder / name).st_mtime, now().tzinfo)
        since = changed if run is None else run.ended_at
        if since is not None and now() - since > HOMES_KEPT and remove_tree(folder / name):
            gone.append(name)
    return tuple(gone)


def _ended(runs: RunStore, run: Run) -> bool:
    try:
        for pid, ticks in _children(runs, run):
            kill_recorded(pid, ticks)
    except (TimeoutError, PermissionError):
        _log.warning("a process of a dead run cannot be ended", extra={"run_id": run.run_id})
        return False
    return True


def _is_alive(run: Run) -> bool:
    return run.pid is not None and run.pid_started_at is not None and started_at(run.pid) == run.pid_started_at


def _children(runs: RunStore, run: Run) -> list[tuple[int, int]]:
    found, after = [], 0
    while page := runs.events(run.run_id, after=after):
        after = _number(page[-1]["event_id"])
        for event in page:
            facts = event["facts"]
            if event["name"] in ("agent_started", "process_started") and isinstance(facts, dict):
                pid, ticks = _number(facts.get("pid")), _number(facts.get("pid_started_at"))
                if pid > 1 and ticks > 0:
                    found.append((pid, ticks))
    return found


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
