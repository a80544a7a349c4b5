"""The embedded world of `hostside demo`: one issue in a file tracker, one repository, and the script that works it."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hostside.config.paths import make_private
from hostside.worker.checkout import SAFE, IsolationFor
from hostside.worker.isolation import RunIsolation
from hostside.worker.workspace import WorkspaceError

IDENTIFIER = "DEMO-1"
STATES = ("Todo", "In Progress", "In Review", "Done")
TARGET_STATE = "In Review"
GREETING = 'def greeting(name: str) -> str:\n    """Greet one person."""\n    return f"Helo, {name}!"\n'
AUTHOR = {
    "GIT_AUTHOR_NAME": "Hostside Demo",
    "GIT_AUTHOR_EMAIL": "demo@hostside.invalid",
    "GIT_COMMITTER_NAME": "Hostside Demo",
    "GIT_COMMITTER_EMAIL": "demo@hostside.invalid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoWorld:
    """Paths of one demo. Kept under the host's state, so that receipts and checkout can be looked at afterwards."""

    folder: Path
    tracker: Path
    origin: Path
    workspaces: Path


async def build(folder: Path, isolation_for: IsolationFor) -> DemoWorld:
    """Make the world in `folder` (new). Raises WorkspaceError when git fails."""
    make_private(folder)
    seed = make_private(folder / "seed")
    (seed / "greeting.py").write_text(GREETING, encoding="utf-8")
    (seed / "README.md").write_text("# Greeting\n\nSays hello.\n", encoding="utf-8")
    isolation = isolation_for(folder, ())
    await _git(isolation, seed, ["init", "--quiet", "--template=", "--initial-branch=main", "."])
    await _git(isolation, seed, ["add", "--", "greeting.py", "README.md"])
    await _git(isolation, seed, ["commit", "--quiet", "--message", "Greeting"])
    await _git(
        isolation, folder, ["clone", "--quiet", "--bare", "--no-hardlinks", "--template=", "--", "seed", "origin.git"]
    )
    tracker = folder / "issues.json"
    descriptor = os.open(tracker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump([_issue()], file, indent=1)
    return DemoWorld(
        folder=folder, tracker=tracker, origin=folder / "origin.git", workspaces=make_private(folder / "workspaces")
    )


def script() -> bytes:
    """Return the steps of the scripted agent. Two of them are refused on purpose: they show the wall."""
    read_hash = hashlib.sha256(GREETING.encode()).hexdigest()
    steps = [
        _step("file_issue_get", {}, "ok"),
        _step("file_issue_move", {"target_state": "In Progress", "expected_state": "Todo"}, "ok"),
        _step("read_file", {"path": "greeting.py"}, "ok"),
        _step(
            "edit_file",
            {"path": "greeting.py", "old_text": "Helo", "new_text": "Hello", "expected_sha256": read_hash},
            "ok",
        ),
        _step("file_issue_comment_add", {"body": ["Fixed", "the greeting."]}, "invalid_arguments"),
        _step("file_issue_comment_add", {"body": "Fixed the greeting: it said Helo."}, "ok"),
        _step("read_file", {"path": "../../etc/passwd"}, "outside_workspace"),
        _step("git_add", {"paths": ["greeting.py"]}, "ok"),
        _step("git_commit", {"message": "Fix greeting"}, "ok"),
        _step("file_issue_move", {"target_state": TARGET_STATE, "expected_state": "In Progress"}, "ok"),
    ]
    return json.dumps(steps).encode()


def _step(tool: str, arguments: dict[str, object], expect: str) -> dict[str, object]:
    return {"tool": tool, "arguments": arguments, "expect": expect}


def _issue() -> dict[str, object]:
    return {
        "id": "demo-1",
        "identifier": IDENTIFIER,
        "title": "Greeting is misspelled",
        "description": "`greeting.py` says Helo. It should say Hello.",
        "state": "Todo",
        "priority": 2,
        "labels": ["bug"],
        "comments": [],
    }


async def _git(isolation: RunIsolation, folder: Path, argv: Sequence[str]) -> None:
    done = await isolation.run(
        [*SAFE, *argv], cwd=folder, extras=AUTHOR, timeout_seconds=60.0, output_limit_bytes=20_000
    )
    if done.exit_code != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise WorkspaceError(f"git {argv[0]} failed: {said[-300:]}", remedy="Run `hostside doctor`.")
