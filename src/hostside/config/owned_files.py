"""Reading and locking files that this user alone decides: never through a link that another user made, never unbounded."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostside.errors import HostsideError

WRITABLE_BY_OTHERS = 0o022
OPEN_TO_OTHERS = 0o077
_POLL_SECONDS = 0.02


class UnsafeFileError(HostsideError):
    """The file may not be believed. The message says why, without its content; `remedy` says what to do."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def read_owned(path: Path, *, max_bytes: int, forbidden: int, follow: bool = True) -> bytes | None:
    """Return the content of a regular file of this user (or of root), None when there is none.

    `forbidden`: mode bits that must not be set. With `follow` off the last part of `path` may not be a link. Raises
    UnsafeFileError: anything else, more than `max_bytes`, or unreadable. A FIFO or a device is refused, not waited for.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise UnsafeFileError(
            f"it cannot be opened ({_reason(exc)})", remedy="Check its path, kind and mode."
        ) from None
    try:
        _check(path, os.fstat(handle), forbidden)
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    except OSError as exc:
        raise UnsafeFileError(f"it cannot be read ({_reason(exc)})", remedy="Check the disk.") from None
    finally:
        os.close(handle)
    if len(content) > max_bytes:
        raise UnsafeFileError(f"it is larger than {max_bytes} bytes", remedy="Check that it is the right file.")
    return content


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock file `path` until it is closed, or None when another holder has it.

    The file is made (0600) where needed and never removed: removing it would let two holders hold two files.
    Raises OSError when it cannot be opened, e.g. because it is a link.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def locked(path: Path, *, wait_seconds: float) -> Iterator[None]:
    """Hold the lock file `path`. Raises TimeoutError when another holder keeps it longer, OSError as `try_lock` does."""
    deadline = time.monotonic() + wait_seconds
    while (handle := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is held by another process")
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(handle)


def _check(path: Path, found: os.stat_result, forbidden: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeFileError("it is not a regular file", remedy="Give the path of a file.")
    if found.st_uid not in (os.geteuid(), 0):
        raise UnsafeFileError("it belongs to another user", remedy="Make a file of your own.")
    if stat.S_IMODE(found.st_mode) & forbidden:
        verb = "read" if forbidden & 0o044 else "changed"
        mode = "600" if forbidden & 0o044 else "go-w"
        raise UnsafeFileError(f"it can be {verb} by others", remedy=f"Run: chmod {mode} {path}")


def _reason(exc: OSError | ValueError) -> str:
    return (exc.strerror or type(exc).__name__) if isinstance(exc, OSError) else type(exc).__name__
