"""The places of runs that are another user: a way through, no look around, each run's own (D8, D9)."""

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from hostside.errors import ConfigError
from hostside.worker.checkout import prepare
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, LevelStatus
from hostside.worker.run_places import check_passage, check_reach, make_passage, scratch
from hostside.worker.sandbox_args import Bind
from hostside.worker.workspace import WorkspaceError, make_run_home, place, remove_run_home
from tests.support.user_worlds import RUN_USER
from tests.worker.checkouts import a_repository, git

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as another user needs root")


def mode(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, stat.S_IMODE(status.st_mode)


def as_run_user(*argv: str) -> int:
    return subprocess.run(
        argv, user=RUN_USER.uid, group=RUN_USER.gid, extra_groups=[], cwd="/", env={}, check=False, capture_output=True
    ).returncode


def test_a_home_is_its_users_behind_a_passage_that_it_can_neither_list_nor_change(folder: Path) -> None:
    old = os.umask(0o077)
    try:
        home = make_run_home(folder / "a/homes", "r-1", RUN_USER)
    finally:
        os.umask(old)
    passages = [folder / "a", folder / "a/homes", folder / "a/homes/r-1"]
    assert [mode(path) for path in (*passages, home)] == [(0, 0o711)] * 3 + [(RUN_USER.uid, 0o700)]
    assert as_run_user("/usr/bin/touch", str(home / "file")) == 0
    tried = [as_run_user(*words, str(path)) for words in (("/usr/bin/ls",), ("/usr/bin/rm", "-d")) for path in passages]
    assert 0 not in tried
    with pytest.raises(WorkspaceError, match="exists already"):
        make_run_home(folder / "a/homes", "r-1", RUN_USER)
    assert (remove_run_home(home), list((folder / "a/homes").iterdir())) == (True, [])


@pytest.mark.parametrize(
    ("found", "why", "remedy"),
    [
        (0o755, "others can list or change it", "chmod 711"),
        (0o731, "others can list or change it", "chmod 711"),
        (0o713, "others can list or change it", "chmod 711"),
        (0o700, "cannot get there", "chmod o+x"),
    ],
)
def test_a_passage_that_exists_is_not_changed_but_refused(folder: Path, found: int, why: str, remedy: str) -> None:
    root = folder / "root"
    root.mkdir()
    root.chmod(found)
    for look in (make_passage, check_passage):
        with pytest.raises(ConfigError) as refused:
            look(root, RUN_USER)
        assert (why in refused.value.message, remedy in refused.value.remedy) == (True, True)
    with pytest.raises(ConfigError):
        place(root, "ENG-1", RUN_USER)
    assert (mode(root), list(root.iterdir())) == ((0, found), [])


def test_a_passage_of_another_user_is_refused(folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    root.chmod(0o711)
    os.chown(root, RUN_USER.uid, RUN_USER.gid)
    with pytest.raises(ConfigError, match="no folder of the host's user"):
        make_passage(root, RUN_USER)


def test_a_place_below_a_private_folder_is_refused_before_it_is_made_where_doctor_looks(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="cannot get there"):
        check_passage(private / "homes", RUN_USER)
    check_passage(folder / "free/homes", RUN_USER)
    assert (list(private.iterdir()), (folder / "free").exists()) == ([], False)
    with pytest.raises(ConfigError, match="cannot get there"):
        make_run_home(private / "homes", "r-1", RUN_USER)


def test_without_a_user_places_are_as_private_as_before(folder: Path) -> None:
    home = make_run_home(folder / "homes", "r-1")
    found = place(folder / "workspaces", "ENG-1")
    assert [mode(path) for path in (home, home.parent, home.parent.parent, found.root)] == [(0, 0o700)] * 4
    assert found.owner is None
    check_reach(None, [folder / "absent"])


def test_what_a_run_needs_and_its_user_cannot_read_is_named(folder: Path) -> None:
    program = folder / "program"
    program.touch(mode=0o700)
    with pytest.raises(ConfigError) as refused:
        check_reach(RUN_USER, [program])
    assert str(program) in refused.value.message
    program.chmod(0o755)
    check_reach(RUN_USER, [program])


def test_a_workspace_of_another_user_is_not_taken_over(folder: Path) -> None:
    root = make_passage(folder / "workspaces", RUN_USER)
    (root / "ENG-1").mkdir(mode=0o700)
    with pytest.raises(WorkspaceError, match="belongs to another user") as refused:
        place(root, "ENG-1", RUN_USER)
    assert f"chown -hR {RUN_USER.uid}:{RUN_USER.gid}" in refused.value.remedy
    assert mode(root / "ENG-1") == (0, 0o700)


@pytest.mark.system
@pytest.mark.parametrize("level", ["user", "bwrap"])
def test_a_checkout_of_roots_repository_is_made_by_the_runs_user_and_is_all_its_own(
    level: str, folder: Path, bwrap_status: LevelStatus
) -> None:
    if level == "bwrap" and not bwrap_status.available:
        pytest.skip(f"isolation level bwrap not available: {bwrap_status.reason}")
    seed = a_repository(folder / "seed", branch="main")
    git(folder, "clone", "--quiet", "--bare", str(seed), str(folder / "origin.git"))
    home = make_run_home(folder / "homes", "r-1", RUN_USER)

    def isolation_for(where: Path, binds: Sequence[Bind]) -> RunIsolation:
        source = EnvironmentSource(base={"PATH": "/usr/bin:/bin"})
        return RunIsolation(
            level=IsolationLevel(level),
            workspace=where,
            home=home,
            environment=source,
            ro_binds=tuple(binds),
            user=RUN_USER,
        )

    async def both() -> list[bool]:
        where = place(folder / "workspaces", "ENG-1", RUN_USER)
        made = [
            await prepare(
                place(folder / "workspaces", "ENG-1", RUN_USER),
                repository=folder / "origin.git",
                branch="issue/ENG-1",
                base=None,
                isolation_for=isolation_for,
            )
            for _ in range(2)
        ]
        assert {checkout.path for checkout in made} == {where.path}
        return [checkout.created for checkout in made]

    assert anyio.run(both) == [True, False]
    workspace = folder / "workspaces/ENG-1"
    assert mode(workspace) == (RUN_USER.uid, 0o700)
    assert {path.lstat().st_uid for path in workspace.rglob("*")} == {RUN_USER.uid}


def test_a_scratch_place_is_the_users_while_it_is_needed_and_gone_afterwards(folder: Path) -> None:
    homes = folder / "homes"
    with scratch(RUN_USER, homes) as made:
        assert [mode(path) for path in made] == [(RUN_USER.uid, 0o700)] * 2
        assert as_run_user("/usr/bin/touch", str(made[1] / "file")) == 0
        assert as_run_user("/usr/bin/ls", str(homes)) != 0
    assert list(homes.iterdir()) == []
    with scratch(None, homes) as made:
        assert [mode(path) for path in made] == [(0, 0o700)] * 2
    assert not made[0].parent.exists()
