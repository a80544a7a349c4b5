"""The set-up of a fresh machine stays what the README promises."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.clients import CLAUDE_VERSION, CODEX_VERSION, CONFORMANCE_VERSION
from tests.support.pythons import find_python, supported_pythons

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = ROOT / "scripts" / "bootstrap"
PYTHON_LOCKS = ("build", "dev", "installer", "runtime")
PROMISED_TARGETS = {"help", "setup", "demo", "test", "check", "lint", "docs-check", "unit", "unit-all", "system"}
PROMISED_TARGETS |= {"format", "snap", "clean", "distclean"}
# Homes and work folders of the machines that the project is written on; an agent's home inside a run is a contract.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work/|root/|home/(?!agent\b)[a-z])")
REGISTRY_HOST = re.compile(r"(?:pythonhosted|npmjs|pypi|deb\.debian|archive\.ubuntu)\.(?:org|com|io)\b", re.IGNORECASE)
ADDRESS = re.compile(r"\w+://|\bresolved\b|--(?:extra-)?index-url|--find-links")


def repository_files() -> list[Path]:
    """Every file that is, or is about to be, part of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, or no git here: the repository's files cannot be listed")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def lines_that_match(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """`file:line: text` of each match in the files that are text; this file, which spells the patterns, apart."""
    found = []
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT)
        found += [f"{name}:{number}: {line[:120]}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    return [hit for hit in found if not hit.startswith("tests/guards/test_setup.py:")]


def lock_entries() -> dict[str, dict[str, object]]:
    lock = json.loads((ROOT / "clients" / "package-lock.json").read_text())
    packages: dict[str, dict[str, object]] = lock["packages"]
    return packages


def test_lock_files_hold_no_addresses() -> None:
    locks = [ROOT / "requirements" / f"{name}.lock" for name in PYTHON_LOCKS]
    assert lines_that_match(ADDRESS, [*locks, ROOT / "clients" / "package-lock.json"]) == []


@pytest.mark.parametrize("name", PYTHON_LOCKS)
def test_every_locked_python_package_is_pinned_by_version_and_hash(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    entries = [entry for entry in re.split(r"\n(?=[a-z0-9])", text) if entry.strip()]
    loose = [e.splitlines()[0] for e in entries if not re.match(r"[\w.-]+==\S+", e) or "--hash=sha256:" not in e]
    assert (bool(entries), loose) == (True, [])


def test_the_tests_run_on_the_packages_that_a_user_gets() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements" / f"{name}.lock").read_text(), re.MULTILINE))

    assert pins("runtime") - pins("dev") == set()


def test_every_declared_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = {"runtime": project["project"]["dependencies"], "dev": project["dependency-groups"]["dev"]}
    names = {(lock, re.split(r"[<>=!~\[; ]", line)[0]) for lock, lines in declared.items() for line in lines}
    texts = {lock: (ROOT / "requirements" / f"{lock}.lock").read_text() for lock in declared}
    assert {(lock, name) for lock, name in names if f"\n{name}==" not in f"\n{texts[lock]}"} == set()


def test_the_locked_build_backend_is_the_declared_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = (ROOT / "requirements" / "build.lock").read_text()
    assert [name for name in project["build-system"]["requires"] if f"{name} " not in locked] == []


def test_clients_are_pinned_by_name_and_version_for_both_processors() -> None:
    package = json.loads((ROOT / "clients" / "package.json").read_text())
    claude = {f"@anthropic-ai/claude-code-linux-{cpu}": CLAUDE_VERSION for cpu in ("arm64", "x64")}
    codex = {f"@openai/codex-linux-{cpu}": f"{CODEX_VERSION}-linux-{cpu}" for cpu in ("arm64", "x64")}
    needed = {"@modelcontextprotocol/conformance": CONFORMANCE_VERSION, "@openai/codex": CODEX_VERSION}
    entries = lock_entries()
    locked = {name: entries[f"node_modules/{name}"]["version"] for name in (*claude, *codex, *needed)}
    assert (package["dependencies"], package["optionalDependencies"]) == (needed, claude)
    assert locked == claude | codex | needed


def test_every_locked_client_package_has_an_integrity() -> None:
    assert [name for name, entry in lock_entries().items() if name and "integrity" not in entry] == []


def test_source_and_test_files_stay_under_400_lines() -> None:
    files = [path for folder in ("src", "tests", "scripts") for path in (ROOT / folder).rglob("*") if path.is_file()]
    code = [path for path in files if path.suffix == ".py" or path.parent.name == "scripts"]
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in code}
    assert {name: lines for name, lines in sizes.items() if lines >= 400} == {}


def test_no_file_names_a_path_of_one_machine() -> None:
    assert lines_that_match(MACHINE_PATH, repository_files()) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert lines_that_match(REGISTRY_HOST, repository_files()) == []


def test_the_makefile_has_the_promised_targets_and_explains_each() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = re.findall(r"^([a-z-]+):[^\n]*## \S", makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert (set(explained), set(phony[0].split())) == (PROMISED_TARGETS, PROMISED_TARGETS)


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_oldest_supported_python_is_the_required_one_and_the_set_up_knows_them_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = re.findall(r'^SUPPORTED="(.*)"$', BOOTSTRAP.read_text(), re.MULTILINE)
    assert project["requires-python"] == f">={supported_pythons()[0]}"
    assert known == [" ".join(reversed(supported_pythons()))]


@pytest.mark.parametrize("version", supported_pythons())
def test_the_set_up_finds_a_python_that_is_what_it_says(version: str) -> None:
    python = find_python(version)
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == version


def test_the_set_up_says_that_a_python_is_not_here_with_an_exit_code_of_its_own() -> None:
    done = subprocess.run([BOOTSTRAP, "find-python", "3.4"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")


def test_an_unknown_set_up_command_explains_the_known_ones_and_does_nothing() -> None:
    done = subprocess.run([BOOTSTRAP, "everything"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "scripts/bootstrap demo" in done.stderr
