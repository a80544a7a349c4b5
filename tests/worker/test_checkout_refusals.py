"""A checkout that is not this issue's is refused as it stands, and what it configures runs nothing (R-097, C-22, C-23)."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostside.worker.checkout import commits_since, head_of, prepare
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.workspace import WorkspaceError
from tests.worker.checkouts import Yard, a_repository, fingerprint, git, make_yard

pytestmark = [pytest.mark.anyio, pytest.mark.system]
Change = Callable[[Yard, Path], None]


@pytest.fixture(params=["bwrap", "home"])
def yard(request: pytest.FixtureRequest, folder: Path) -> Yard:
    if request.param == "bwrap":
        request.getfixturevalue("bwrap")
    return make_yard(folder, IsolationLevel(request.param))


def _foreign_remote(yard: Yard, path: Path) -> None:
    git(path, "remote", "set-url", "origin", str(yard.folder / "seed"))


def _second_remote_address(yard: Yard, path: Path) -> None:
    git(path, "remote", "set-url", "--add", "origin", str(yard.folder / "seed"))


def _another_remote_address_first(yard: Yard, path: Path) -> None:
    git(path, "remote", "set-url", "origin", str(yard.folder / "seed"))
    git(path, "remote", "set-url", "--add", "origin", str(yard.origin))


def _no_remote(yard: Yard, path: Path) -> None:
    git(path, "remote", "remove", "origin")


def _other_branch(yard: Yard, path: Path) -> None:
    git(path, "checkout", "--quiet", "-b", "issue/ENG-2")


def _detached(yard: Yard, path: Path) -> None:
    git(path, "checkout", "--quiet", "--detach")


def _tag_of_the_same_name(yard: Yard, path: Path) -> None:
    git(path, "tag", "issue/ENG-1")
    git(path, "symbolic-ref", "HEAD", "refs/tags/issue/ENG-1")


def _pipe_for_a_configuration(yard: Yard, path: Path) -> None:
    (path / ".git" / "config").unlink()
    os.mkfifo(path / ".git" / "config")


def _link_to_a_pipe_for_a_head(yard: Yard, path: Path) -> None:
    os.mkfifo(path / "pipe")
    (path / ".git" / "HEAD").unlink()
    (path / ".git" / "HEAD").symlink_to(path / "pipe")


def _work_tree_elsewhere(yard: Yard, path: Path) -> None:
    git(path, "config", "core.worktree", str(yard.folder / "seed"))


def _bare(yard: Yard, path: Path) -> None:
    git(path, "config", "core.bare", "true")


def _without_git(yard: Yard, path: Path) -> None:
    shutil.rmtree(path / ".git")


def _emptied(yard: Yard, path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir(mode=0o700)


def _pointer_to_another_repository(yard: Yard, path: Path) -> None:
    shutil.rmtree(path / ".git")
    (path / ".git").write_text(f"gitdir: {yard.folder}/seed/.git\n")


def _link_to_another_repository(yard: Yard, path: Path) -> None:
    shutil.rmtree(path / ".git")
    (path / ".git").symlink_to(yard.folder / "seed/.git")


def _common_folder_elsewhere(yard: Yard, path: Path) -> None:
    (path / ".git/commondir").write_text(f"{yard.folder}/seed/.git\n")


def _broken_head(yard: Yard, path: Path) -> None:
    (path / ".git/HEAD").write_text("garbage\n")


def _broken_configuration(yard: Yard, path: Path) -> None:
    (path / ".git/config").write_text("[core\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_pipe_for_a_configuration, ".git/config is no regular file"),
        (_link_to_a_pipe_for_a_head, ".git/HEAD is no regular file"),
        (_foreign_remote, "its remote is another one"),
        (_second_remote_address, "its remote is another one"),
        (_another_remote_address_first, "its remote is another one"),
        (_no_remote, "its remote is another one"),
        (_other_branch, "it is on issue/ENG-2, not on issue/ENG-1"),
        (_detached, "it is on no branch, not on issue/ENG-1"),
        (_tag_of_the_same_name, "it is on refs/tags/issue/ENG-1, not on issue/ENG-1"),
        (_work_tree_elsewhere, "its repository is "),
        (_bare, "its repository is not there"),
        (_without_git, ".git cannot be found in it"),
        (_emptied, ".git cannot be found in it"),
        (_pointer_to_another_repository, ".git is not a folder"),
        (_link_to_another_repository, ".git is not a folder"),
        (_common_folder_elsewhere, "its repository is "),
        (_broken_head, "its repository is not there"),
        (_broken_configuration, "its repository is not there"),
    ],
)
async def test_a_checkout_of_something_else_is_refused_and_unchanged(yard: Yard, change: Change, why: str) -> None:
    checkout = await yard.prepare()
    change(yard, checkout.path)
    before = fingerprint(checkout.path), fingerprint(yard.folder / "seed")
    with pytest.raises(WorkspaceError) as caught:
        await yard.prepare()
    assert why in caught.value.message
    assert caught.value.message.startswith(f"{checkout.path} is not this issue's checkout: ")
    assert (fingerprint(checkout.path), fingerprint(yard.folder / "seed")) == before


async def test_a_folder_in_an_outer_repository_is_no_checkout(yard: Yard) -> None:
    outer = a_repository(yard.root, branch="issue/ENG-1")
    (outer / "ENG-1").mkdir(mode=0o700)
    (outer / "ENG-1/file").write_text("mine")
    outer.chmod(0o700)
    before = fingerprint(outer / "ENG-1"), git(outer, "rev-parse", "HEAD")
    with pytest.raises(WorkspaceError, match="is not this issue's checkout"):
        await yard.prepare(empty=True)
    assert (fingerprint(outer / "ENG-1"), git(outer, "rev-parse", "HEAD")) == before


async def test_a_nested_repository_does_not_stand_for_the_checkout(yard: Yard) -> None:
    checkout = await yard.prepare()
    a_repository(checkout.path / "nested", branch="elsewhere")
    assert (await yard.prepare()).branch == "issue/ENG-1"


async def test_a_link_that_appears_in_its_place_is_refused(yard: Yard) -> None:
    checkout = await yard.prepare()
    where = yard.place()
    checkout.path.rename(yard.folder / "moved")
    checkout.path.symlink_to(yard.folder / "moved")
    before = fingerprint(yard.folder / "moved")
    with pytest.raises(WorkspaceError, match="is not a folder"):
        await yard.prepare()
    # It may also come after the place was looked at.
    with pytest.raises(WorkspaceError, match="is not a folder"):
        await prepare(where, repository=yard.origin, branch=checkout.branch, base=None, isolation_for=yard.isolation)
    assert fingerprint(yard.folder / "moved") == before


async def test_an_index_lock_is_reported_with_its_age_and_not_removed(yard: Yard) -> None:
    """C-23.e"""
    checkout = await yard.prepare()
    lock = checkout.path / ".git/index.lock"
    lock.write_text("")
    ten_minutes_ago = time.time() - 601
    os.utime(lock, (ten_minutes_ago, ten_minutes_ago))
    with pytest.raises(WorkspaceError) as caught:
        await yard.prepare()
    assert (caught.value.message, caught.value.remedy) == (
        f"{checkout.path} is locked: .git/index.lock is 10 min old, and who holds it is not known.",
        f"When no git works there any more, run: rm {lock}",
    )
    assert lock.exists()
    lock.unlink()
    assert (await yard.prepare()).created is False


async def test_what_a_checkout_configures_runs_nothing(yard: Yard) -> None:
    checkout = await yard.prepare()
    path = checkout.path
    base = await head_of(yard.isolation(path))
    # Inside the workspace, so that it could run at every level.
    marker, program = path / "marker", path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    settings = {
        "core.fsmonitor": str(program),
        "core.hooksPath": str(path),
        "core.pager": str(program),
        "core.editor": str(program),
        "core.sshCommand": str(program),
        "core.gitProxy": str(program),
        "core.askPass": str(program),
        "credential.helper": f"!{program}",
        "filter.z.smudge": str(program),
        "filter.z.clean": str(program),
        "filter.z.process": str(program),
        "diff.external": str(program),
        "pager.config": str(program),
        "alias.rev-parse": f"!{program}",
        "gpg.program": str(program),
        "remote.origin.uploadpack": str(program),
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "extensions.partialClone": "origin",
        "protocol.allow": "always",
        "protocol.file.allow": "always",
        "protocol.ext.allow": "always",
    }
    git(path, "config", "core.repositoryFormatVersion", "1")
    for key, value in settings.items():
        git(path, "config", key, value)
    (path / ".git/info").mkdir(exist_ok=True)
    (path / ".git/info/attributes").write_text("* filter=z diff=z\n")
    (path / ".git/hooks").mkdir()
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        shutil.copy(program, path / ".git/hooks" / hook)
    # An object is missing: git would ask the remote for it, through the program named above.
    for found in (path / ".git/objects").rglob("*"):
        if found.is_file():
            found.chmod(0o600)
            found.unlink()
    assert (await yard.prepare()).created is False
    isolation = yard.isolation(path)
    assert (
        await head_of(isolation),
        await commits_since(isolation, "0" * 40),
        await commits_since(isolation, base),
    ) == (
        base,
        0,
        0,
    )
    assert not marker.exists()
    # The trap is live: git without the host's settings does run the program.
    with pytest.raises(AssertionError):
        git(path, "cat-file", "blob", "HEAD:a.txt")
    assert marker.exists()
