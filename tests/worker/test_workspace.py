"""Keys, places, branches and homes of runs: one each for every issue, and never anybody else's (R-090..R-095, AX-19)."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hostside.core.issue import Issue
from hostside.errors import ConfigError
from hostside.worker.workspace import (
    WorkspaceError,
    WorkspacePlace,
    branch_name,
    check_repository,
    make_run_home,
    place,
    remove_run_home,
    workspace_key,
)

SAFE_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
IDENTIFIERS = st.text(min_size=1, max_size=150) | st.text(alphabet="AB._-/:é0a ", min_size=1, max_size=12)


def issue(identifier: str) -> Issue:
    return Issue(id="1", identifier=identifier, title="T", state="Todo", dispatchable=True)


def key_or_none(identifier: str) -> str | None:
    try:
        return workspace_key(identifier)
    except WorkspaceError:
        return None


@pytest.mark.parametrize("identifier", ["ENG-142", "acme_app-7", "v1.2", "A..B", "-x", "_", "x" * 100])
def test_a_safe_identifier_is_its_own_key(identifier: str) -> None:
    assert workspace_key(identifier) == identifier


def test_identifiers_that_look_alike_get_keys_of_their_own() -> None:
    keys = {identifier: workspace_key(identifier) for identifier in ("A/B", "A_B", "A:B", "A B", "Ä_B", "A\u0308_B")}
    assert keys == {
        "A/B": "A_B-998d3ed8983acf39",
        "A_B": "A_B",
        "A:B": "A_B-5a33e15dd84ada6f",
        "A B": keys["A B"],
        "Ä_B": keys["Ä_B"],
        "A\u0308_B": keys["A\u0308_B"],
    }
    assert len(set(keys.values())) == len(keys)


def test_nobody_can_claim_the_key_of_another_identifier_by_writing_it_out() -> None:
    taken = workspace_key("A/B")
    assert workspace_key(taken) != taken


def test_the_workspace_of_a_long_identifier_has_a_short_name() -> None:
    keys = [workspace_key(text) for text in ("x" * 101, "x" * 102, "x" * 100 + "é", ".".join("x" * 60))]
    assert len(set(keys)) == 4
    assert max(map(len, keys)) <= 100


@pytest.mark.parametrize(
    "identifier", ["", ".", "..", "...", ".git", ".locks", ".new-1", "tmp", "RUNS", "hostside", "x" * 1_001]
)
def test_empty_dotted_reserved_and_endless_identifiers_are_refused(identifier: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        workspace_key(identifier)
    assert len(caught.value.message) < 200
    assert caught.value.remedy


@given(IDENTIFIERS)
def test_every_key_is_a_plain_name(identifier: str) -> None:
    key = key_or_none(identifier)
    assert key is None or (SAFE_KEY.fullmatch(key) and not key.endswith("."))


@given(st.sets(IDENTIFIERS, min_size=2, max_size=8))
def test_different_identifiers_have_different_keys_and_branches(identifiers: set[str]) -> None:
    usable = [identifier for identifier in identifiers if key_or_none(identifier) is not None]
    assert len({workspace_key(identifier) for identifier in usable}) == len(usable)
    assert len({branch_name(issue(identifier)) for identifier in usable}) == len(usable)


@pytest.mark.parametrize(
    "identifiers", [("A..B", "A_B", "A...B"), ("a.lock", "a", "a.lock.lock"), ("a..lock", "a_lock", "a.lock")]
)
def test_what_git_forbids_in_a_name_leads_to_no_shared_branch(identifiers: tuple[str, ...]) -> None:
    assert len({branch_name(issue(identifier)) for identifier in identifiers}) == len(identifiers)


def test_a_branch_is_named_by_the_host() -> None:
    chosen = Issue(id="1", identifier="ENG-1", title="T", state="Todo", dispatchable=True, branch_name="main")
    assert branch_name(chosen) == "issue/ENG-1"


@pytest.mark.system
@given(st.lists(st.text(alphabet="Aa.-_@{~^:?*[\\ é/lock", min_size=1, max_size=20), min_size=1, max_size=10))
@example(["A..B", "a.lock", "a..b/c", "a.lock/", "x..lock", "x" * 99 + ".lock", "-", "--x"])
def test_git_accepts_every_branch(identifiers: list[str]) -> None:
    for identifier in identifiers:
        if key_or_none(identifier) is None:
            continue
        name = branch_name(issue(identifier))
        done = subprocess.run([git(), "check-ref-format", "--branch", name], capture_output=True, check=False)
        assert (done.returncode, done.stdout.decode().strip()) == (0, name)


def git() -> str:
    found = shutil.which("git")
    if found is None:
        pytest.skip("git is not installed")
    return found


def test_a_place_is_inside_its_root_which_is_made_for_this_user_alone(tmp_path: Path) -> None:
    found = place(tmp_path / "state/workspaces", "A/B")
    root = tmp_path / "state/workspaces"
    assert found == WorkspacePlace(root=root, path=root / workspace_key("A/B"), key=workspace_key("A/B"))
    assert (stat.S_IMODE(root.stat().st_mode), found.path.exists()) == (0o700, False)


def test_a_root_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o755)
    place(root, "A")
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_a_root_that_is_a_link_is_resolved_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert place(tmp_path / "link", "A").path == tmp_path / "real/A"


def test_a_root_that_others_can_change_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for mode in (0o777, 0o1777, 0o770):
        root.chmod(mode)
        with pytest.raises(WorkspaceError, match="that you alone can change"):
            place(root, "A")


def test_what_cannot_be_a_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file", "dangling", "loop"):
        with pytest.raises(WorkspaceError):
            place(tmp_path / name, "A")
    assert not (tmp_path / "nothing").exists()


def test_a_link_or_a_file_in_place_of_the_workspace_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    place(root, "A")
    (tmp_path / "elsewhere").mkdir()
    (root / "A").symlink_to(tmp_path / "elsewhere")
    (root / "B").symlink_to(tmp_path / "nothing")
    (root / "C").write_text("")
    for identifier in ("A", "B", "C"):
        with pytest.raises(WorkspaceError, match="is not a folder"):
            place(root, identifier)


def test_a_home_is_fresh_private_and_beside_the_workspaces(tmp_path: Path) -> None:
    home = make_run_home(tmp_path / "runs", "r-1")
    assert home == tmp_path / "runs/r-1/home"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home, home.parent, home.parent.parent)} == {0o700}
    with pytest.raises(WorkspaceError, match="exists already"):
        make_run_home(tmp_path / "runs", "r-1")


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "a b", "x" * 65, ".x"])
def test_a_home_has_the_name_of_a_run(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ValueError, match="not a run id"):
        make_run_home(tmp_path / "runs", run_id)
    assert not (tmp_path / "runs").exists()


def test_a_link_in_place_of_a_runs_folder_or_home_is_refused(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    make_run_home(runs, "r-1")
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (runs / "r-2").symlink_to(elsewhere)
    (runs / "r-3").mkdir(mode=0o700)
    (runs / "r-3/home").symlink_to(elsewhere)
    with pytest.raises(ConfigError):
        make_run_home(runs, "r-2")
    with pytest.raises(WorkspaceError):
        make_run_home(runs, "r-3")
    assert (list(elsewhere.iterdir()), stat.S_IMODE(elsewhere.stat().st_mode)) == ([], 0o755)


def test_a_home_goes_with_its_folder_and_no_other_runs(tmp_path: Path) -> None:
    first, second = make_run_home(tmp_path / "runs", "r-1"), make_run_home(tmp_path / "runs", "r-2")
    (first / "a/b").mkdir(parents=True)
    (first.parent / "config.json").write_text("{}")
    assert remove_run_home(first) is True
    assert (os.listdir(tmp_path / "runs"), second.is_dir()) == (["r-2"], True)
    assert remove_run_home(first) is True


def test_a_repository_is_a_real_path_that_holds_one(tmp_path: Path) -> None:
    (tmp_path / "bare.git").mkdir()
    (tmp_path / "bare.git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "work/.git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    found = [check_repository(str(tmp_path / name)) for name in ("bare.git", "work", "link")]
    assert found == [tmp_path / "bare.git", tmp_path / "work", tmp_path / "work"]
    for name in ("none", "bare.git/HEAD", "work/.git"):
        with pytest.raises(ConfigError, match="is not a git repository"):
            check_repository(str(tmp_path / name))
