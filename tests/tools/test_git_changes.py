"""git_add and git_commit over a real repository: exact paths, exact message, the run's own branch (C-06, C-23)."""

import os
from pathlib import Path

import pytest

from hostside.core.canonical import JsonValue
from hostside.errors import Effect, FailureCode
from tests.support.gateways import call, ok
from tests.support.memory_receipts import MemoryReceipts
from tests.support.system_git import SystemGit, a_repository, git
from tests.support.workspaces import refusal, workspace_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.system]
FAILED = (FailureCode.TOOL_FAILED, Effect.NONE)
UNFIT = (FailureCode.PRECONDITION_FAILED, Effect.NONE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a changed, a deleted, a new and an ignored file."""
    root = a_repository(tmp_path / "ws")
    (root / "gone").touch()
    (root / ".gitignore").write_text("*.log\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=more")
    (root / "a.txt").write_text("changed\n")
    (root / "gone").unlink()
    (root / "src").mkdir()
    (root / "src/new | file").write_text("new\n")
    (root / "x.log").touch()
    return root


def index(root: Path) -> list[str]:
    return (
        git(root, "-c", "core.quotePath=false", "diff", "--cached", "--name-status", "--no-renames")
        .decode()
        .split("\n")[:-1]
    )


@pytest.mark.parametrize(
    ("arguments", "staged", "expected"),
    [
        ({}, ["a.txt", "gone", "src/new | file"], ["M\ta.txt", "D\tgone", "A\tsrc/new | file"]),
        ({"paths": ["."]}, ["a.txt", "gone", "src/new | file"], ["M\ta.txt", "D\tgone", "A\tsrc/new | file"]),
        ({"paths": ["src", "gone"]}, ["gone", "src/new | file"], ["D\tgone", "A\tsrc/new | file"]),
        ({"paths": [".gitignore"]}, [], []),
    ],
)
async def test_changes_are_staged_and_verified(
    repository: Path, arguments: dict[str, JsonValue], staged: list[str], expected: list[str]
) -> None:
    result = await call(workspace_gateway(repository), "git_add", arguments)
    assert (result.failure, result.effect, index(repository)) == (None, Effect.VERIFIED, expected)
    assert result.structured == {"staged": staged, "count": len(staged), "skipped": [], "truncated": False}


async def test_modes_links_and_a_folder_in_the_place_of_a_file_are_staged(repository: Path) -> None:
    (repository / "a.txt").unlink()
    (repository / "a.txt").mkdir()
    (repository / "a.txt/b").touch()
    (repository / ".gitignore").chmod(0o755)
    (repository / "link").symlink_to("/etc/passwd")
    await ok(workspace_gateway(repository), "git_add")
    stages = git(repository, "ls-files", "--stage").decode().split("\n")[:-1]
    assert [(line.split()[0], line.split("\t")[1]) for line in stages] == [
        ("100755", ".gitignore"),
        ("100644", "a.txt/b"),
        ("120000", "link"),
        ("100644", "src/new | file"),
    ]
    assert git(repository, "cat-file", "blob", ":link") == b"/etc/passwd"


@pytest.mark.parametrize("path", ["nowhere", "x.log"])
async def test_a_named_path_that_is_missing_or_ignored_fails_and_stages_nothing(repository: Path, path: str) -> None:
    result = await call(workspace_gateway(repository), "git_add", {"paths": ["a.txt", path]})
    assert result.failure is not None
    assert (refusal(result), index(repository)) == (FAILED, [])
    assert path in result.failure.message


async def test_a_resolved_conflict_is_staged(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--force", "-b", "other", "HEAD~1")
    (repository / "a.txt").write_text("theirs\n")
    git(repository, "commit", "--quiet", "--all", "--message=theirs")
    git(repository, "checkout", "--quiet", "run-1")
    (repository / "a.txt").write_text("ours\n")
    git(repository, "commit", "--quiet", "--all", "--message=ours")
    with pytest.raises(AssertionError):
        git(repository, "merge", "--quiet", "other")
    gateway = workspace_gateway(repository)
    assert {"path": "a.txt", "status": "unmerged"} in (await ok(gateway, "git_status"))["unstaged"]  # type: ignore[operator]
    assert refusal(await call(gateway, "git_commit", {"message": "m"})) == FAILED
    (repository / "a.txt").write_text("both\n")
    await ok(gateway, "git_add", {"paths": ["a.txt"]})
    await ok(gateway, "git_commit", {"message": "merged"})
    assert len(git(repository, "rev-list", "--parents", "-1", "HEAD").split()) == 3


async def test_a_commit_tells_its_id_and_parent_and_is_verified(repository: Path) -> None:
    receipts = MemoryReceipts()
    gateway = workspace_gateway(repository, branch="run-1", receipts=receipts)
    parent = git(repository, "rev-parse", "HEAD").decode().strip()
    await ok(gateway, "git_add")
    result = await call(gateway, "git_commit", {"message": "# Title\n\n\nbody  \n# no comment\n\n"})
    head = git(repository, "rev-parse", "refs/heads/run-1").decode().strip()
    assert (result.structured, result.effect) == (
        {"commit": head, "parent": parent, "branch": "run-1"},
        Effect.VERIFIED,
    )
    raw = git(repository, "cat-file", "commit", "HEAD")
    assert raw.partition(b"\n\n")[2] == b"# Title\n\n\nbody  \n# no comment\n\n"
    assert b"author Agent <agent@example.com>" in raw
    assert "Title" not in repr(receipts.starts[-1].arguments_redacted)


async def test_the_first_commit_has_no_parent(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=run-1")
    (tmp_path / "f").touch()
    gateway = workspace_gateway(tmp_path, branch="run-1")
    await ok(gateway, "git_add")
    assert (await ok(gateway, "git_commit", {"message": "m"}))["parent"] is None


async def test_nothing_to_commit_fails_with_the_exit_code(repository: Path) -> None:
    result = await call(workspace_gateway(repository), "git_commit", {"message": "m"})
    assert (refusal(result), result.exit_code) == (FAILED, 1)
    assert result.failure is not None
    assert ("nothing is staged" in result.failure.message, "git_add" in result.failure.remedy) == (True, True)


async def test_a_commit_on_another_branch_or_none_is_refused(repository: Path) -> None:
    gateway = workspace_gateway(repository, branch="run-1")
    await ok(gateway, "git_add")
    for words in (["-b", "main"], ["--detach"]):
        git(repository, "checkout", "--quiet", *words)
        before = git(repository, "rev-parse", "HEAD")
        result = await call(gateway, "git_commit", {"message": "m"})
        assert result.failure is not None
        assert (refusal(result), git(repository, "rev-parse", "HEAD")) == (UNFIT, before)
        assert "run-1" in result.failure.message


@pytest.mark.parametrize(("tool", "arguments"), [("git_add", {}), ("git_commit", {"message": "m"})])
async def test_a_lock_is_reported_with_its_age_and_left_alone(
    repository: Path, tool: str, arguments: dict[str, JsonValue]
) -> None:
    git(repository, "add", "gone")
    lock = repository / ".git/index.lock"
    lock.touch()
    os.utime(lock, (lock.stat().st_mtime - 600, lock.stat().st_mtime - 600))
    result = await call(workspace_gateway(repository), tool, arguments)
    assert result.failure is not None
    assert (refusal(result), lock.exists()) == (UNFIT, True)
    (detail,) = result.failure.details
    age = detail["age_seconds"]
    assert isinstance(age, int)
    assert (detail["rule"], detail["lock"], 600 <= age < 700) == ("locked", "index.lock", True)


async def test_a_worktree_is_its_own_top_level(repository: Path) -> None:
    tree = repository.parent / "tree"
    git(repository, "worktree", "add", "--quiet", "-b", "run-2", str(tree))
    (tree / "n").touch()
    gateway = workspace_gateway(tree, branch="run-2")
    await ok(gateway, "git_add")
    committed = await ok(gateway, "git_commit", {"message": "m"})
    assert committed["commit"] == git(repository, "rev-parse", "run-2").decode().strip()
    assert git(repository, "rev-parse", "run-1") == git(repository, "rev-parse", "HEAD")


async def test_every_command_names_its_repository_and_ends_its_options(repository: Path) -> None:
    runner = SystemGit(repository)
    gateway = workspace_gateway(repository, runner=runner)
    await ok(gateway, "git_diff", {"revision": "HEAD", "paths": ["a.txt"]})
    (diff,) = [argv for argv in runner.commands if "diff" in argv]
    assert diff[-4:] == ("--end-of-options", "HEAD", "--", "a.txt")
    assert {f"--git-dir={repository}/.git", f"--work-tree={repository}", "--literal-pathspecs"} <= set(diff)
