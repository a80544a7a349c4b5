"""git_status and git_diff over a real repository: typed fields, bounds, and values that are no options (AX-21)."""

from pathlib import Path

import pytest

from hostside.core.canonical import JsonValue
from hostside.errors import Effect, FailureCode
from hostside.tools.git_runner import GitCompleted, GitUnavailable
from tests.support.gateways import call, ok
from tests.support.system_git import SystemGit, a_repository, git
from tests.support.workspaces import refusal, tree, workspace_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.system]
UNFIT = (FailureCode.PRECONDITION_FAILED, Effect.NONE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with every kind of change."""
    root = a_repository(tmp_path / "ws")
    for name in ("gone", "staged", "both", "moved-from", "lätin"):
        (root / name).write_text(f"{name}\n" * 9)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=more")
    (root / "a.txt").write_text("one\n2\n")
    (root / "gone").unlink()
    (root / "staged").write_text("s")
    (root / "both").write_text("1")
    git(root, "mv", "moved-from", "moved to")
    git(root, "add", "staged", "both")
    (root / "both").write_text("2")
    (root / "lätin").write_bytes("é\n".encode("latin-1"))
    (root / "new folder").mkdir()
    (root / "new folder/x").touch()
    return root


async def test_status_tells_branch_head_and_each_change(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD").decode().strip()
    assert await ok(workspace_gateway(repository), "git_status") == {
        "branch": "run-1",
        "head": head,
        "staged": [
            {"path": "both", "status": "modified"},
            {"path": "moved to", "status": "renamed", "original_path": "moved-from"},
            {"path": "staged", "status": "modified"},
        ],
        "unstaged": [
            {"path": "a.txt", "status": "modified"},
            {"path": "both", "status": "modified"},
            {"path": "gone", "status": "deleted"},
            {"path": "lätin", "status": "modified"},
        ],
        "untracked": ["new folder/"],
        "disabled_filters": [],
        "truncated": False,
    }


async def test_status_of_one_path_and_of_a_repository_without_commits(repository: Path, tmp_path: Path) -> None:
    one = await ok(workspace_gateway(repository), "git_status", {"path": "staged"})
    assert (one["staged"], one["unstaged"], one["untracked"]) == ([{"path": "staged", "status": "modified"}], [], [])
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet", "--initial-branch=run-1")
    empty = await ok(workspace_gateway(tmp_path / "empty"), "git_status")
    assert (empty["branch"], empty["head"]) == ("run-1", None)
    git(repository, "checkout", "--quiet", "--detach")
    assert (await ok(workspace_gateway(repository), "git_status"))["branch"] is None


async def test_a_long_status_is_cut_and_said_to_be(tmp_path: Path) -> None:
    root = a_repository(tmp_path / "ws")
    for number in range(1_000):
        (root / f"{number:0100}").touch()
    status = await ok(workspace_gateway(root), "git_status")
    untracked = status["untracked"]
    assert isinstance(untracked, list)
    assert status["truncated"] is True
    assert 200 < len(untracked) < 1_000


@pytest.mark.parametrize(
    ("arguments", "wanted", "unwanted"),
    [
        ({}, ["-two\n+2\n", "a/gone", "-1", "+2"], ["a/staged"]),
        ({"staged": True}, ["rename to moved to", "b/staged"], ["a/gone"]),
        ({"paths": ["a.txt"]}, ["+2"], ["gone"]),
        ({"revision": "HEAD~1"}, ["b/moved to", "+2"], []),
        ({"revision": "HEAD~1..HEAD", "paths": ["gone"]}, ["+gone"], ["a.txt"]),
        ({"stat": True}, [" a.txt ", "files changed"], ["@@"]),
    ],
)
async def test_a_diff_shows_what_was_asked(
    repository: Path, arguments: dict[str, JsonValue], wanted: list[str], unwanted: list[str]
) -> None:
    diff = await ok(workspace_gateway(repository), "git_diff", arguments)
    assert [word for word in wanted if word not in str(diff["text"])] == []
    assert [word for word in unwanted if word in str(diff["text"])] == []
    assert diff["truncated"] is False


async def test_a_diff_of_other_encodings_is_marked(repository: Path) -> None:
    git(repository, "config", "core.quotePath", "true")
    diff = await ok(workspace_gateway(repository), "git_diff", {"paths": ["lätin"]})
    assert diff["lossy"] is True
    assert "+\\xe9\n" in str(diff["text"])
    assert "b/lätin" in str(diff["text"])


async def test_a_long_diff_is_cut_at_a_line_and_said_to_be(repository: Path) -> None:
    (repository / "a.txt").write_text("".join(f"{n:099}\n" for n in range(30_000)))
    diff = await ok(workspace_gateway(repository), "git_diff")
    assert (diff["truncated"], str(diff["text"])[-1]) == (True, "\n")
    assert 29_000 < len(str(diff["text"])) <= 30_000


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("git_diff", {"revision": "--output=out.txt"}),
        ("git_diff", {"revision": "-O./x"}),
        ("git_diff", {"revision": "a b"}),
        ("git_diff", {"revision": "a\x00b"}),
        ("git_diff", {"revision": ""}),
        ("git_diff", {"paths": ["--output=out.txt"]}),
        ("git_diff", {"paths": []}),
        ("git_diff", {"paths": "a.txt"}),
        ("git_add", {"paths": ["-A"]}),
        ("git_add", {"args": "."}),
        ("git_commit", {"message": ""}),
        ("git_commit", {"message": " \n"}),
        ("git_commit", {"message": "a\x00b"}),
    ],
)
async def test_values_that_git_could_read_as_options_start_no_process(
    repository: Path, tool: str, arguments: dict[str, JsonValue]
) -> None:
    before, runner = tree(repository), SystemGit(repository)
    result = await call(workspace_gateway(repository, runner=runner), tool, arguments)
    assert refusal(result) == (FailureCode.INVALID_ARGUMENTS, Effect.NONE)
    assert (runner.commands, tree(repository)) == ([], before)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("git_status", {"path": "../x"}),
        ("git_diff", {"paths": ["/etc/passwd"]}),
        ("git_add", {"paths": ["a.txt", ".git/config"]}),
    ],
)
async def test_paths_outside_start_no_process(repository: Path, tool: str, arguments: dict[str, JsonValue]) -> None:
    runner = SystemGit(repository)
    result = await call(workspace_gateway(repository, runner=runner), tool, arguments)
    assert (refusal(result), runner.commands) == ((FailureCode.OUTSIDE_WORKSPACE, Effect.NONE), [])


async def test_pathspec_magic_is_a_plain_name(repository: Path) -> None:
    (repository / ":(top)x").touch()
    (repository / "-n").touch()
    status = await ok(workspace_gateway(repository), "git_status", {"path": ":(top)x"})
    assert status["untracked"] == [":(top)x"]
    added = await ok(workspace_gateway(repository), "git_add", {"paths": ["./-n", ":(top)x"]})
    assert added["staged"] == ["-n", ":(top)x"]


async def test_an_unknown_revision_fails_with_what_git_says(repository: Path) -> None:
    result = await call(workspace_gateway(repository), "git_diff", {"revision": "nowhere"})
    assert result.failure is not None
    assert (refusal(result), result.exit_code) == ((FailureCode.TOOL_FAILED, Effect.NONE), 128)
    assert "nowhere" in result.failure.message


async def test_a_folder_inside_or_without_a_repository_is_not_taken_for_one(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for root in (repository / "new folder", tmp_path / "plain"):
        for tool in ("git_status", "git_diff", "git_add"):
            assert refusal(await call(workspace_gateway(root), tool, {})) == UNFIT


async def test_a_work_tree_elsewhere_is_not_used(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    git(repository, "config", "core.worktree", str(tmp_path / "elsewhere"))
    assert refusal(await call(workspace_gateway(repository), "git_status", {})) == UNFIT


class Stuck(SystemGit):
    """A git that never ends, or is not there."""

    def __init__(self, root: Path, answer: GitCompleted | None) -> None:
        super().__init__(root)
        self._answer = answer

    async def run(self, *_: object, **__: object) -> GitCompleted:
        """Answer as told."""
        if self._answer is None:
            raise GitUnavailable("no git here")
        return self._answer


async def test_a_git_that_hangs_or_is_missing_is_a_typed_failure(repository: Path) -> None:
    late = GitCompleted(exit_code=137, stdout=b"", stderr=b"", timed_out=True, truncated=False)
    for answer, code in ((late, FailureCode.TIMED_OUT), (None, FailureCode.TOOL_FAILED)):
        gateway = workspace_gateway(repository, runner=Stuck(repository, answer))
        for tool in ("git_status", "git_add"):
            assert refusal(await call(gateway, tool, {})) == (code, Effect.NONE)
