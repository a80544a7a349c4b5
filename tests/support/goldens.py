"""Goldens of tools: `tests/snaps/<tool>.json` holds all that an agent or operator can see of one (D19).

A missing golden is written here and fails in CI. To accept a change: `make snap`, then read the diff.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from hostside.core.registry import Registry
from hostside.core.spec import Tool

SNAPS = Path(__file__).resolve().parents[1] / "snaps"


def check_goldens(tools: Iterable[Tool]) -> None:
    """Compare each tool's contract with its golden; names every tool that differs."""
    update, in_ci = os.environ.get("HOSTSIDE_SNAP") == "update", bool(os.environ.get("CI"))
    differing: list[str] = []
    for name, registered in Registry(tools).snapshot().tools.items():
        golden = SNAPS / f"{name}.json"
        text = json.dumps(registered.contract(), indent=2, ensure_ascii=False) + "\n"
        if update or (not golden.exists() and not in_ci):
            SNAPS.mkdir(exist_ok=True)
            golden.write_text(text, encoding="utf-8")
        elif not golden.exists() or golden.read_text(encoding="utf-8") != text:
            differing.append(name)
    assert differing == [], f"tools differ from tests/snaps: {differing}; `make snap` accepts them"
