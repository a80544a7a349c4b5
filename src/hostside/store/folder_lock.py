"""One process at a time prepares the database of a folder."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostside.errors import ConfigError

_WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.02


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's advisory lock. SQLite's own locks do not cover the switch to write-ahead logging.

    Raises ConfigError when another process holds it for longer than 30 seconds.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _locked(handle):
            if time.monotonic() > deadline:
                raise ConfigError(
                    "invalid_configuration",
                    f"{folder}: another process has been preparing the database for {_WAIT_SECONDS:.0f} seconds.",
                    remedy="End the other hostside process, then start again.",
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
