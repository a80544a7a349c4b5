"""The environment contract (R-324 to R-330, C-26.a)."""

import pytest

from hostside.errors import ConfigError
from hostside.worker.child_environment import build_environment

HOME = "/home/agent"
FOLDERS = {
    "HOME": HOME,
    "USERPROFILE": HOME,
    "XDG_CONFIG_HOME": "/home/agent/.config",
    "XDG_DATA_HOME": "/home/agent/.local/share",
    "XDG_STATE_HOME": "/home/agent/.local/state",
    "XDG_CACHE_HOME": "/home/agent/.cache",
    "GH_CONFIG_DIR": "/home/agent/.config/gh",
    "GIT_TERMINAL_PROMPT": "0",
}
HOST = {
    "PATH": "/usr/bin",
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "TERM": "xterm",
    "HOME": "/srv/operator",
    "XDG_CONFIG_HOME": "/srv/operator/.config",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "GH_TOKEN": "canary",
    "GITHUB_TOKEN": "canary",
    "LINEAR_API_KEY": "canary",
    "GITEA_TOKEN": "canary",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "AWS_SECRET_ACCESS_KEY": "canary",
    "GIT_ASKPASS": "/usr/bin/askpass",
    "X_CUSTOM_SECRET": "canary",
    "LD_PRELOAD": "/tmp/spy.so",
    "PYTHONPATH": "/tmp",
}
PORTABLE = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "LC_TIME": "de_DE.UTF-8", "TERM": "xterm"}


def build(**changes: object) -> dict[str, str]:
    settings: dict[str, object] = {"home": HOME, "declared_secrets": (), "run_facts": {}, "extras": {}, "base": {}}
    return build_environment(**(settings | changes))  # type: ignore[arg-type]


def test_of_the_host_only_the_portable_names_are_taken() -> None:
    assert build(base=HOST) == PORTABLE | FOLDERS


def test_run_facts_and_extras_are_added_and_cannot_move_the_home() -> None:
    facts = {"HOSTSIDE_BRANCH": "issue/7", "HOME": "/elsewhere"}
    extras = {"ANTHROPIC_API_KEY": "run-token", "GH_CONFIG_DIR": "/srv/operator/.config/gh", "PATH": "/opt/agent"}
    assert build(base=HOST, run_facts=facts, extras=extras) == {
        **PORTABLE,
        **FOLDERS,
        "HOSTSIDE_BRANCH": "issue/7",
        "ANTHROPIC_API_KEY": "run-token",
        "PATH": "/opt/agent",
    }


def test_the_author_identity_of_git_is_all_of_git_that_can_be_set() -> None:
    identity = {
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    others = dict.fromkeys(("GIT_DIR", "GIT_INDEX_FILE", "GIT_CONFIG_COUNT", "GIT_EXEC_PATH", "GIT_PROXY_COMMAND"), "x")
    assert build(extras=identity | others) == FOLDERS | identity


@pytest.mark.parametrize(
    "name",
    [
        "GIT_ASKPASS",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0",
        "GIT_CONFIG_VALUE_0",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "TOKEN_BROKER_URL",
        "GITHUB_TOKEN_BROKER_SECRET",
        "AGENT_CREDENTIAL_BROKER_URL",
        "AGENT_CREDENTIAL_CACHE_PATH",
        "DBUS_SESSION_BUS_ADDRESS",
        "DECLARED_SECRET",
        "HOSTSIDE_BRANCH",
    ],
)
@pytest.mark.parametrize("source", ["base", "run_facts", "extras"])
def test_a_name_that_leads_to_a_credential_is_removed_wherever_it_came_from(source: str, name: str) -> None:
    declared = ("DECLARED_SECRET", "HOSTSIDE_BRANCH")  # the second one is also the name of a run fact (AX-52)
    assert build(declared_secrets=declared, **{source: {name: "value"}}) == FOLDERS


def test_a_later_git_terminal_prompt_cannot_be_turned_on() -> None:
    assert build(extras={"GIT_TERMINAL_PROMPT": "1"}) == FOLDERS


def test_a_variable_that_carries_a_secret_value_under_any_name_is_removed() -> None:
    extras = {
        "WHOLE": "secret-of-the-host",
        "PART": "https://x:secret-of-the-host@example.org/",
        "SHORT": "pin4",
        "WORD": "spinning4pin4",
        "HARMLESS": "secret",
    }
    secrets = ("secret-of-the-host", "pin4", "")
    expected = FOLDERS | {"WORD": "spinning4pin4", "HARMLESS": "secret"}
    assert build(extras=extras, secret_values=secrets) == expected


@pytest.mark.parametrize(
    "secrets", [{"declared_secrets": ("HOME",)}, {"secret_values": ("/home/agent",)}], ids=["by name", "by value"]
)
def test_a_secret_that_would_take_the_home_away_stops_the_start(secrets: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        build(**secrets)
    assert refused.value.code == "invalid_configuration"
    assert "/home/agent" not in refused.value.message


@pytest.mark.parametrize("extras", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}, {"A\n": "x"}])
def test_what_is_no_variable_is_refused_instead_of_passed_on(extras: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not an environment variable"):
        build(extras=extras)
