"""A process that uses a tracker file beside others: `python -m tests.trackers.file_writer WHAT PATH NAME COUNT`.

`comment` adds COUNT comments to each of two issues and prints a line after every write; `hold` takes the lock, prints
`held` and lets go when its input ends.
"""

import sys
from pathlib import Path

from hostside.trackers.file_document import locked
from tests.trackers.file_world import issues_at

ISSUES = ("id-DEMO-1", "id-DEMO-2")


def body_of(name: str, number: int) -> str:
    """Return a body long enough that writing it takes more than one block."""
    return f"{name} {number} " + "x" * 6_000


def comment(path: Path, name: str, count: int) -> None:
    """Add the comments."""
    issues = issues_at(path, lock_seconds=30.0)
    for number in range(count):
        for issue_id in ISSUES:
            issues.add_comment(issue_id, body_of(name, number), f"{name}-{number}")
            print(number, flush=True)


def hold(path: Path) -> None:
    """Hold the lock."""
    with locked(path, 5.0):
        print("held", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    what, where, who, times = sys.argv[1:]
    if what == "hold":
        hold(Path(where))
    else:
        comment(Path(where), who, int(times))
