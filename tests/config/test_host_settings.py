"""hostside.toml: strict at every depth, frozen, and silent about values (D16, R-229)."""

import os
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import ValidationError

from hostside.config.host import (
    AgentSection,
    CodeSection,
    GiteaSection,
    GithubProjectSection,
    HostSettings,
    LinearSection,
    NetworkSection,
    load_settings,
    settings_from,
    settings_schema,
)
from hostside.config.secrets import SecretReference
from hostside.config.workflow import WorkflowLimits
from hostside.errors import ConfigError
from tests.config.conftest import WriteFile

LITERAL = "lin_api_0123456789abcdefXYZ"
SMALLEST = """\
[trackers.main]
kind = "linear"
token = "env:LINEAR_API_KEY"
project = "payments-1a2b"
[code]
kind = "github"
repository = "acme/pay"
token = "env:GITHUB_TOKEN"
[agent]
kind = "claude"
key = "env:ANTHROPIC_API_KEY"
[network]
setup = ["npm"]
"""


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        settings_from(document, source="hostside.toml")
    assert caught.value.code == "invalid_configuration"
    return caught.value.message.removeprefix("hostside.toml: ")


def test_the_smallest_configuration_of_the_design_says_what_it_says(write: WriteFile) -> None:
    settings = load_settings(write("hostside.toml", SMALLEST))
    assert settings == HostSettings(
        trackers={
            "main": LinearSection(kind="linear", token=SecretReference("env:LINEAR_API_KEY"), project="payments-1a2b")
        },
        code=CodeSection(kind="github", repository="acme/pay", token=SecretReference("env:GITHUB_TOKEN")),
        agent=AgentSection(kind="claude", key=SecretReference("env:ANTHROPIC_API_KEY")),
        network=NetworkSection(setup=("npm",)),
    )
    assert settings.secret_references() == {
        "trackers.main.token": SecretReference("env:LINEAR_API_KEY"),
        "code.token": SecretReference("env:GITHUB_TOKEN"),
        "agent.key": SecretReference("env:ANTHROPIC_API_KEY"),
    }


def test_a_missing_file_is_an_empty_one(tmp_path: Path, write: WriteFile) -> None:
    assert load_settings(tmp_path / "none.toml") == HostSettings() == load_settings(write("empty.toml", ""))
    assert HostSettings().secret_references() == {}


def test_trackers_of_every_kind_stand_side_by_side() -> None:
    token = SecretReference("env:T")
    settings = settings_from(
        {
            "trackers": {
                "a": {"kind": "gitea", "token": "env:T", "url": "https://git.example/sub", "repository": "a/b"},
                "b": {"kind": "github-project", "token": "env:T", "owner": "acme", "project": 3},
                "c": {"kind": "file", "path": "~/issues.json"},
            }
        },
        source="x",
    )
    assert (settings.trackers["a"], settings.trackers["b"]) == (
        GiteaSection(kind="gitea", token=token, url="https://git.example/sub", repository="a/b"),
        GithubProjectSection(kind="github-project", token=token, owner="acme", project=3),
    )
    assert settings.secret_references() == {"trackers.a.token": token, "trackers.b.token": token}


LINEAR = {"kind": "linear", "token": "env:T", "project": "p"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"agents": {}}, "agents: unknown key"),
        ({"agent": {"kindly": 1}}, "agent.kindly: unknown key"),
        ({"trackers": {"linear": {**LINEAR, "api_key": "x"}}}, "trackers.linear.api_key: unknown key"),
        ({"agent": {"kind": "gemini"}}, "agent.kind: must be 'claude', 'codex' or 'scripted'"),
        (
            {"trackers": {"m": {"kind": "jira"}}},
            "trackers.m: `kind` must be one of 'file', 'linear', 'github-project', 'gitea'",
        ),
        ({"trackers": {"m": {"token": "env:T"}}}, "trackers.m: `kind` is required"),
        ({"trackers": {"m": {"kind": "linear", "token": "env:T"}}}, "trackers.m.project: required"),
        ({"run": {"max_minutes": "3"}}, "run.max_minutes: input should be a valid integer"),
        ({"run": {"max_minutes": 3.0}}, "run.max_minutes: input should be a valid integer"),
        ({"run": {"max_minutes": True}}, "run.max_minutes: input should be a valid integer"),
        ({"run": {"max_minutes": 1_441}}, "run.max_minutes: input should be less than or equal to 1440"),
        ({"policy": {"list_unreachable": 1}}, "policy.list_unreachable: input should be a valid boolean"),
        ({"policy": {"confirm": [1]}}, "policy.confirm.0: input should be a valid string"),
        ({"policy": {"confirm": "git_push"}}, "policy.confirm: input should be a valid tuple"),
        (
            {"network": {"setup": ["nmp"]}},
            "network.setup.0: expected host:port or one of npm, pypi, crates, go, maven, debian",
        ),
        (
            {"network": {"agent": ["example.com:0"]}},
            "network.agent.0: expected host:port or one of npm, pypi, crates, go, maven, debian",
        ),
        ({"serve": {"listen": "8787"}}, "serve.listen: expected an address and a port, e.g. 127.0.0.1:8787"),
        ({"serve": {"listen": "127.0.0.1:99999"}}, "serve.listen: expected an address and a port, e.g. 127.0.0.1:8787"),
        (
            {"run": {"workspaces": "ws"}},
            "run.workspaces: a path is absolute or starts with ~/; the current directory never decides",
        ),
        (
            {"agent": {"executable": "./claude"}},
            "agent.executable: a path is absolute or starts with ~/; the current directory never decides",
        ),
        ({"code": {"kind": "gitea", "repository": "a/b"}}, "code: `url` is required for the kind gitea"),
        (
            {"code": {"kind": "github", "repository": "/srv/a"}},
            "code: `repository` is `owner/name` for the kind github",
        ),
        ({"code": {"kind": "local", "repository": "a/b"}}, "code: `repository` is an absolute path for the kind local"),
        (
            {"code": {"kind": "local", "repository": "/a", "token": "env:T"}},
            "code: `token` has no use for the kind local",
        ),
        ({"agent": {"base_url": "ftp://x"}}, "agent.base_url: an address starts with https:// or http:// and a host"),
        (
            {"trackers": {"m": {"kind": "file", "path": "/x", "states": []}}},
            "trackers.m.states: tuple should have at least 1 item after validation, not 0",
        ),
        (
            {"trackers": {"m": {"kind": "file", "path": "/x", "states": ["Todo", "todo "]}}},
            "trackers.m.states: two states differ only in case or white space",
        ),
        ({"trackers": 1}, "trackers: input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_is_named_by_key(document: dict[str, Any], message: str) -> None:
    assert refusal(document) == message


@pytest.mark.parametrize(
    "document",
    [
        {"trackers": {"main": {**LINEAR, "token": LITERAL}}},
        {"trackers": {"main": {**LINEAR, "token": [LITERAL]}}},
        {"trackers": {"main": {**LINEAR, "kind": LITERAL}}},
        {"code": {"kind": "github", "repository": LITERAL, "token": LITERAL}},
        {"agent": {"kind": LITERAL, "key": LITERAL, "base_url": f"https://user:{LITERAL}@host"}},
        {"agent": {"base_url": f"https://host/?key={LITERAL}"}},
        {"network": {"setup": [LITERAL]}},
        {"run": {"max_minutes": LITERAL, "isolation": LITERAL, "workspaces": LITERAL}},
        {"serve": {"listen": LITERAL}},
        {LITERAL: LITERAL},
        {"trackers": {LITERAL: LITERAL}},
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_not_repeated(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from(document, source="hostside.toml")
    error = caught.value
    assert LITERAL not in f"{error} {error.remedy} {error.__cause__!r}"
    assert error.__suppress_context__


def test_at_most_five_problems_are_listed() -> None:
    assert refusal(dict.fromkeys("abcdefg", 1)).endswith("e: unknown key; and 2 more")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[agent\n", "is not TOML: Expected ']'"),
        (b"a = 1\na = 2\n", "is not TOML: Cannot overwrite a value"),
        (b"\xff", "is not TOML: it is not UTF-8"),
        (b"a = " + b"[" * 100_000, "is not TOML: "),
        (b"a = " + b"9" * 5_000, "is not TOML: a value is too long"),
        (f"token = {LITERAL}".encode(), "is not TOML: Invalid value"),
        (b"#" * 262_145, "it is larger than 262144 bytes"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_one_error(write: WriteFile, content: bytes, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write("hostside.toml", content))
    assert problem in caught.value.message
    assert LITERAL not in caught.value.message
    assert len(caught.value.message) < 600


def test_a_byte_order_mark_is_passed_over(write: WriteFile) -> None:
    assert load_settings(write("hostside.toml", f"\ufeff{SMALLEST}")).agent.kind == "claude"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_change_is_refused(write: WriteFile, mode: int) -> None:
    path = write("hostside.toml", SMALLEST, mode)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert (caught.value.message, caught.value.remedy) == (
        f"{path}: it can be changed by others.",
        f"Run: chmod go-w {path}",
    )


def test_a_file_that_others_can_only_read_is_fine(write: WriteFile) -> None:
    assert load_settings(write("hostside.toml", SMALLEST, 0o644)).agent.kind == "claude"


def test_another_users_file_is_refused(write: WriteFile, stranger: int) -> None:
    path = write("hostside.toml", SMALLEST)
    os.chown(path, stranger, stranger)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load_settings(path)


def test_a_folder_or_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="not a regular file"):
            load_settings(path)


def test_settings_cannot_be_changed() -> None:
    settings = HostSettings()
    with pytest.raises(ValidationError):
        settings.run.isolation = "home"


def test_the_limits_of_workflows_come_from_the_run_section() -> None:
    assert HostSettings().workflow_limits() == WorkflowLimits()
    settings = settings_from({"run": {"turn_minutes": 2, "stall_seconds": 3, "hook_seconds": 4}}, source="x")
    assert settings.workflow_limits() == WorkflowLimits(
        turn_timeout_ms=120_000, stall_timeout_ms=3_000, hook_timeout_ms=4_000
    )


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (SMALLEST, True),
        ("", True),
        (SMALLEST.replace("env:LINEAR_API_KEY", LITERAL), False),
        (SMALLEST + "hosts = []\n", False),
        (SMALLEST.replace('"npm"', '"nmp"'), False),
        (SMALLEST.replace('"linear"', '"jira"'), False),
        ('[serve]\nlisten = "[::1]:80"\n', True),
        ('[run]\nworkspaces = "here"\n', False),
        ('[trackers."a b"]\nkind = "file"\npath = "/x"\n', False),
    ],
)
def test_the_published_schema_and_the_reader_agree(text: str, valid: bool) -> None:
    document = tomllib.loads(text)
    accepted = True
    try:
        settings_from(document, source="x")
    except ConfigError:
        accepted = False
    assert (accepted, jsonschema_rs.is_valid(settings_schema(), document)) == (valid, valid)
