"""What `git status --porcelain=v2` says, read into records."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hostside.core.canonical import JsonObject
from hostside.tools.git_repository import Repository

_WORDS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "copied", "T": "type_changed"}
STATUS_WORDS = (*_WORDS.values(), "unmerged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed path. `status` is one of `STATUS_WORDS`; `original_path` is where a renamed or copied one came from."""

    path: bytes
    status: str
    original_path: bytes | None = None
    submodule: bool = False

    def as_object(self) -> JsonObject:
        """Return the change as a result shows it; bytes of a name that are not UTF-8 appear as `\\\\xNN`."""
        shown: JsonObject = {"path": shown_path(self.path), "status": self.status}
        if self.original_path is not None:
            shown["original_path"] = shown_path(self.original_path)
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`branch` is None on a detached head, `head` None before the first commit. An unmerged path stands in `unstaged`."""

    branch: str | None
    head: str | None
    staged: tuple[Change, ...]
    unstaged: tuple[Change, ...]
    untracked: tuple[bytes, ...]


async def read_status(
    repository: Repository, paths: Iterable[str] = (), *, each_file: bool = False, renames: bool = True
) -> Status:
    """Return the status of the whole repository or of `paths`. `each_file` lists the files in new folders one by one.

    Raises ToolFailed, also when there is more to list than can be read at once.
    """
    output = await repository.output(
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--no-ahead-behind",
        "--ignore-submodules=dirty",
        "--renames" if renames else "--no-renames",
        f"--untracked-files={'all' if each_file else 'normal'}",
        "--",
        *paths,
    )
    return parse_status(output)


def parse_status(output: bytes) -> Status:
    """Return the records of `git status --porcelain=v2 --branch -z`."""
    headers: dict[str, str] = {}
    staged: list[Change] = []
    unstaged: list[Change] = []
    untracked: list[bytes] = []
    records = iter(output.split(b"\0"))
    for record in records:
        kind = record[:2]
        if kind == b"# ":
            key, _, value = os.fsdecode(record[2:]).partition(" ")
            headers[key] = value
        elif kind == b"? ":
            untracked.append(record[2:])
        elif kind in (b"1 ", b"2 "):
            _changed(record, records, staged, unstaged)
        elif kind == b"u ":
            unstaged.append(Change(path=record.split(b" ", 10)[10], status="unmerged"))
    branch, head = headers.get("branch.head"), headers.get("branch.oid")
    return Status(
        branch=None if branch == "(detached)" else branch,
        head=None if head == "(initial)" else head,
        staged=tuple(staged),
        unstaged=tuple(unstaged),
        untracked=tuple(untracked),
    )


def _changed(record: bytes, rest: Iterator[bytes], staged: list[Change], unstaged: list[Change]) -> None:
    renamed = record[:1] == b"2"
    fields = record.split(b" ", 9 if renamed else 8)
    original = next(rest) if renamed else None
    letters, submodule = fields[1].decode(), fields[2][:1] == b"S"
    for letter, changes in zip(letters, (staged, unstaged), strict=True):
        if letter in _WORDS:
            moved = original if letter in "RC" else None
            changes.append(Change(path=fields[-1], status=_WORDS[letter], original_path=moved, submodule=submodule))


def shown_path(path: bytes) -> str:
    """Return a path as text; bytes that are not UTF-8 appear as `\\\\xNN`."""
    return path.decode("utf-8", "backslashreplace")
