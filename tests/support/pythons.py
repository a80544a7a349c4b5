"""The Pythons that the project supports, and those of them that this machine has."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLASSIFIER = "Programming Language :: Python :: "
NOT_HERE = 3  # exit code of scripts/bootstrap


def supported_pythons() -> tuple[str, ...]:
    """Versions as `3.11`, in the order of the classifiers of pyproject.toml, which are the source."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [name for name in project["classifiers"] if name.startswith(CLASSIFIER)]
    return tuple(name.removeprefix(CLASSIFIER) for name in names)


def find_python(version: str) -> Path:
    """The interpreter of that version which the set-up would take; skips the test where there is none."""
    command = [str(ROOT / "scripts" / "bootstrap"), "find-python", version]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if found.returncode == NOT_HERE:
        pytest.skip(f"Python {version} not found")
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())
