"""What an agent has filled goes away, whatever it holds, and nothing outside it does."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostside.worker.removal import remove_tree
from tests.worker.conftest import OTHER_USER


@pytest.fixture
def outside(folder: Path) -> Path:
    """A folder that a removal must not touch."""
    path = folder / "outside"
    path.mkdir(mode=0o755)
    (path / "kept").write_text("kept")
    return path


@contextmanager
def ordinary_user(folder: Path) -> Iterator[None]:
    """Whatever runs inside has no privilege: modes stop it, as they stop an ordinary host."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, OTHER_USER.uid, OTHER_USER.gid)
    os.seteuid(OTHER_USER.uid)
    try:
        yield
    finally:
        os.seteuid(0)


def test_read_only_and_closed_folders_are_no_obstacle(folder: Path) -> None:
    with ordinary_user(folder):
        top = folder / "top"
        for name in ("a/b/c", "d/e"):
            (top / name).mkdir(parents=True)
            (top / name / "file").write_text("x")
        (top / "d/e/file").chmod(0o000)
        for name, mode in (("a/b/c", 0o500), ("a/b", 0o000), ("a", 0o100), ("d/e", 0o444), ("d", 0o555), ("", 0o000)):
            (top / name).chmod(mode)
        with pytest.raises(PermissionError):
            os.listdir(top)
        assert remove_tree(top) is True
    assert os.listdir(folder) == []


def test_links_are_removed_and_not_followed(folder: Path, outside: Path) -> None:
    top = folder / "top"
    (top / "deep").mkdir(parents=True)
    for link in (top / "to-folder", top / "deep/to-folder"):
        link.symlink_to(outside)
    (top / "to-file").symlink_to(outside / "kept")
    (top / "up").symlink_to("../..")
    (top / "dangling").symlink_to("nowhere")
    assert remove_tree(top) is True
    assert (sorted(os.listdir(folder)), (outside / "kept").read_text()) == (["outside"], "kept")
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


def test_a_link_or_a_file_in_the_folders_place_is_all_that_goes(folder: Path, outside: Path) -> None:
    (folder / "link").symlink_to(outside)
    (folder / "file").write_text("")
    assert [remove_tree(folder / name) for name in ("link", "file", "nothing", "nothing/below")] == [True] * 4
    assert (os.listdir(folder), os.listdir(outside)) == (["outside"], ["kept"])


def test_special_files_and_odd_names_go(folder: Path) -> None:
    top = folder / "top"
    (top / "a\nb").mkdir(parents=True)
    (top / os.fsdecode(b"\xff")).mkdir()
    os.mkfifo(top / "a\nb/pipe")
    (top / "a\nb" / ("x" * 255)).write_text("")
    assert remove_tree(top) is True
    assert os.listdir(folder) == []


def test_neither_depth_nor_width_matters(folder: Path) -> None:
    top = folder / "top"
    top.mkdir()
    before = os.listdir("/proc/self/fd")
    handle = os.open(top, os.O_RDONLY)
    for _ in range(3_000):  # deeper than a recursion and than a path can be long
        os.mkdir("d", dir_fd=handle)
        deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    os.close(handle)
    for number in range(2_000):
        (top / f"wide-{number}").mkdir()
    assert remove_tree(top) is True
    assert (os.listdir(folder), len(os.listdir("/proc/self/fd"))) == ([], len(before))


def test_what_cannot_go_stays_and_the_rest_goes(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder to another user needs root")
    top = folder / "top"
    (top / "theirs").mkdir(parents=True)
    (top / "theirs/file").write_text("")
    (top / "mine/sub").mkdir(parents=True)
    for path in (top, top / "mine", top / "mine/sub"):
        os.chown(path, OTHER_USER.uid, OTHER_USER.gid)
    with ordinary_user(folder):
        assert remove_tree(top) is False
    assert [str(path.relative_to(top)) for path in sorted(top.rglob("*"))] == ["theirs", "theirs/file"]
