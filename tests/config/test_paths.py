"""Where configuration and state are: the user's own folders, whatever the current directory holds (D8, D16)."""

import os
import stat
from pathlib import Path

import pytest

from hostside.config.paths import HostPaths, host_paths, make_private
from hostside.errors import ConfigError


def test_the_files_lie_in_the_users_own_folders(tmp_path: Path) -> None:
    paths = host_paths({"HOME": str(tmp_path)})
    state = tmp_path / ".local/state/hostside"
    assert paths == HostPaths(config_file=tmp_path / ".config/hostside/hostside.toml", state=state)
    assert (paths.database, paths.runs, paths.workspaces, paths.trust, paths.host_key) == (
        state / "hostside.db",
        state / "runs",
        state / "workspaces",
        state / "trusted-workflows.json",
        state / "host.key",
    )
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert not paths.config_file.parent.exists()


def test_xdg_folders_and_an_explicit_file_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": "/nowhere", "XDG_CONFIG_HOME": f"{tmp_path}/c", "XDG_STATE_HOME": f"{tmp_path}/s"}
    assert host_paths(environment).config_file == tmp_path / "c/hostside/hostside.toml"
    assert host_paths(environment, config=Path("other.toml")).config_file == tmp_path / "other.toml"


def test_the_current_directory_never_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    for folder in (work / "hostside", home):
        folder.mkdir(parents=True)
    for name in ("hostside.toml", ".env", "hostside/hostside.toml"):
        (work / name).write_text("[agent]\nkind = 'codex'\n")
    monkeypatch.chdir(work)
    paths = host_paths({"HOME": str(home), "XDG_CONFIG_HOME": ".", "XDG_STATE_HOME": "state"})
    assert paths == HostPaths(config_file=home / ".config/hostside/hostside.toml", state=home / ".local/state/hostside")
    assert not (work / "state").exists()
    with pytest.raises(ConfigError, match="HOME is not an absolute path"):
        host_paths({"HOME": "."})


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_folder_is_made_for_this_user_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = make_private(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (made, made.parent, made.parent.parent)]
    assert modes == [0o700] * 3


def test_a_folder_that_is_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert stat.S_IMODE(make_private(tmp_path / "open").stat().st_mode) == 0o700


def test_a_link_in_place_of_the_folder_is_refused_and_its_target_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    target.chmod(0o755)
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    for name in ("link", "dangling", "file", "file/below"):
        with pytest.raises(ConfigError) as caught:
            make_private(tmp_path / name)
        assert caught.value.remedy
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert not (tmp_path / "nothing").exists()


def test_another_users_folder_is_refused(tmp_path: Path, stranger: int) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    os.chown(tmp_path / "theirs", stranger, stranger)
    with pytest.raises(ConfigError, match="not a folder of this user"):
        make_private(tmp_path / "theirs")
