"""Files of a workspace, reached only by handles that start at its root (R-088, R-089, AX-18, C-24).

A path is walked one name at a time from an open handle of the root, and no step follows a link by itself: the target of
a link is walked in the same way, so a link that is swapped in between leads nowhere else. What a handle points to cannot
be renamed under us; a path could.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from hostside.core.scope import relative_path
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.tools.workspace_paths import outside, refuse_git

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_LINKS = 40
MAX_STEPS = 1_000
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO must not hold the call; O_NOCTTY: a terminal must not become ours.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LINK_CHANGED = frozenset({errno.ELOOP, errno.ENOTDIR})


def failed(
    path: str,
    why: str,
    *,
    remedy: str = "Look at the folder with list_dir and call again.",
    effect: Effect = Effect.NONE,
    code: FailureCode = FailureCode.TOOL_FAILED,
) -> ToolFailed:
    """Return an expected failure that shows the path as given."""
    return ToolFailed(code, f"{path[:200]!r}: {why}", remedy=remedy, effect=effect)


def missing(path: str) -> ToolFailed:
    """Return the failure of a path that names nothing."""
    return failed(path, "There is no such file or folder.")


@contextlib.contextmanager
def expected_errors(path: str, effect: Effect = Effect.NONE) -> Iterator[None]:
    """Turn an OSError into a ToolFailed with the system's words and the path as given."""
    try:
        yield
    except OSError as exc:
        raise failed(path, f"{os.strerror(exc.errno or errno.EIO)}.", effect=effect) from None


@dataclass(slots=True)
class Place:
    """Where a path leads: an open folder and a name in it. A context manager: it closes its handles.

    `path` is as given, `relative` the same from the root. `name` is `.` for the workspace root itself. `status` is what
    stands there, never a link; None when nothing does. Then `absent` holds the names from the first missing one on.
    """

    path: str
    relative: str
    handles: list[int]
    name: str = "."
    status: os.stat_result | None = None
    absent: tuple[str, ...] = ()
    made: list[tuple[int, str]] = field(default_factory=list)

    @property
    def folder(self) -> int:
        """The handle of the folder that holds `name`; good for `dir_fd`."""
        return self.handles[-1]

    @property
    def is_folder(self) -> bool:
        """True when a folder stands here."""
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self.handles:
            os.close(self.handles.pop())

    def open_file(self) -> int:
        """Return a handle for reading what must be a regular file. Never blocks, never follows a link."""
        if self.status is None:
            raise missing(self.path)
        if self.is_folder:
            raise failed(self.path, "This is a folder, not a file.", remedy="Use list_dir for a folder.")
        _require_regular(self.path, self.status)
        return open_regular(self.folder, self.name, self.path)

    def open_folder(self) -> int:
        """Return a handle for listing what must be a folder."""
        if self.status is None:
            raise missing(self.path)
        if not self.is_folder:
            raise failed(self.path, "This is not a folder.", remedy="Give a folder, or use read_file.")
        with expected_errors(self.path), _refusing_links(self.path):
            return os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)


def open_regular(folder: int, name: str, path: str) -> int:
    """Return a reading handle of `name` in `folder`; anything but a regular file fails, a link is refused."""
    with expected_errors(path), _refusing_links(path):
        handle = os.open(name, _READ, dir_fd=folder)
    try:
        _require_regular(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_whole(handle: int, path: str) -> bytes:
    """Return all bytes of an open file and close it. A file over `MAX_FILE_BYTES` fails, also one that grows."""
    with os.fdopen(handle, "rb", closefd=True) as file, expected_errors(path):
        size = os.fstat(file.fileno()).st_size
        data = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else b""
        if size > MAX_FILE_BYTES or len(data) > MAX_FILE_BYTES:
            raise failed(
                path,
                f"The file is larger than {MAX_FILE_BYTES} bytes.",
                remedy="Use search_files to find a part of it, or a command that reads a part.",
            )
        return data


def read_file_bytes(root: str, path: str) -> bytes:
    """Return the bytes of a file of the workspace. Raises ToolRefused(outside_workspace) or ToolFailed."""
    with locate(root, path) as place:
        return read_whole(place.open_file(), path)


def locate(root: str, path: str) -> Place:
    """Walk `path` from `root` and return where it leads. The caller closes the Place (use `with`).

    Links inside the workspace are followed when they stay inside, absolute ones too; any that leaves it, and anything
    in `.git` however it is reached, raises ToolRefused(outside_workspace). Creates and opens nothing but folders' handles.
    """
    relative = relative_path(root, path)
    place = Place(path=path, relative=relative, handles=[])
    try:
        with expected_errors(path):
            place.handles.append(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            _walk(root, place, deque(relative.split("/")))
    except BaseException:
        place.__exit__(None, None, None)
        raise
    return place


def _walk(root: str, place: Place, pending: deque[str]) -> None:
    links = 0
    place.status = os.fstat(place.folder)
    for _ in range(MAX_STEPS):
        if not pending:
            return
        part = pending.popleft()
        if part in ("", "."):
            continue
        _enter(place)
        if part == "..":
            _leave(place)
            continue
        refuse_git(place.path, (part,))
        status = _status(place.folder, part)
        if status is None:
            place.name, place.status, place.absent = part, None, _absent(place.path, part, pending)
            return
        if stat.S_ISLNK(status.st_mode):
            links += 1
            _follow(root, place, part, pending)
        else:
            place.name, place.status = part, status
        if links > MAX_LINKS:
            break
    raise failed(place.path, "Too many links or too many names.", remedy="Give the path of the file itself.")


def _enter(place: Place) -> None:
    """Go into the folder that the last step found, before a further name is looked up in it."""
    if place.name == ".":
        return
    if not place.is_folder:
        raise missing(place.path)
    with _refusing_links(place.path):
        place.handles.append(os.open(place.name, _FOLDER, dir_fd=place.folder))
    place.name = "."


def _leave(place: Place) -> None:
    if len(place.handles) == 1:
        raise outside(place.path, "The path leaves the workspace through a link.")
    os.close(place.handles.pop())
    place.name, place.status = ".", os.fstat(place.folder)


def _follow(root: str, place: Place, part: str, pending: deque[str]) -> None:
    target = os.readlink(part, dir_fd=place.folder)
    if not target.startswith("/"):
        pending.extendleft(reversed(target.split("/")))
        return
    base = root.rstrip("/")
    if target != base and not target.startswith(f"{base}/"):
        raise outside(place.path, "The path leaves the workspace through a link.")
    while len(place.handles) > 1:
        os.close(place.handles.pop())
    place.status = os.fstat(place.folder)
    pending.extendleft(reversed(target[len(base) :].split("/")))


def _absent(path: str, part: str, pending: deque[str]) -> tuple[str, ...]:
    names = (part, *(name for name in pending if name not in ("", ".")))
    if ".." in names:
        raise missing(path)
    refuse_git(path, names)
    return names


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _require_regular(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise failed(path, "This is not a regular file (a pipe, a socket or a device).", remedy="Give a regular file.")


@contextlib.contextmanager
def _refusing_links(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in _LINK_CHANGED:
            raise outside(path, "A link took the place of this path while it was opened.") from None
        raise


def sha256(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def decoded(path: str, data: bytes) -> str:
    """Return the text of a file; binary content and other encodings fail instead of arriving changed."""
    remedy = "Use a command that understands this kind of file, or a copy of it in UTF-8."
    if b"\0" in data:
        raise failed(path, "The file is binary.", remedy=remedy)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise failed(path, f"The file is not UTF-8 text (byte {exc.start}).", remedy=remedy) from None
