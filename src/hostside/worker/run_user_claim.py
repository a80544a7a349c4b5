"""Who else runs as the user of a run: at level `user` nobody, since processes of one user read and signal each other (D9).

A run at level `user` holds its user alone; runs at `bwrap` share it among themselves, since each has its own processes. All
of that user's processes end with a run that had it alone, those that left the agent's process group too (R-341).
"""

import fcntl
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from hostside.config.paths import make_private
from hostside.core.gateway import EventSink
from hostside.errors import ConfigError
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.process import RunUser
from hostside.worker.run_places import make_passage
from hostside.worker.run_user import told

_LOCKS = ".locks"
_ROUNDS = 50
_ENDS_MS = 500
_NAMED = 5
_RUN_ID = b"HOSTSIDE_RUN_ID="


class RunUserBusy(ConfigError):
    """Another run has this user, or processes of it are there that belong to no run. Nothing was started."""

    reason = "run_user_busy"

    def __init__(self, user: RunUser, why: str, *, remedy: str) -> None:
        super().__init__("invalid_configuration", f"run.user {told(user)} is busy: {why}.", remedy=remedy)


@asynccontextmanager
async def claimed(
    user: RunUser | None, level: IsolationLevel, homes: Path, event: EventSink = lambda _name, _facts: None
) -> AsyncIterator[None]:
    """Hold `user` while the block runs: alone at level `user`, with others at `bwrap`. Without a user, nothing is held.

    The lock is in `homes` and ends with its holder, also with a killed one. Alone, the processes that dead runs of these
    `homes` left are ended first, and on leaving every process of the user is; `processes_left` tells of those that would
    not end. Raises RunUserBusy, and ConfigError as `make_passage` does.
    """
    if user is None:
        yield
        return
    alone = level is IsolationLevel.USER
    root = make_passage(homes, user)
    handle = _lock(root, user, alone=alone)
    try:
        if alone:
            await anyio.to_thread.run_sync(_clear, root, user)
        try:
            yield
        finally:
            if alone:
                with anyio.CancelScope(shield=True):
                    left = await anyio.to_thread.run_sync(end_processes, user)
                if left:
                    event("processes_left", {"uid": user.uid, "pids": list(left)})
    finally:
        os.close(handle)


def processes_of(user: RunUser) -> tuple[int, ...]:
    """Return the numbers of all living processes whose real user is `user`."""
    return tuple(sorted(int(name) for name in os.listdir("/proc") if name.isdecimal() and _is_of(int(name), user)))


def end_processes(user: RunUser) -> tuple[int, ...]:
    """Kill every process of `user` until there is none; return what is left after 50 rounds."""
    for _ in range(_ROUNDS):
        found = processes_of(user)
        if not found:
            return ()
        for pid in found:
            _kill(pid, user)
    return processes_of(user)


def _lock(root: Path, user: RunUser, *, alone: bool) -> int:
    path = make_private(root / _LOCKS) / f"user-{user.uid}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RunUserBusy(
            user,
            "another run has it, and at isolation level user two runs of one user could read each other",
            remedy="Wait for that run (`hostside runs list`), give this one another run.user, or use --isolation bwrap.",
        ) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _clear(root: Path, user: RunUser) -> None:
    """End what dead runs left; refuse when somebody else has processes of this user."""
    for pid in processes_of(user):
        if _is_ours(pid, root):
            _kill(pid, user)
    if left := processes_of(user):
        shown = ", ".join(map(str, left[:_NAMED])) + (" and more" if len(left) > _NAMED else "")
        raise RunUserBusy(
            user,
            f"it has processes that are no run's ({shown})",
            remedy=f"End them (pkill -KILL -u {user.uid}), or name a user as run.user that nothing else uses.",
        )


def _is_ours(pid: int, root: Path) -> bool:
    """Whether a process is of a run whose home is below `root`. We hold the lock, so that run is dead."""
    with suppress(OSError):
        for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if item.startswith(_RUN_ID):
                name = os.fsdecode(item.removeprefix(_RUN_ID))
                return bool(name) and "/" not in name and not name.startswith(".") and (root / name).is_dir()
    return False


def _is_of(pid: int, user: RunUser) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return False
    facts = dict(line.partition(":")[::2] for line in status.splitlines())
    uids, state = facts.get("Uid", "").split(), facts.get("State", "").split()
    return uids[:1] == [str(user.uid)] and state[:1] not in (["Z"], ["X"])


def _kill(pid: int, user: RunUser) -> None:
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            # Compared after the handle is open: from here on it names this one process.
            if _is_of(pid, user):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                poll = select.poll()
                poll.register(process, select.POLLIN)
                poll.poll(_ENDS_MS)
        finally:
            os.close(process)
