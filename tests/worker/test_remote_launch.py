"""A process on another machine gets the same contract (A0-22, R-331): a login shell's own secrets do not reach it."""

import subprocess
from pathlib import Path

import pytest

from hostside.app.host import App
from hostside.app.planning import environment_source
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.remote_launch import remote_command, unset_names
from tests.support.host_world import make_world

DECLARED = frozenset({"LINEAR_API_KEY", "MY_OWN_SOURCE_NAME", "LINEAR_AUTHORIZATION"})


def over_ssh(command: str, remote: dict[str, str]) -> str:
    """What ssh does with a command: the remote user's shell runs it with that machine's environment."""
    return subprocess.run(["/bin/sh", "-c", command], env=remote, capture_output=True, text=True, check=True).stdout


def source() -> EnvironmentSource:
    return EnvironmentSource(
        base={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        declared_secrets=DECLARED,
        secret_values=frozenset({"canary-0123456789"}),
        run_facts={"HOSTSIDE_RUN_ID": "r-1"},
    )


def test_every_declared_secret_of_the_remote_side_is_gone(tmp_path: Path) -> None:
    remote = dict.fromkeys((*DECLARED, "GITHUB_TOKEN", "SSH_AUTH_SOCK"), "canary-of-the-remote-side")
    remote["PATH"] = "/usr/bin:/bin"
    command = remote_command(["env"], source(), home=str(tmp_path))
    seen = over_ssh(command, remote)
    assert "canary" not in seen
    assert "HOSTSIDE_RUN_ID=r-1" in seen.splitlines()
    for name in DECLARED:
        assert f"-u {name}" in command


def test_no_value_can_become_a_command(tmp_path: Path) -> None:
    words = ["printf", "%s|", "a b", "$(id)", "`id`", "'; id; '", '"', "-u", "\n"]
    command = remote_command(words, source(), home=f"{tmp_path}/$(touch made)", extras={"X": "'$(touch made)'"})
    assert over_ssh(command, {"PATH": "/usr/bin:/bin"}) == "a b|$(id)|`id`|'; id; '|\"|-u|\n|"
    assert not (tmp_path / "made").exists()


def test_a_secret_does_not_travel_in_a_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="KEY"):
        remote_command(["env"], source(), home=str(tmp_path), extras={"KEY": "x canary-0123456789"})


def test_the_names_to_unset_are_the_declared_ones_once_each() -> None:
    assert unset_names([*DECLARED, "LINEAR_API_KEY"]) == (
        "LINEAR_API_KEY",
        "LINEAR_AUTHORIZATION",
        "MY_OWN_SOURCE_NAME",
    )


def test_the_names_that_the_configuration_takes_secrets_from_are_unset_over_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For good, and of the whole test process: other tests read their own /proc.
    monkeypatch.setattr("hostside.app.host.make_undumpable", lambda: None)
    world = make_world(tmp_path)
    world.configure('[trackers.other]\nkind = "linear"\ntoken = "env:MY_OWN_SOURCE_NAME"\nproject = "x"\n')
    world.configure('[code]\nkind = "github"\nrepository = "a/b"\ntoken = "env:ANOTHER_NAME"\n')
    here = {"MY_OWN_SOURCE_NAME": "canary-0123456789", "ANOTHER_NAME": "canary-9876543210"}
    with App.open(environment=world.environment(here)) as app:
        command = remote_command(["env"], environment_source(app), home=str(tmp_path))
    seen = over_ssh(command, {"PATH": "/usr/bin:/bin", **dict.fromkeys(here, "of-the-remote-side")})
    assert [name for name in here if f"-u {name}" not in command or f"{name}=" in seen] == []
    assert [text for text in (*here.values(), "of-the-remote-side") if text in command + seen] == []
