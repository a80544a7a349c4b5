"""Removing a folder that an agent has filled: no link is followed, no mode and no depth stops it."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER = 0o700


def remove_tree(folder: Path) -> bool:
    """Remove `folder` and everything in it; True when nothing of it is left. Raises nothing.

    Links are removed, not followed, at any depth. Read-only folders are opened first. Folders are moved up to
    `folder` before they are emptied, so that neither depth nor path length matters; descriptors stay below five. What
    cannot be removed (another user's file, a mount, an immutable file) stays, and the rest goes.
    """
    try:
        parent = os.open(folder.parent, _FOLDER)
    except OSError:
        return not os.path.lexists(folder)
    try:
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            top = _open(folder.name, parent)
            try:
                _empty(top)
            finally:
                os.close(top)
            os.rmdir(folder.name, dir_fd=parent)
            return True
        # A link or a file in the folder's place.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder.name, dir_fd=parent)
        return True
    except OSError:
        return False
    finally:
        os.close(parent)


def _open(name: str, parent: int) -> int:
    """Return a descriptor of the folder `name`, made the owner's to read and change."""
    handle = os.open(name, _FOLDER, dir_fd=parent)
    try:
        # O_PATH opens whatever the mode says; the link in /proc names this very folder, whatever `name` is by now.
        os.chmod(f"/proc/self/fd/{handle}", _OWNER)
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)


def _empty(top: int) -> None:
    """Empty the folder `top`. What resists is passed over: the caller's rmdir then says so."""
    waiting = _clear(top, top)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            handle = _open(name, top)
            try:
                waiting += _clear(handle, top)
            finally:
                os.close(handle)
            os.rmdir(name, dir_fd=top)


def _clear(handle: int, top: int) -> list[str]:
    """Remove the files of one folder and move its folders into `top`; return their names there."""
    moved = []
    for name in os.listdir(handle):
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=handle)
                continue
            if handle == top:
                moved.append(name)
                continue
            os.close(_open(name, handle))  # moving a folder changes it: its mode must allow that
            unique = f"{secrets.token_hex(8)}~"
            os.rename(name, unique, src_dir_fd=handle, dst_dir_fd=top)
            moved.append(unique)
    return moved
