"""Data that lies beside the checkout rather than in it: public test suites and recorded cases, in `../shared`."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shared(path: str) -> Path:
    """The file or folder `path` of the shared data (`$HOSTSIDE_SHARED`, else `../shared`); skips without it."""
    folder = Path(os.environ.get("HOSTSIDE_SHARED") or ROOT.parent / "shared")
    found = folder / path
    if not found.exists():
        pytest.skip(f"shared data {path} not found; put it beside the checkout in ../shared or set HOSTSIDE_SHARED")
    return found
