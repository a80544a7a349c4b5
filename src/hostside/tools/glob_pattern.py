"""Glob patterns over relative paths, in time that the pattern cannot blow up (R-032, R-033).

`*` and `?` stay within one name, `[abc]`, `[a-z]` and `[!a]` match one character, `**` as a whole part matches any
number of folders. A pattern without `/` is compared with the last name alone.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_P = TypeVar("_P")
_Item = Callable[[str], bool] | None  # None stands for `*`


class GlobPattern:
    """A pattern, read once. `matches` takes a relative path with `/` between names."""

    def __init__(self, pattern: str) -> None:
        self._whole_path = "/" in pattern
        self._parts = [None if part == "**" else _read(part) for part in pattern.split("/") if part not in ("", ".")]

    def matches(self, path: str) -> bool:
        """Return whether the whole path (or, without `/` in the pattern, its last name) matches. Case counts."""
        names = path.split("/")
        return _starred(self._parts, names if self._whole_path else names[-1:], _name_matches)


def _name_matches(items: Sequence[_Item], name: str) -> bool:
    return _starred(items, name, lambda item, character: item(character))


def _starred(pattern: Sequence[_P | None], items: Sequence[_T], one: Callable[[_P, _T], bool]) -> bool:
    """Match with None as "any number of items": on a mismatch only the last star grows, so time is a product."""
    at = index = 0
    star, resume = -1, 0
    while index < len(items):
        wanted = pattern[at] if at < len(pattern) else None
        if at < len(pattern) and wanted is None:
            star, resume, at = at, index, at + 1
        elif wanted is not None and one(wanted, items[index]):
            at, index = at + 1, index + 1
        elif star >= 0:
            resume += 1
            at, index = star + 1, resume
        else:
            return False
    return all(item is None for item in pattern[at:])


def _read(part: str) -> list[_Item]:
    items: list[_Item] = []
    index = 0
    while index < len(part):
        character = part[index]
        end = part.find("]", index + 3 if part[index + 1 : index + 2] == "!" else index + 2)
        if character == "*":
            items.append(None)
        elif character == "?":
            items.append(lambda _: True)
        elif character == "[" and end > 0:
            items.append(_class(part[index + 1 : end]))
            index = end
        else:
            items.append(character.__eq__)
        index += 1
    return items


def _class(body: str) -> Callable[[str], bool]:
    negated = body.startswith("!")
    body = body[1:] if negated else body
    ranges: list[tuple[str, str]] = []
    index = 0
    while index < len(body):
        if body[index + 1 : index + 2] == "-" and index + 2 < len(body):
            ranges.append((body[index], body[index + 2]))
            index += 3
        else:
            ranges.append((body[index], body[index]))
            index += 1
    return lambda character: any(low <= character <= high for low, high in ranges) is not negated
