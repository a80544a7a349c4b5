"""C-22 and C-23 for the git of a workspace: status, diff, add and commit. Fetch and push are the transport's own cases.

Adapted: git_log comes later, so C-22.f is asked of git_diff and its `revision`; `locked` is `precondition_failed` with
the rule `locked`. The wider table of traps is `tests/tools/test_hostile_repository.py`.
"""

import os
from pathlib import Path

import pytest

from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode
from tests.cases.rows import rows
from tests.support.gateways import call, ok
from tests.support.system_git import SystemGit, a_repository, git
from tests.support.workspaces import refusal, tree, workspace_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.system]
UNFIT = (FailureCode.PRECONDITION_FAILED, Effect.NONE)


def program(folder: Path) -> tuple[Path, Path]:
    """Return a program and the marker that it leaves when something runs it."""
    marker, file = folder / "marker", folder / "program"
    file.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    file.chmod(0o755)
    return file, marker


@pytest.mark.parametrize("id", ["C-22.a", "C-22.b", "C-22.c", "C-22.d"])
async def test_c_22_no_marker_after_any_operation_on_the_workspace(id: str, tmp_path: Path) -> None:
    (row,) = rows(id)
    root = a_repository(tmp_path / "ws")
    file, marker = program(tmp_path)
    key, _, value = row.input["repo_config"].split(" ")[0].partition("=")
    git(root, "config", key, value.replace("MARKER", str(file)))
    if "attributes" in row.input["repo_config"]:
        (root / ".git/info").mkdir(exist_ok=True)
        (root / ".git/info/attributes").write_text("* filter=z\n")
    if "pre-commit" in row.input["repo_config"]:
        (root / ".githooks").mkdir()
        for hook in ("pre-commit", "pre-push"):
            (root / ".githooks" / hook).symlink_to(file)
    (root / "a.txt").write_text("one\nTWO\n")
    marker.unlink(missing_ok=True)
    gateway = workspace_gateway(root)
    results = [
        await call(gateway, "git_status", {}),
        await call(gateway, "git_diff", {}),
        await call(gateway, "git_add", {"paths": ["a.txt"]}),
        await call(gateway, "git_commit", {"message": "m"}),
    ]
    assert marker.exists() is row.expect["marker_exists"]
    # "works, or is refused with the key named": only staging through a content filter is.
    named = ["filter.z" in result.failure.message for result in results if result.failure is not None]
    assert named == ([True, False] if id == "C-22.b" else [])


async def test_c_22_f_a_value_that_looks_like_an_option_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    (row,) = rows("C-22.f")
    root = a_repository(tmp_path / "ws")
    file, marker = program(tmp_path)
    before, runner = tree(root), SystemGit(root)
    for arguments in row.input["arguments_each"]:
        revision = arguments["ref"].replace("MARKER", str(file))
        result = await call(workspace_gateway(root, runner=runner), "git_diff", {"revision": revision})
        assert result.failure is not None
        assert refusal(result) == (FailureCode.INVALID_ARGUMENTS, Effect.NONE)
        assert "revision" in result.failure.message
    assert (runner.commands, tree(root), marker.exists()) == ([], before, row.expect["file_created"])


async def test_c_23_a_an_inherited_git_dir_does_not_move_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = rows("C-23.a")
    foreign, own = a_repository(tmp_path / "A"), a_repository(tmp_path / "B")
    values = {"GIT_DIR": foreign / ".git", "GIT_WORK_TREE": foreign, "GIT_INDEX_FILE": foreign / ".git/index"}
    assert set(row.input["gateway_env"]) == set(values)
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    before = git(foreign, "rev-parse", "HEAD")
    (own / "a.txt").write_text("changed")
    gateway = workspace_gateway(own, branch="run-1")
    await ok(gateway, "git_add")
    committed = await ok(gateway, "git_commit", {"message": "m"})
    assert git(own, "rev-parse", "HEAD").decode().strip() == committed["commit"]
    assert (git(foreign, "rev-parse", "HEAD"), git(foreign, "status", "--porcelain")) == (before, b"")


async def test_c_23_e_a_lock_is_reported_with_its_age_and_never_removed(tmp_path: Path) -> None:
    (row,) = rows("C-23.e")
    root = a_repository(tmp_path / "ws")
    (root / "a.txt").write_text("changed")
    lock = root / ".git/index.lock"
    lock.touch()
    ten_minutes_ago = lock.stat().st_mtime - 600
    os.utime(lock, (ten_minutes_ago, ten_minutes_ago))
    calls: list[tuple[str, JsonObject]] = [("git_add", {}), ("git_commit", {"message": "m"})]
    for tool, arguments in calls:
        result = await call(workspace_gateway(root), tool, arguments)
        assert result.failure is not None
        assert refusal(result) == UNFIT
        assert result.failure.details[0]["rule"] == row.expect["error_kind"]
        assert [word for word in row.expect["error_mentions"] if word not in result.failure.message] == []
    assert lock.exists() is not row.expect["lock_deleted"]
