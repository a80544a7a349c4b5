"""Stopping a run from another process: its token first, then its host, which cleans up after itself (R-358)."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from hostside.app.host import App, utc_now
from hostside.store.faults import StateConflict
from hostside.store.runs import FINAL, Run, RunState
from hostside.worker.process_identity import started_at
from hostside.worker.run_recovery import recover

STOP_SECONDS = 60.0
_LOOK_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How a stop ended. `signalled`: its process was there and was asked; `ended`: the run is final now."""

    run: Run
    signalled: bool
    ended: bool


def stop_run(app: App, run_id: str, *, seconds: float = STOP_SECONDS) -> Stopped | None:
    """Stop a run and wait at most `seconds` for its end; None when there is no such run.

    Only the very process that the run recorded is signalled (number and start time). One that is gone is recovered
    from, as any command does; a run that has ended is left as it is.
    """
    recover(app.database, app.runs, app.sessions, now=utc_now)
    run = app.runs.show(run_id)
    if run is None or run.state in FINAL:
        return None if run is None else Stopped(run=run, signalled=False, ended=True)
    app.sessions.revoke_run(run_id)
    with contextlib.suppress(StateConflict):  # it ended in this moment
        app.runs.update(run_id, state=RunState.STOPPING, reason="stopped")
    with _process(run) as process:
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGTERM)
            _wait(app, run_id, process, seconds)
    recover(app.database, app.runs, app.sessions, now=utc_now)
    run = app.runs.show(run_id) or run
    return Stopped(run=run, signalled=process is not None, ended=run.state in FINAL)


@contextlib.contextmanager
def _process(run: Run) -> Iterator[int | None]:
    """Give a handle of the run's own host process, or None when that process is gone."""
    try:
        handle = os.pidfd_open(run.pid or 0)
    except OSError:
        yield None
        return
    try:
        # Compared after the handle is open: from here on it names this one process.
        yield handle if started_at(run.pid or 0) == run.pid_started_at else None
    finally:
        os.close(handle)


def _wait(app: App, run_id: str, process: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if poll.poll(_LOOK_MS):
            return
        run = app.runs.show(run_id)
        if run is None or run.state in FINAL:
            return
