"""What the host process does to itself before it reads the first secret (D8)."""

import ctypes
import errno
import os
import platform
import resource

_PR_SET_DUMPABLE = 4
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEYCTL_SYSCALL = {"x86_64": 250, "aarch64": 219}


def make_undumpable() -> None:
    """Make this process's memory, environment and descriptors unreadable for other processes of the same user, and
    let it write no core dump.

    `/proc/PID` of this process then belongs to root. Processes started later are not affected: exec resets the flag.
    Raises `OSError` when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def leave_session_keyring() -> None:
    """Join a fresh, empty session keyring, so that no process started from this thread inherits the user's keys.

    A login usually links the user's kernel keyring into the session's, and a namespace does not take it away. Call it on
    the thread that starts processes, before the first. Raises `OSError` when the kernel refuses; a kernel without
    keyrings, or a machine whose number for the call is not known here, has nothing to leave.
    """
    number = _KEYCTL_SYSCALL.get(platform.machine())
    if number is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        error = ctypes.get_errno()
        if error != errno.ENOSYS:
            raise OSError(error, os.strerror(error))
