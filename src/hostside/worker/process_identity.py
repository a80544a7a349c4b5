"""Telling a recorded process from another one that got the same number, and ending it from any process (R-219)."""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_STARTTIME = 19  # field 22 of /proc/PID/stat, counted from field 3, the first one after the command name
_GONE_MS = 5_000


def started_at(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None when there is no such process, or only its exit code is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command name may contain spaces and parentheses; the last one closes it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[_STARTTIME])


def children_of(pid: int) -> tuple[int, ...]:
    """The direct children of `pid`'s main thread; empty where the kernel does not tell."""
    try:
        return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()))
    except OSError:
        return ()


def kill_group(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal the process group that `pid` leads. Call it only while `pid` is not reaped: its number is then not reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_recorded(pid: int, pid_started_at: int) -> bool:
    """End the process that a run recorded, with its process group and, for a sandbox, everything inside.

    True: it was there and is gone. False: nothing was done, since the process is gone or `pid` is another process by
    now. Waits at most 5 seconds; raises `TimeoutError` when the process is still there (uninterruptible sleep), and
    `PermissionError` when it is another user's.
    """
    with _handle(pid) as process:
        # Compared after the handle is open: from here on it names this one process.
        if process is None or started_at(pid) != pid_started_at:
            return False
        with contextlib.ExitStack() as inner:
            # The sandbox's first process dies a moment after bwrap; when it is gone, so is all of the sandbox.
            waited = [process, *_handles(inner, children_of(pid))]
            if os.getpgid(pid) == pid:
                kill_group(pid)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
            for handle in waited:
                if not _is_readable(handle):
                    raise TimeoutError(f"process {pid} did not end")
    return True


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _handles(stack: contextlib.ExitStack, pids: tuple[int, ...]) -> list[int]:
    opened = [stack.enter_context(_handle(pid)) for pid in pids]
    return [fd for fd in opened if fd is not None]


def _is_readable(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(_GONE_MS))
