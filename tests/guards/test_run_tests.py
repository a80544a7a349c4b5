"""The test runner's closing line is honest: it is tried on a small project of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[project]
name = "small"
version = "1"
classifiers = ["Programming Language :: Python :: {missing}"]
[tool.pytest.ini_options]
testpaths = ["tests"]
markers = ["system: as in the real project"]
"""
MISSING = "3.4"
ONE_OF_EACH = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_skips(): pytest.skip("no client here; remedy: make setup")

@pytest.fixture
def broken(): raise OSError("broken")
def test_errors(broken): pass

@pytest.mark.system
def test_of_the_other_suite(): pass
"""


def run_suites(folder: Path, tests: str, *suites: str) -> tuple[int, list[str]]:
    """Exit code and the lines of the closing summary, after running the copied runner in a project of its own."""
    (folder / "scripts").mkdir()
    (folder / "tests").mkdir()
    for name in ("bootstrap", "run_tests"):
        shutil.copy2(ROOT / "scripts" / name, folder / "scripts" / name)
    (folder / "pyproject.toml").write_text(PROJECT.format(missing=MISSING))
    (folder / "tests" / "test_small.py").write_text(tests)
    command = [sys.executable, str(folder / "scripts" / "run_tests"), *suites]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout.rpartition("\n\n")[2].splitlines()


@pytest.mark.system
def test_the_closing_line_counts_every_run_and_names_each_skip_and_failure(tmp_path: Path) -> None:
    run = f"unit, Python {sys.version_info.major}.{sys.version_info.minor}"
    assert run_suites(tmp_path, ONE_OF_EACH, "unit-all") == (
        1,
        [
            f"1 skipped: Python {MISSING} not found",
            f"1 skipped: no client here; remedy: make setup ({run})",
            f"failed: {run}: test_small.test_fails",
            f"failed: {run}: test_small.test_errors",
            "1 passed, 2 failed, 2 skipped",
        ],
    )


@pytest.mark.system
def test_a_suite_without_a_test_or_with_a_broken_file_fails(tmp_path: Path) -> None:
    code, lines = run_suites(tmp_path, "def test_passes(): pass\n", "unit", "system")
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    broken = tmp_path / "broken"
    broken.mkdir()
    code, lines = run_suites(broken, "import no_such_module\n", "unit")
    assert (code, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


@pytest.mark.system
def test_a_run_in_which_all_passes_ends_with_0(tmp_path: Path) -> None:
    assert run_suites(tmp_path, "def test_passes(): pass\n", "unit") == (0, ["1 passed, 0 failed, 0 skipped"])
