"""Who may be the user of a root host's runs, and what the operator is told (D9)."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from hostside.config.host import settings_from
from hostside.errors import ConfigError
from hostside.worker import run_user
from hostside.worker.isolation_level import IsolationLevel, IsolationReport, LevelStatus, choose, probe_levels
from hostside.worker.process import RunUser
from hostside.worker.run_user import (
    PRIVILEGED_GROUPS,
    USERADD,
    explained,
    first_unreachable,
    own_environment,
    refuse_at_home,
    resolve_run_user,
)
from tests.support.user_worlds import RUN_USER

ACCOUNTS = {
    "root": (0, [0]),
    "toor": (0, [7]),
    "hostside-agent": (998, [998]),
    "in-root": (997, [0]),
    **{f"in-{group}": (500, [500, 600 + number]) for number, group in enumerate(sorted(PRIVILEGED_GROUPS - {"root"}))},
}
GROUPS = {600 + number: group for number, group in enumerate(sorted(PRIVILEGED_GROUPS - {"root"}))}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as another user needs root")


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with these users and a host that is root."""

    def entry(name: str) -> pwd.struct_passwd:
        uid, gids = ACCOUNTS[name]
        return pwd.struct_passwd((name, "x", uid, gids[0], "", "/nonexistent", "/usr/sbin/nologin"))

    def by_number(uid: int) -> pwd.struct_passwd:
        return entry(next((name for name, (number, _) in ACCOUNTS.items() if number == uid), "nobody here"))

    def group(gid: int) -> grp.struct_group:
        return grp.struct_group((GROUPS[gid], "x", gid, []))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", entry)
    monkeypatch.setattr(pwd, "getpwuid", by_number)
    monkeypatch.setattr(grp, "getgrgid", group)
    monkeypatch.setattr(os, "getgrouplist", lambda name, _gid: ACCOUNTS[name][1])


@pytest.mark.usefixtures("accounts")
@pytest.mark.parametrize(
    ("wanted", "user"),
    [
        ("hostside-agent", RunUser(uid=998, gid=998)),
        ("998", RunUser(uid=998, gid=998)),
        ("23456", RunUser(uid=23_456, gid=23_456)),
    ],
)
def test_a_user_is_named_or_numbered_and_a_number_needs_no_entry(wanted: str, user: RunUser) -> None:
    assert resolve_run_user(wanted) == user


@pytest.mark.usefixtures("accounts")
@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("root", "root, the host's own user"),
        ("toor", "root, the host's own user"),
        ("nobody-here", "there is no user nobody-here"),
        ("4294967295", "is no user's number"),
        ("9999999999", "is no user's number"),
        ("in-root", "in the group root"),
        *((f"in-{group}", f"in the group {group}") for group in sorted(PRIVILEGED_GROUPS - {"root"})),
        ("600", "in the group adm"),
    ],
)
def test_a_user_that_is_root_or_can_become_it_is_refused_by_name(wanted: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_run_user(wanted)
    assert refused.value.message.startswith("run.user: ")
    assert why in refused.value.message
    assert USERADD in refused.value.remedy


def test_a_host_that_is_not_root_has_no_other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="only a host that runs as root"):
        resolve_run_user("23456")


def test_level_home_and_another_user_contradict_each_other() -> None:
    refuse_at_home(None)
    with pytest.raises(ConfigError, match="another one"):
        refuse_at_home(RUN_USER)


@pytest.mark.parametrize(
    ("written", "user"), [("hostside-agent", "hostside-agent"), ("23456", "23456"), (23_456, "23456"), ("_x", "_x")]
)
def test_the_configuration_takes_a_name_or_a_number(written: str | int, user: str) -> None:
    assert settings_from({"run": {"user": written}}, source="test").run.user == user


@pytest.mark.parametrize("written", ["", "0", 0, -1, True, 1.5, "a b", "-x", "A", "../x", "x" * 33, "x\n"])
def test_anything_else_is_refused_by_its_key(written: object) -> None:
    with pytest.raises(ConfigError, match=r"run\.user"):
        settings_from({"run": {"user": written}}, source="test")


def report(*, bwrap: str = "", user: bool = True) -> IsolationReport:
    return IsolationReport(
        levels=(
            LevelStatus(level=IsolationLevel.BWRAP, available=not bwrap, reason=bwrap, remedy=bwrap and "Install it."),
            LevelStatus(level=IsolationLevel.USER, available=user, reason="" if user else "none", remedy="Name one."),
            LevelStatus(level=IsolationLevel.HOME, available=True),
        )
    )


def test_a_root_host_without_a_user_is_told_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert explained(report(user=False), None).status(IsolationLevel.USER).remedy == USERADD
    unswitched = LevelStatus(level=IsolationLevel.BWRAP, available=True, reason="files belong to root", remedy="x")
    found = explained(IsolationReport(levels=(unswitched, *report(user=False).levels[1:])), None)
    assert found.status(IsolationLevel.BWRAP).remedy == f"{USERADD} Or start hostside as an ordinary user."


@needs_root
def test_auto_takes_bwrap_then_a_user_that_works_and_never_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def chosen(found: IsolationReport) -> str:
        try:
            return choose("auto", secrets_configured=False, demo=False, report=explained(found, RUN_USER))
        except ConfigError as error:
            return error.message

    without = report(bwrap="bwrap is not installed")
    assert (chosen(report()), chosen(without)) == ("bwrap", "user")
    (tmp_path / "off").write_text("0\n")
    monkeypatch.setattr(run_user, "_HARD_LINKS", tmp_path / "off")
    status = explained(without, RUN_USER).status(IsolationLevel.USER)
    assert (status.available, status.remedy) == (False, "Run: sysctl -w fs.protected_hardlinks=1")
    assert chosen(without) == "isolation level bwrap is not available: bwrap is not installed"


@needs_root
def test_a_user_whose_processes_do_not_start_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explained(report(), RUN_USER).status(IsolationLevel.USER) == report().status(IsolationLevel.USER)
    monkeypatch.setattr("subprocess.run", _no_such_user)
    status = explained(report(), RUN_USER).status(IsolationLevel.USER)
    assert (status.available, "no process can be started as" in status.reason, bool(status.remedy)) == (
        False,
        True,
        True,
    )


def _no_such_user(*_: object, **__: object) -> None:
    raise OSError(22, "Invalid argument")


@needs_root
@pytest.mark.system
def test_the_sandbox_of_another_user_has_no_reservation_on_a_root_host(bwrap: None) -> None:
    assert probe_levels(RUN_USER).status(IsolationLevel.BWRAP).reason == ""


@needs_root
def test_what_a_user_cannot_read_is_found_by_trying(folder: Path) -> None:
    def made(name: str, make: Callable[[Path], object], mode: int) -> Path:
        path = folder / name
        make(path)
        path.chmod(mode)
        return path

    good = [made("file", Path.touch, 0o644), made("program", Path.touch, 0o711), made("folder", Path.mkdir, 0o755)]
    bad = [made("closed", Path.touch, 0o600), made("unlisted", Path.mkdir, 0o711), folder / "absent"]
    assert first_unreachable(RUN_USER, good) is None
    assert [first_unreachable(RUN_USER, [*good, path, *good]) for path in bad] == bad


def test_at_level_user_the_environment_does_not_speak_of_the_hosts_user() -> None:
    ours = {"PATH": "/usr/bin", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/zsh", "TMPDIR": "/private/tmp"}
    name = str(RUN_USER.uid)
    assert own_environment(ours, RUN_USER, IsolationLevel.USER) == {
        "PATH": "/usr/bin",
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/sh",
    }
    assert (
        own_environment(ours, None, IsolationLevel.BWRAP)
        == own_environment(ours, RUN_USER, IsolationLevel.BWRAP)
        == ours
    )
