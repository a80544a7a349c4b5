"""A JSON array on disk that several processes change: locked, read whole, one entry replaced, renamed into place (R-265).

An entry is replaced in the text itself, so that every byte outside it survives, well-formed or not. All functions block.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from time import sleep as pause

from hostside.core.canonical import JsonRejected, JsonValue, parse
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.trackers.base import tracker_request, tracker_response

MAX_FILE_BYTES = 32 * 1024 * 1024
_POLL_SECONDS = 0.01
_SPACE = re.compile(r"[ \t\r\n]*")
_SCANNER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The text of the array and its entries; `spans` are where each entry stands in the text."""

    text: str
    entries: tuple[JsonValue, ...]
    spans: tuple[tuple[int, int], ...]

    def with_entry(self, index: int, value: JsonValue) -> str:
        """Return the text with one entry replaced, indented like an entry of an indented array."""
        start, end = self.spans[index]
        written = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False).replace("\n", "\n  ")
        return self.text[:start] + written + self.text[end:]


def read_document(path: Path) -> Document:
    """Return the document; a missing file is an empty array (R-262).

    Raises ToolFailed(tracker_request) when the file cannot be read and ToolFailed(tracker_response) when it is not a
    JSON array; neither repeats a path or a word of the contents, which may belong to other issues.
    """
    raw = _read(path)
    if raw is None:
        return Document(text="[]", entries=(), spans=())
    try:
        value = parse(raw)
    except JsonRejected:
        raise tracker_response("The tracker file is not valid JSON.") from None
    if not isinstance(value, list):
        raise tracker_response("The tracker file does not hold a JSON array.")
    text = raw.decode("utf-8")
    return Document(text=text, entries=tuple(value), spans=tuple(_spans(text, len(value))))


@contextlib.contextmanager
def locked(path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock that belongs to `path`, against threads and processes alike.

    Raises ToolFailed(tracker_request) when another holder does not let go within `wait_seconds`. The lock file stays:
    removing it would let two holders lock two files of one name.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise _unreachable("locked", exc) from None
    try:
        _acquire(handle, monotonic() + wait_seconds)
        yield
    finally:
        os.close(handle)


def replace_file(path: Path, text: str) -> None:
    """Replace the file by `text`, durably: a crash at any moment leaves the old contents or the new, whole.

    Only under `locked`: the temporary name is fixed, so that a crash leaves at most one behind. Raises
    ToolFailed(tracker_request) when nothing was changed, ToolFailed(effect_unknown) when it is not known to be durable.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _write_through(temporary, text.encode("utf-8"), _mode_of(path))
        os.replace(temporary, path)
    except OSError as exc:
        raise _unreachable("written", exc) from None
    try:
        _sync_folder(path.parent)
    except OSError:
        raise ToolFailed(
            FailureCode.EFFECT_UNKNOWN,
            "The tracker file was replaced, but the disk did not confirm it.",
            remedy="Read the issue before writing again.",
            effect=Effect.UNKNOWN,
        ) from None


def _acquire(handle: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= deadline:
                raise tracker_request(
                    "Another process is holding the tracker file, so nothing was written.",
                    remedy="Try again in a few seconds.",
                ) from None
            pause(_POLL_SECONDS)
        except OSError as exc:
            raise _unreachable("locked", exc) from None
        else:
            return


def _read(path: Path) -> bytes | None:
    try:
        # Not blocking, so that a named pipe in its place cannot hang the host; not following, so that no link can lead
        # to a file that somebody else owns.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _unreachable("read", exc) from None
    try:
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise tracker_request("The tracker file is not a regular file.", remedy=_OPERATOR)
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise _unreachable("read", exc) from None
    if len(raw) > MAX_FILE_BYTES:
        raise tracker_response(f"The tracker file is larger than {MAX_FILE_BYTES} bytes.", remedy=_OPERATOR)
    return raw


_OPERATOR = "An operator has to check the tracker's `path`."


def _unreachable(what: str, exc: OSError) -> ToolFailed:
    reason = errno.errorcode.get(exc.errno or 0, "unknown error")
    return tracker_request(f"The tracker file cannot be {what} ({reason}).", remedy=_OPERATOR)


def _spans(text: str, count: int) -> Iterator[tuple[int, int]]:
    position = text.index("[") + 1
    for _ in range(count):
        start = _after_space(text, position)
        _, end = _SCANNER.raw_decode(text, start)
        yield start, end
        position = _after_space(text, end) + 1  # past the comma or the closing bracket


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.lstat().st_mode)
    except FileNotFoundError:
        return 0o600


def _write_through(path: Path, raw: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
        file.flush()
        os.fchmod(handle, mode)
        os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
