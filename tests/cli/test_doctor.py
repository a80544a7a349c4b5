"""`hostside doctor`: each thing that can be wrong is found, with a remedy, and nothing secret is said (R-357, AX-56)."""

import json
import shutil
import socket
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hostside.store.runs import Run, RunState
from hostside.worker.isolation_level import IsolationLevel, IsolationReport, LevelStatus
from tests.cli.conftest import CommandLine

SECRET = "lin_api_0123456789abcdefABCDEF"


def _report(*, bwrap: bool) -> IsolationReport:
    missing = LevelStatus(
        level=IsolationLevel.BWRAP,
        available=bwrap,
        reason="" if bwrap else "bwrap is not installed",
        remedy="" if bwrap else "Install the package bubblewrap (0.8 or newer).",
    )
    user = LevelStatus(level=IsolationLevel.USER, available=False, reason="only root can", remedy="Use bwrap.")
    home = LevelStatus(level=IsolationLevel.HOME, available=True, reason="no wall", remedy="Use bwrap.")
    return IsolationReport(levels=(missing, user, home))


@pytest.fixture
def doctor(hostside: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """A host with a wall, whatever this machine has; no agent is on PATH."""
    monkeypatch.setattr("hostside.app.doctor_machine.probe_levels", lambda: _report(bwrap=True))
    found = shutil.which("git")
    assert found is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    hostside.world.configure('[agent]\nkind = "scripted"\n')
    return hostside


def _checks(hostside: CommandLine, code: int) -> dict[str, dict[str, str]]:
    found = hostside("doctor", "--json")
    assert found.code == code, found.out
    assert list(found.json) == ["ok", "checks"]
    assert found.json["ok"] is (code == 0)
    checks = found.json["checks"]
    assert all(list(check) == ["name", "status", "detail", "remedy"] for check in checks)
    assert all(bool(check["remedy"]) is (check["status"] != "ok") for check in checks)
    return {check["name"]: check for check in checks}


def test_a_sound_installation_has_no_failed_check(doctor: CommandLine) -> None:
    found = _checks(doctor, 0)

    names = (
        "python platform configuration state git bubblewrap isolation network agent:claude agent:codex repository port store "
        "trackers.main clock workflows runs receipts"
    )
    assert list(found) == [name.replace(":", " ") for name in names.split()]
    assert found["trackers.main"]["detail"] == f"file · {doctor.world.tracker} · 2 issue(s)"
    assert found["isolation"]["status"] == "ok"


def test_each_remedy_stands_under_its_finding(doctor: CommandLine) -> None:
    out = doctor("doctor").out

    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if "agent claude" in line)
    assert lines[at].startswith("warn  agent claude")
    assert lines[at + 1].lstrip().startswith("try: Run `npm install -g @anthropic-ai/claude-code@")


def _no_configuration(world: CommandLine) -> None:
    world.world.config.unlink()


def _wrong_configuration(world: CommandLine) -> None:
    world.world.configure("[nonsense]\n")


def _writable_configuration(world: CommandLine) -> None:
    world.world.config.chmod(0o666)


def _missing_secret(world: CommandLine) -> None:
    world.world.configure('[code]\nkind = "github"\nrepository = "a/b"\ntoken = "env:ABSENT_TOKEN"\n')


def _open_secret(world: CommandLine) -> None:
    file = world.world.folder / "token"
    file.write_text(SECRET, encoding="utf-8")
    file.chmod(0o644)
    world.world.configure(f'[code]\nkind = "github"\nrepository = "a/b"\ntoken = "file:{file}"\n')


def _missing_tracker(world: CommandLine) -> None:
    world.world.tracker.unlink()


def _broken_tracker(world: CommandLine) -> None:
    world.world.tracker.write_text("no json", encoding="utf-8")


def _unknown_tracker(world: CommandLine) -> None:
    world.world.configure('[trackers.l]\nkind = "linear"\ntoken = "env:HOME"\nproject = "p"\n')


def _missing_repository(world: CommandLine) -> None:
    text = world.world.config.read_text(encoding="utf-8").replace(str(world.world.origin), "/nonexistent/x.git")
    world.world.config.write_text(text, encoding="utf-8")


def _missing_agent(world: CommandLine) -> None:
    text = world.world.config.read_text(encoding="utf-8").replace('"scripted"', '"codex"')
    world.world.config.write_text(text, encoding="utf-8")


def _damaged_store(world: CommandLine) -> None:
    world("receipts", "list")
    database = world.world.state / "hostside.db"
    database.write_bytes(b"not a database, whatever its name says" * 100)


def _changed_receipt(world: CommandLine) -> None:
    world("call", "list_dir")
    connection = sqlite3.connect(world.world.state / "hostside.db")
    with connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("UPDATE receipt_events SET duration_ms = duration_ms + 1")
    connection.close()


def _clock_before_the_newest_record(world: CommandLine) -> None:
    world("call", "list_dir")
    connection = sqlite3.connect(world.world.state / "hostside.db")
    with connection:
        connection.execute("UPDATE sessions SET opened_at = '2999-01-01T00:00:00.000000Z'")
    connection.close()


def _leftover_run(world: CommandLine) -> None:
    with world.opened() as app:
        run = Run(
            run_id="r-dead",
            kind="issue",
            state=RunState.RUNNING,
            agent="scripted",
            started_by="somebody",
            started_at=datetime.now(UTC),
            pid=1,
            pid_started_at=1,
        )
        app.runs.create(run)


def _open_state_file(world: CommandLine) -> None:
    with world.opened() as app:
        app.host_key()
    (world.world.state / "host.key").chmod(0o644)


def _unbelievable_trust(world: CommandLine) -> None:
    (world.world.state).mkdir(mode=0o700, exist_ok=True)
    trust = world.world.state / "trusted-workflows.json"
    trust.write_text("[]", encoding="utf-8")
    trust.chmod(0o600)


@pytest.mark.parametrize(
    ("damage", "name", "status"),
    [
        (_no_configuration, "configuration", "warn"),
        (_wrong_configuration, "configuration", "fail"),
        (_writable_configuration, "configuration", "fail"),
        (_missing_secret, "code.token", "fail"),
        (_open_secret, "code.token", "fail"),
        (_missing_tracker, "trackers.main", "warn"),
        (_broken_tracker, "trackers.main", "fail"),
        (_unknown_tracker, "trackers.l", "warn"),
        (_missing_repository, "repository", "fail"),
        (_missing_agent, "agent codex", "fail"),
        (_damaged_store, "store", "fail"),
        (_changed_receipt, "receipts", "fail"),
        (_clock_before_the_newest_record, "clock", "fail"),
        (_leftover_run, "runs", "warn"),
        (_open_state_file, "state", "fail"),
        (_unbelievable_trust, "workflows", "fail"),
    ],
)
def test_each_damage_is_found_with_a_remedy_and_the_other_checks_go_on(
    doctor: CommandLine, damage: Callable[[CommandLine], None], name: str, status: str
) -> None:
    damage(doctor)

    found = _checks(doctor, 1 if status == "fail" else 0)

    assert found[name]["status"] == status
    assert found["git"]["status"] == "ok"
    assert SECRET not in json.dumps(found)


def test_without_a_wall_the_isolation_fails_and_says_what_to_install(
    doctor: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostside.app.doctor_machine.probe_levels", lambda: _report(bwrap=False))

    assert _checks(doctor, 1)["isolation"] == {
        "name": "isolation",
        "status": "fail",
        "detail": "isolation level bwrap is not available: bwrap is not installed",
        "remedy": "Install the package bubblewrap (0.8 or newer).",
    }


def test_a_port_in_use_is_a_warning(doctor: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        doctor.world.configure(f'[serve]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n')

        assert _checks(doctor, 0)["port"]["status"] == "warn"


def test_a_state_folder_that_cannot_be_had_ends_the_examination_with_its_reason(
    doctor: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    found = _checks(doctor, 1)

    assert list(found) == ["python", "platform", "state"]
    assert found["state"]["status"] == "fail"
