"""How Codex is started: no shell, no other program, our settings last (AX-34, R-198)."""

import tomllib
from pathlib import Path

import pytest

from hostside.errors import ConfigError
from hostside.worker.codex_launch import codex_binds, codex_settings, launch_arguments, settings_arguments
from hostside.worker.sandbox_args import Bind

PROGRAM = Path("/opt/agents/codex-0.171")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("codex app-server", ("app-server",)),
        ("codex-0.171 app-server", ("app-server",)),
        ("/opt/agents/codex-0.171 app-server", ("app-server",)),
        ("  codex   'app-server' ", ("app-server",)),
        ("codex -c 'model=\"a b\"' app-server", ("-c", 'model="a b"', "app-server")),
        ("codex app-server --config 'x=[\"$HOME;|&\"]'", ("app-server", "--config", 'x=["$HOME;|&"]')),
        ('codex -c "a=1" app-server', ("-c", "a=1", "app-server")),
    ],
)
def test_a_command_is_split_into_words_and_never_expanded(command: str, arguments: tuple[str, ...]) -> None:
    assert launch_arguments(PROGRAM, command) == arguments


@pytest.mark.parametrize(
    "command",
    [
        "codex app-server; rm -rf /",
        "codex app-server && id",
        "codex app-server | tee log",
        "codex app-server > /tmp/out",
        "codex app-server < /etc/passwd",
        "codex app-server &",
        "codex $(id) app-server",
        "codex `id` app-server",
        'codex -c "a=$HOME" app-server',
        "codex app-server\nid",
        "codex 'app-server",
        "",
        "sh -c 'codex app-server'",
        "bash app-server",
        "/usr/bin/env codex app-server",
        "/tmp/codex app-server",
        "./codex app-server",
        "OPENAI_BASE_URL=http://evil codex app-server",
        "codex",
        "codex exec hello",
        "codex app-server app-server",
        "codex app-server --listen ws://0.0.0.0:80",
        "codex --dangerously-bypass-approvals-and-sandbox app-server",
        "codex app-server -c",
        "codex app-server -c model",
    ],
)
def test_everything_else_is_refused(command: str) -> None:
    with pytest.raises(ConfigError) as refused:
        launch_arguments(PROGRAM, command)
    assert refused.value.code == "invalid_configuration"
    assert refused.value.message.startswith("the agent's launch command is refused: ")


def test_settings_are_toml_and_switch_every_other_peer_off() -> None:
    settings = codex_settings(model='a"b', base_url="http://127.0.0.1:8001/v1", shell=True)
    words = list(settings_arguments(settings))
    assert words[::2] == ["-c"] * len(settings)
    assert tomllib.loads("\n".join(words[1::2])) == {
        "model": 'a"b',
        "model_provider": "hostside",
        "model_providers": {
            "hostside": {
                "name": "hostside",
                "base_url": "http://127.0.0.1:8001/v1",
                "wire_api": "responses",
                "request_max_retries": 3,
                "stream_max_retries": 3,
                "env_key": "HOSTSIDE_MODEL_TOKEN",
            }
        },
        "analytics": {"enabled": False},
        "features": {"plugins": False},
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "allow_login_shell": False,
        "shell_environment_policy": {"inherit": "core", "ignore_default_excludes": False},
        "tool_output_token_limit": 12_000,
    }


def test_a_program_is_bound_with_its_package_or_alone_or_not_at_all(tmp_path: Path) -> None:
    packaged = tmp_path / "package" / "bin" / "codex"
    alone = tmp_path / "alone" / "codex"
    for program in (packaged, alone):
        program.parent.mkdir(parents=True)
        program.touch()
    (tmp_path / "package" / "codex-path").mkdir()
    link = tmp_path / "link"
    link.symlink_to(packaged)
    assert codex_binds(packaged) == (Bind(source=tmp_path / "package", target="/opt/codex"),)
    assert codex_binds(link) == codex_binds(packaged)
    assert codex_binds(alone) == (Bind(source=alone, target="/opt/codex/bin/codex"),)
    assert codex_binds(Path("/usr/bin/env")) == ()
