"""The public fault cases: `cases.jsonl` holds the rows as they were reported, the tests beside it what holds here.

`taken` says which test module takes each row, so that no row is passed over in silence.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("cases.jsonl")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `input` and `expect` as reported."""

    id: str
    component: str
    input: dict[str, Any]
    expect: dict[str, Any]


def all_rows() -> list[Row]:
    """Return every row in file order."""
    lines = FILE.read_text(encoding="utf-8").split("\n")
    return [
        Row(**{key: row[key] for key in ("id", "component", "input", "expect")})
        for row in map(json.loads, filter(None, lines))
    ]


def rows(*prefixes: str) -> list[Row]:
    """Return the rows whose id is one of `prefixes` or begins with one and a dot."""
    return [row for row in all_rows() if row.id in prefixes or row.id.split(".")[0] in prefixes]
