"""Replacing a file of a workspace as a whole: complete beside it, then swapped in (R-098, R-143, C-06, C-24)."""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable

from hostside.errors import Effect
from hostside.tools.workspace_fs import Place, expected_errors, failed, missing

TEMPORARY_PREFIX = ".hostside-"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE = 0o644
_FOLDER_MODE = 0o755


def replace_file(place: Place, data: bytes, *, before_swap: Callable[[], None] | None = None) -> None:
    """Make `data` the content of the file at `place`: all of it or none of it, durable on return.

    Missing folders are made; an existing file keeps its permission bits and owner, and a new one gets those of the
    folder's owner. `before_swap` runs last and may raise to leave the file as it is. A failure leaves neither a
    temporary file nor a new folder behind and has effect `none`, except after the swap, where it is `unknown`.
    """
    if place.status is not None and not stat.S_ISREG(place.status.st_mode):
        what = "a folder" if place.is_folder else "not a regular file (a pipe, a socket or a device)"
        raise failed(place.path, f"This is {what}.", remedy="Give the path of a regular file.")
    temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}.tmp"
    try:
        with expected_errors(place.path):
            _make_folders(place)
            _write_new(place, temporary, data)
            if before_swap is not None:
                before_swap()
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        _undo(place, temporary)
        raise
    with expected_errors(place.path, Effect.UNKNOWN):
        _sync_folder(place.folder)


def _make_folders(place: Place) -> None:
    if place.status is not None:
        return
    if not place.absent:
        raise missing(place.path)
    for name in place.absent[:-1]:
        parent = place.folder
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
        place.made.append((len(place.handles) - 1, name))
        place.handles.append(os.open(name, _FOLDER, dir_fd=parent))
        _give(place.folder, os.fstat(parent))
    place.name = place.absent[-1]


def _write_new(place: Place, temporary: str, data: bytes) -> None:
    handle = os.open(temporary, _NEW, _FILE_MODE, dir_fd=place.folder)
    try:
        _give(handle, place.status or os.fstat(place.folder))
        if place.status is not None:
            # Set-user-id and its like are not carried over to content that an agent chose.
            os.fchmod(handle, stat.S_IMODE(place.status.st_mode) & 0o777)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _give(handle: int, owner: os.stat_result) -> None:
    # A host that is root works in a workspace that belongs to the run's user (D9).
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, owner.st_uid, owner.st_gid)


def _sync_folder(folder: int) -> None:
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _undo(place: Place, temporary: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(temporary, dir_fd=place.folder)
    for index, name in reversed(place.made):
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=place.handles[index])
