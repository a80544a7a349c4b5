"""What the host process does to itself before it reads the first secret (D8)."""

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4


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
