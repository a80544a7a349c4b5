"""Which level a run gets, and what the operator is told."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest

from hostside.errors import ConfigError
from hostside.worker import isolation_level
from hostside.worker.isolation_level import IsolationLevel, IsolationReport, LevelStatus, Requested, choose
from hostside.worker.process import RunUser

REFUSED = "refused"
PROBE = """
import dataclasses, json
from hostside.worker.isolation_level import probe_levels
print(json.dumps(dataclasses.asdict(probe_levels().levels[0])))
"""


def report(*available: IsolationLevel) -> IsolationReport:
    return IsolationReport(
        levels=tuple(
            LevelStatus(level=level, available=level in available, reason=f"no {level}", remedy=f"fix {level}")
            for level in IsolationLevel
        )
    )


ALL = report(*IsolationLevel)
NO_BWRAP = report(IsolationLevel.USER, IsolationLevel.HOME)
ONLY_HOME = report(IsolationLevel.HOME)


@pytest.mark.parametrize(
    ("requested", "levels", "secrets", "demo", "expected"),
    [
        ("auto", ALL, True, False, "bwrap"),
        ("auto", ALL, False, True, "bwrap"),
        ("auto", NO_BWRAP, True, False, "user"),
        ("auto", ONLY_HOME, False, False, REFUSED),
        ("auto", ONLY_HOME, True, False, REFUSED),
        ("auto", ONLY_HOME, False, True, "home"),
        ("auto", ONLY_HOME, True, True, REFUSED),
        ("bwrap", ALL, True, False, "bwrap"),
        ("bwrap", NO_BWRAP, False, True, REFUSED),
        ("user", NO_BWRAP, True, False, "user"),
        ("user", ONLY_HOME, True, False, REFUSED),
        ("home", ALL, False, False, "home"),
        ("home", ALL, True, False, REFUSED),
        ("home", ALL, True, True, REFUSED),
    ],
)
def test_the_level_is_the_strongest_and_home_is_never_slipped_in(
    requested: Requested, levels: IsolationReport, secrets: bool, demo: bool, expected: str
) -> None:
    def chosen() -> str:
        try:
            return choose(requested, secrets_configured=secrets, demo=demo, report=levels)
        except ConfigError as error:
            return REFUSED if error.code == "invalid_configuration" and error.remedy else error.code

    assert chosen() == expected


def test_a_refusal_of_auto_names_the_reason_and_the_remedy_of_the_best_level() -> None:
    with pytest.raises(ConfigError) as refused:
        choose("auto", secrets_configured=True, demo=False, report=ONLY_HOME)
    assert refused.value.message == "isolation level bwrap is not available: no bwrap"
    assert refused.value.remedy == "fix bwrap"


def test_level_user_needs_a_user() -> None:
    status = isolation_level.probe_levels().status(IsolationLevel.USER)
    assert (status.available, bool(status.reason), bool(status.remedy)) == (False, True, True)


def test_a_missing_bwrap_is_told_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_level, "bwrap_path", lambda: None)
    assert isolation_level.probe_levels().levels[0] == LevelStatus(
        level=IsolationLevel.BWRAP,
        available=False,
        reason="bwrap is not installed",
        remedy="Install the package bubblewrap (0.8 or newer).",
    )


@pytest.mark.parametrize(
    ("kernel", "problem", "reason", "remedy"),
    [
        ({}, "bwrap: Unknown option --disable-userns", "this bwrap is too old", "0.8 or newer"),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": "1"},
            "bwrap: setting up uid map: Permission denied",
            "AppArmor keeps user namespaces from bwrap",
            "profile bwrap /usr/bin/bwrap flags=(unconfined)",
        ),
        (
            {"kernel/unprivileged_userns_clone": "0"},
            "bwrap: No permissions to create new namespace",
            "switched off for ordinary users",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        ({}, "bwrap: Creating new namespace failed: Operation not permitted", "container refuses", "seccomp"),
        ({}, "bwrap: Can't find source path /x: Permission denied", "Python interpreter", "python3"),
        ({}, "bwrap: something new", "bwrap: something new", "bubblewrap 0.8"),
    ],
)
def test_what_bwrap_says_becomes_a_reason_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, kernel: dict[str, str], problem: str, reason: str, remedy: str
) -> None:
    monkeypatch.setattr(isolation_level, "_kernel_says", lambda name, value: kernel.get(name) == value)
    monkeypatch.setattr(isolation_level, "bwrap_path", lambda: "/usr/bin/bwrap")

    def refuse(program: str, user: RunUser | None) -> str:
        return problem

    monkeypatch.setattr(isolation_level, "_try_bwrap", refuse)
    status = isolation_level.probe_levels().levels[0]
    assert not status.available
    assert reason in status.reason
    assert problem in status.reason
    assert remedy in status.remedy


@pytest.mark.system
@pytest.mark.usefixtures("bwrap")
def test_user_namespaces_that_are_really_off_are_found_out_by_running() -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare (util-linux) not installed")
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    done = subprocess.run(
        [unshare, "--user", "--map-root-user", "sh", "-c", script, sys.executable, PROBE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert "max_user_namespaces = 0" in status.pop("reason")
    assert status == {
        "level": "bwrap",
        "available": False,
        "remedy": "sudo sysctl -w user.max_user_namespaces=15000",
    }


@pytest.mark.system
def test_this_machine_gives_the_level_that_the_probe_promises(bwrap: None, bwrap_status: LevelStatus) -> None:
    expected = dataclasses.replace(bwrap_status, level=IsolationLevel.BWRAP, available=True)
    assert isolation_level.probe_levels().levels[0] == expected
