"""What commands print: data on standard output, everything else on standard error; colour only on a terminal."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_CODES = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()


def say(line: str = "") -> None:
    """Print one line of text on standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """Print one line on standard error: progress, warnings, hints."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def plain(text: object) -> str:
    """Return text that cannot steer a terminal: control and bidirectional characters are removed (D22)."""
    return _HIDDEN.sub("", str(text).replace("\n", " "))


def colour(text: str, name: str) -> str:
    """Return `text` in colour where standard output is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{_CODES[name]}m{text}\x1b[0m"


def table(rows: Iterable[Sequence[object]], *, header: Sequence[str] | None = None) -> list[str]:
    """Return aligned lines. Columns are as wide as their longest cell; the last is not padded."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if header is not None:
        cells.insert(0, list(header))
    if not cells:
        return []
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def fields(values: Mapping[str, object], *, indent: int = 0) -> list[str]:
    """Return one aligned line for each value: its name, then the value."""
    width = max(map(len, values), default=0)
    return [f"{' ' * indent}{name.ljust(max(width, 9))} {plain(value)}".rstrip() for name, value in values.items()]


def moment(text: object) -> str:
    """Return a stored time as a person reads it: UTC, to the second; `-` for none."""
    return "-" if not text else str(text)[:19].replace("T", " ")
