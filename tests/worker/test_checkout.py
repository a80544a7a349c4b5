"""Preparing a checkout with real git inside the run's isolation: a whole one, this issue's, or none (D9, R-097, C-23)."""

import os
import stat
from pathlib import Path

import anyio
import pytest

from hostside.worker.checkout import Checkout, commits_since, head_of, read_committed
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.sandbox_args import Bind
from hostside.worker.workspace import WorkspaceError
from tests.worker.checkouts import Yard, git, make_yard

pytestmark = [pytest.mark.anyio, pytest.mark.system]


@pytest.fixture(params=["bwrap", "home"])
def yard(request: pytest.FixtureRequest, folder: Path) -> Yard:
    if request.param == "bwrap":
        request.getfixturevalue("bwrap")
    return make_yard(folder, IsolationLevel(request.param))


async def refused(yard: Yard, **changes: object) -> str:
    with pytest.raises(WorkspaceError) as caught:
        await yard.prepare(**changes)  # type: ignore[arg-type]
    assert caught.value.remedy
    return caught.value.message


async def test_a_new_checkout_is_a_clone_on_the_issues_branch(yard: Yard) -> None:
    checkout = await yard.prepare()
    path = yard.root / "ENG-1"
    assert checkout == Checkout(path=path, branch="issue/ENG-1", remote=str(yard.origin), created=True)
    assert (path / "a.txt").read_bytes() == b"one\ntwo\n"
    assert git(path, "status", "--porcelain=v2", "--branch").decode().splitlines()[1:] == ["# branch.head issue/ENG-1"]
    assert git(path, "rev-parse", "HEAD") == git(yard.origin, "rev-parse", "main")
    assert git(path, "remote", "get-url", "origin").decode().strip() == str(yard.origin)
    assert (yard.left(), stat.S_IMODE(path.stat().st_mode)) == (["ENG-1"], 0o700)
    assert not (path / ".git/hooks").exists()


async def test_no_file_of_the_host_is_in_a_checkout(yard: Yard) -> None:
    checkout = await yard.prepare()
    assert sorted(os.listdir(checkout.path)) == [".git", "a.txt"]
    assert not {"alternates", "http-alternates"} & set(os.listdir(checkout.path / ".git/objects/info"))


async def test_a_checkout_is_reused_with_everything_in_it(yard: Yard) -> None:
    first = await yard.prepare()
    (first.path / "a.txt").write_text("changed\n")
    (first.path / "new").write_text("untracked\n")
    again = await yard.prepare()
    assert again == Checkout(path=first.path, branch=first.branch, remote=first.remote, created=False)
    assert git(first.path, "status", "--porcelain").decode() == " M a.txt\n?? new\n"


async def test_a_base_branch_is_where_the_work_starts(yard: Yard) -> None:
    git(yard.folder / "seed", "checkout", "--quiet", "release")
    (yard.folder / "seed/b.txt").write_text("b\n")
    git(yard.folder / "seed", "add", "b.txt")
    git(yard.folder / "seed", "commit", "--quiet", "--message=b")
    git(yard.folder / "seed", "push", "--quiet", str(yard.origin), "release")
    checkout = await yard.prepare(base="release")
    assert sorted(os.listdir(checkout.path)) == [".git", "a.txt", "b.txt"]


async def test_without_a_repository_a_workspace_begins_empty(yard: Yard) -> None:
    checkout = await yard.prepare(empty=True)
    assert (checkout.remote, checkout.created, os.listdir(checkout.path)) == (None, True, [".git"])
    assert (await yard.prepare(empty=True)).created is False
    assert await head_of(yard.isolation(checkout.path)) == ""


async def test_an_empty_origin_gives_an_unborn_branch(yard: Yard) -> None:
    git(yard.folder, "init", "--quiet", "--bare", "empty.git")
    checkout = await yard.prepare(repository=yard.folder / "empty.git")
    assert git(checkout.path, "symbolic-ref", "HEAD").decode().strip() == "refs/heads/issue/ENG-1"
    assert (await yard.prepare(repository=yard.folder / "empty.git")).created is False


@pytest.mark.parametrize("base", ["no-such-branch", "--upload-pack=touch marker", "-x"])
async def test_a_base_branch_that_is_missing_is_named_and_nothing_is_left(yard: Yard, base: str) -> None:
    message = await refused(yard, base=base)
    assert "git clone failed" in message
    assert base in message
    assert (yard.left(), (yard.folder / "marker").exists()) == ([], False)


async def test_an_origin_that_is_gone_or_none_leaves_nothing(yard: Yard) -> None:
    (yard.folder / "nothing.git").mkdir()
    assert "git clone failed" in await refused(yard, repository=yard.folder / "nothing.git")
    assert yard.left() == []
    assert (await yard.prepare()).created is True


async def test_an_origin_that_is_gone_does_not_matter_to_a_checkout_that_is_there(yard: Yard) -> None:
    await yard.prepare()
    yard.origin.rename(yard.folder / "moved.git")
    assert (await yard.prepare()).created is False


async def test_a_folder_that_is_gone_is_simply_made_anew(yard: Yard) -> None:
    """C-23.d: no record of the checkout outlives it."""
    first = await yard.prepare()
    first.path.rename(yard.folder / "moved")
    assert (await yard.prepare()).created is True


async def test_variables_of_the_host_do_not_turn_git_to_another_repository(folder: Path, yard: Yard) -> None:
    """C-23.a: an inherited GIT_DIR beats the working directory, unless no git of a run inherits it."""
    other = folder / "seed"
    before = git(other, "rev-parse", "--all"), git(other, "config", "--local", "--list")
    misled = Yard(
        folder=folder,
        level=yard.level,
        base={
            **yard.base,
            "GIT_DIR": f"{other}/.git",
            "GIT_WORK_TREE": str(other),
            "GIT_INDEX_FILE": f"{other}/.git/index",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.bare",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_TEMPLATE_DIR": str(other),
        },
    )
    checkout = await misled.prepare()
    assert git(checkout.path, "symbolic-ref", "HEAD").decode().strip() == "refs/heads/issue/ENG-1"
    assert (await misled.prepare()).created is False
    assert (git(other, "rev-parse", "--all"), git(other, "config", "--local", "--list")) == before


async def test_many_checkouts_of_one_repository_at_once_all_succeed(yard: Yard) -> None:
    """C-23.b: nothing of a checkout is shared, so there is nothing to fight over."""
    made: list[Checkout] = []

    async def one(number: int) -> None:
        made.append(await yard.prepare(f"ENG-{number}"))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            for number in range(24):
                group.start_soon(one, number)
    assert sum(checkout.created for checkout in made) == 24
    assert yard.left() == sorted(f"ENG-{number}" for number in range(24))
    for checkout in made:
        assert git(checkout.path, "symbolic-ref", "--short", "HEAD").decode().strip() == checkout.branch


async def test_commits_are_counted_from_a_base(yard: Yard) -> None:
    checkout = await yard.prepare()
    isolation = yard.isolation(checkout.path)
    base = await head_of(isolation)
    assert base == git(yard.origin, "rev-parse", "main").decode().strip()
    for message in ("one", "two"):
        git(checkout.path, "commit", "--quiet", "--allow-empty", f"--message={message}")
    counts = [await commits_since(isolation, text) for text in (base, "0" * 40, "--all", "")]
    assert counts == [2, 0, 0, 0]


async def test_a_committed_file_is_read_as_it_was_committed(yard: Yard) -> None:
    seed = yard.folder / "seed"
    (seed / "WORKFLOW.md").write_bytes(b"\xffcommitted\r\n")
    (seed / "large").write_bytes(b"x" * 1_000_001)
    (seed / ".gitattributes").write_text("WORKFLOW.md text eol=lf ident filter=z\n")
    git(seed, "add", "--all")
    git(seed, "commit", "--quiet", "--message=workflow")
    (seed / "WORKFLOW.md").write_text("in the work tree only")
    scratch = yard.folder / "scratch"
    scratch.mkdir(mode=0o700)
    isolation = yard.isolation(scratch, (Bind(source=seed, target=str(seed)),))
    assert await read_committed(isolation, seed, "HEAD", "a.txt") == b"one\ntwo\n"
    committed = git(seed, "cat-file", "blob", "HEAD:WORKFLOW.md")
    assert await read_committed(isolation, seed, "HEAD", "WORKFLOW.md") == committed
    for revision, path in (("HEAD", "none"), ("none", "a.txt"), ("--textconv", "a.txt"), ("HEAD", "../a.txt")):
        assert await read_committed(isolation, seed, revision, path) is None
    with pytest.raises(WorkspaceError, match="larger than 1000000 bytes"):
        await read_committed(isolation, seed, "HEAD", "large")
