"""The process's own standard input and output, kept for frames alone (C-16).

Imports nothing heavy, so that a command can move the descriptors away before it imports the rest.
"""

import fcntl
import os
import select
from dataclasses import dataclass

import anyio
import anyio.lowlevel

READ_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Two private descriptors that carry frames. Children inherit neither."""

    read_fd: int
    write_fd: int


def move_away(stdin_fd: int = 0, stdout_fd: int = 1) -> Wire:
    """Return private copies of both descriptors, and make the standard ones harmless for the rest of this process.

    Descriptor 0 then reads as empty and 1 writes to standard error: prints, C libraries and children of any kind cannot
    reach the frames. There is no way back, because text that Python or C still buffers would then be flushed into them.
    Descriptors other than 0 and 1 are copied and otherwise left alone.
    """
    wire = Wire(read_fd=_private(stdin_fd), write_fd=_private(stdout_fd))
    if stdin_fd == 0:
        _point(0, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    if stdout_fd == 1:
        _point(1, _standard_error())
    return wire


async def read_some(fd: int) -> bytes:
    """Return the next bytes of `fd`, or none at its end. Blocks no thread and leaves the descriptor's flags alone."""
    while True:
        try:
            await anyio.wait_readable(fd)
        except PermissionError:  # a regular file or the null device: not pollable, and never blocks
            await anyio.lowlevel.checkpoint()
        try:
            return os.read(fd, READ_BYTES)
        except BlockingIOError:
            continue


async def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`. Raises BrokenPipeError when nobody reads."""
    rest = memoryview(data)
    while rest:
        try:
            await anyio.wait_writable(fd)
        except PermissionError:
            await anyio.lowlevel.checkpoint()
        try:
            # A pipe that polls writable takes PIPE_BUF bytes without blocking; more could block the whole loop.
            rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]
        except BlockingIOError:
            continue


def _private(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _point(fd: int, target: int) -> None:
    os.dup2(target, fd)  # inheritable on purpose: it is what children get
    os.close(target)


def _standard_error() -> int:
    try:
        return _private(2)
    except OSError:  # standard error is closed
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
