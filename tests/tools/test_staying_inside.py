"""AX-18: no path, link or race leads a file tool out of the workspace, or into git's own folder (R-088, R-089)."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostside.errors import Effect, FailureCode, ToolFailed, ToolRefused
from hostside.tools.workspace_fs import locate, read_file_bytes
from hostside.tools.workspace_writes import replace_file
from tests.support.gateways import call, ok
from tests.support.workspaces import refusal, tree, workspace_gateway

pytestmark = pytest.mark.anyio
OUTSIDE = (FailureCode.OUTSIDE_WORKSPACE, Effect.NONE)
ROUNDS = 3_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace beside a secret, with links of every kind in it."""
    root = tmp_path / "ws"
    (root / "real/deep").mkdir(parents=True)
    (root / "real/f.txt").write_text("inside")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[core]")
    (tmp_path / "ws-secret").mkdir()
    (tmp_path / "ws-secret/s.txt").write_text("secret")
    for name, target in {
        "in": "real",
        "in-absolute": f"{root}/real",
        "in-by-parent": "real/deep/../f.txt",
        "in-chain": "in/f.txt",
        "in-new": "real/new.txt",
        "out": "../ws-secret",
        "out-absolute": f"{tmp_path}/ws-secret/s.txt",
        "out-by-in": "in/../../ws-secret/s.txt",
        "out-prefix": f"{root}-secret/s.txt",
        "out-dangling": "../new.txt",
        "out-and-back": "../ws/real/f.txt",
        "git": ".git",
        "git-config": "real/../.git/config",
        "loop": "loop",
    }.items():
        (root / name).symlink_to(target)
    (root / "worktree").mkdir()
    (root / "worktree/.git").write_text("gitdir: /elsewhere")
    return root


ESCAPES = [
    "..",
    "../ws-secret/s.txt",
    "real/../../ws-secret/s.txt",
    "/etc/passwd",
    "/",
    "out/s.txt",
    "out/new.txt",
    "out/new/new.txt",
    "out-absolute",
    "out-by-in",
    "out-prefix",
    "out-dangling",
    "out-and-back",
    "a\0b",
    "",
    ".git",
    ".git/config",
    ".GIT/config",
    "real/.Git/x",
    "new/.git/hooks/pre-push",
    "worktree/.git",
    "git/config",
    "git-config",
    "in/../.git/config",
]


@pytest.mark.parametrize("path", ESCAPES)
async def test_every_tool_refuses_the_path_and_shows_it_as_given(root: Path, path: str) -> None:
    before = tree(root.parent)
    gateway = workspace_gateway(root)
    results = [
        await call(gateway, "read_file", {"path": path}),
        await call(gateway, "list_dir", {"path": path}),
        await call(gateway, "find_files", {"pattern": "*", "directory": path}),
        await call(gateway, "search_files", {"query": "secret", "path": path}),
        await call(gateway, "write_file", {"path": path, "content": "x"}),
        await call(gateway, "edit_file", {"path": path, "old_text": "s", "new_text": "x", "expected_sha256": "a" * 64}),
    ]
    assert [refusal(result) for result in results] == [OUTSIDE] * 6
    assert all(repr(path.replace("\0", "\\0")) in str(r.failure and r.failure.message) for r in results)
    assert not any("ws-secret" in str(r.failure and r.failure.message) for r in results if "ws-secret" not in path)
    assert (tree(root.parent), (root / ".git/config").read_text()) == (before, "[core]")


@pytest.mark.parametrize("path", ["in/f.txt", "in-absolute/f.txt", "in-by-parent", "in-chain", "./real//f.txt"])
async def test_links_that_stay_inside_are_followed(root: Path, path: str) -> None:
    gateway = workspace_gateway(root)
    assert (await ok(gateway, "read_file", {"path": path}))["text"] == "inside"
    await ok(gateway, "write_file", {"path": path, "content": "changed"})
    assert (root / "real/f.txt").read_text() == "changed"
    assert (root / "in").is_symlink()


async def test_a_dangling_link_inside_makes_the_file_it_names(root: Path) -> None:
    await ok(workspace_gateway(root), "write_file", {"path": "in-new", "content": "x"})
    assert ((root / "real/new.txt").read_text(), (root / "in-new").is_symlink()) == ("x", True)


async def test_a_loop_of_links_fails(root: Path) -> None:
    assert refusal(await call(workspace_gateway(root), "read_file", {"path": "loop"})) == (
        FailureCode.TOOL_FAILED,
        Effect.NONE,
    )


@pytest.mark.parametrize("path", ["~/x", "~root/x", "..\\..\\x", "%2e%2e/x", "$HOME", ".gitignore", "a.git"])
async def test_names_that_only_look_special_are_ordinary(tmp_path: Path, path: str) -> None:
    await ok(workspace_gateway(tmp_path), "write_file", {"path": path, "content": "x"})
    assert (tmp_path / path).read_text() == "x"


@contextmanager
def swapping(place: Path, first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Put two things in turn at `place`, as fast as a thread can, for as long as the block runs. Each callable makes
    its thing at `<place>.next`."""

    def put(make: Callable[[], None]) -> None:
        make()
        os.replace(f"{place}.next", place)

    with alternating(lambda: put(first), lambda: put(second)):
        yield


@contextmanager
def alternating(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Call two things in turn in a thread for as long as the block runs."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            first()
            second()

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()


def _outcomes(act: Callable[[], object], rounds: int, wanted: set[object]) -> set[object]:
    """Every outcome of at least `rounds` rounds, and of more until both sides of the race were met, or 30 s are over."""
    seen = {_outcome(act) for _ in range(rounds)}
    ends = time.monotonic() + 30
    while not wanted <= seen and time.monotonic() < ends:
        seen.add(_outcome(act))
    return seen


def _outcome(act: Callable[[], object]) -> object:
    try:
        return act()
    except (ToolRefused, ToolFailed) as exc:
        return exc.code


async def test_a_file_swapped_for_a_link_is_never_read_through_it(root: Path) -> None:
    place = root / "real/f.txt"
    link = f"{place}.next"
    with swapping(place, lambda: os.symlink("../../ws-secret/s.txt", link), lambda: _write(link, b"inside")):
        seen = _outcomes(
            lambda: read_file_bytes(str(root), "real/f.txt"), ROUNDS, {b"inside", FailureCode.OUTSIDE_WORKSPACE}
        )
    assert seen <= {b"inside", FailureCode.OUTSIDE_WORKSPACE, FailureCode.TOOL_FAILED}
    assert {b"inside", FailureCode.OUTSIDE_WORKSPACE} <= seen  # both sides of the race were met


async def test_a_folder_swapped_for_a_link_is_never_entered_through_it(root: Path) -> None:
    place, aside = root / "folder", root / "aside"
    place.mkdir()
    (place / "s.txt").write_text("inside")

    def lead_out() -> None:
        place.rename(aside)
        place.symlink_to("../ws-secret")

    def lead_in() -> None:
        place.unlink()
        aside.rename(place)

    with alternating(lead_out, lead_in):
        seen = _outcomes(
            lambda: read_file_bytes(str(root), "folder/s.txt"), ROUNDS, {b"inside", FailureCode.OUTSIDE_WORKSPACE}
        )
    assert seen <= {b"inside", FailureCode.OUTSIDE_WORKSPACE, FailureCode.TOOL_FAILED}
    assert {b"inside", FailureCode.OUTSIDE_WORKSPACE} <= seen


async def test_a_linked_folder_that_changes_never_lets_a_write_out(root: Path) -> None:
    secret = root.parent / "ws-secret"
    place, link = root / "folder", f"{root / 'folder'}.next"
    (root / "one").mkdir()
    place.symlink_to("one")

    def write() -> object:
        with locate(str(root), "folder/new/s.txt") as found:
            replace_file(found, b"inside")
        return None

    with swapping(place, lambda: os.symlink("../ws-secret", link), lambda: os.symlink("one", link)):
        seen = _outcomes(write, ROUNDS // 3, {None, FailureCode.OUTSIDE_WORKSPACE})
    assert tree(secret) == {"s.txt": b"secret"}
    assert {None, FailureCode.OUTSIDE_WORKSPACE} <= seen


async def test_a_swapped_link_never_leads_a_search_out(root: Path) -> None:
    gateway = workspace_gateway(root)
    place, link = root / "real/f.txt", f"{root / 'real/f.txt'}.next"
    with swapping(place, lambda: os.symlink("../../ws-secret/s.txt", link), lambda: _write(link, b"inside")):
        for _ in range(300):
            found = await ok(gateway, "search_files", {"query": "s", "path": "real"})
            assert "secret" not in str(found["matches"])


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
