"""How Codex is started: its command, its configuration and its home (R-197, R-198, D24)."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hostside.errors import ConfigError
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.sandbox_args import Bind

DEFAULT_COMMAND = "codex app-server"
MODEL_TOKEN_VARIABLE = "HOSTSIDE_MODEL_TOKEN"
PACKAGE_INSIDE = "/opt/codex"
_PROVIDER = "hostside"

# Codex counts four bytes a token and keeps some for its own words; D22 promises 40,000 bytes.
_TOOL_OUTPUT_TOKENS = 12_000
_SHELL_FEATURES = ("shell_tool", "unified_exec", "multi_agent", "goals", "view_image")
_SHELL_CHARACTERS = re.compile(r"[;&|<>`$\n\r\0]")
_SINGLE_QUOTED = re.compile(r"'[^']*'")


def launch_arguments(executable: Path, command: str) -> tuple[str, ...]:
    """Return the arguments after the program in a configured launch command, e.g. `codex -c KEY=VALUE app-server`.

    It is split into words and never given to a shell. Raises `ConfigError` (`invalid_configuration`) for whatever only a
    shell could mean, a program other than `executable` (by its path, its name or as `codex`), a leading assignment, and
    any argument but `app-server` and `-c KEY=VALUE` (R-198).
    """
    if _SHELL_CHARACTERS.search(_SINGLE_QUOTED.sub("", command)):
        raise _refused("it has a character that only a shell gives a meaning to")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise _refused(f"its quotes do not match ({error})") from None
    if not words or words[0] not in ("codex", executable.name, str(executable)):
        raise _refused("it starts another program than the configured agent")
    _check_arguments(words[1:])
    return tuple(words[1:])


def settings_arguments(settings: Mapping[str, str | int | bool]) -> Iterator[str]:
    """Yield `-c KEY=VALUE` for each setting. They stand last, so they win over those of the launch command."""
    for key, value in settings.items():
        yield from ("-c", f"{key}={json.dumps(value)}")


def codex_settings(*, model: str | None, base_url: str, shell: bool) -> dict[str, str | int | bool]:
    """Return Codex's configuration in a run: one model provider, nothing from the repository, no peer but the model.

    `base_url` is the model's address inside the run; its key is the run's model token, in `MODEL_TOKEN_VARIABLE`.
    """
    provider = f"model_providers.{_PROVIDER}"
    settings: dict[str, str | int | bool] = {
        "model_provider": _PROVIDER,
        f"{provider}.name": _PROVIDER,
        f"{provider}.base_url": base_url,
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": MODEL_TOKEN_VARIABLE,
        f"{provider}.request_max_retries": 3,
        f"{provider}.stream_max_retries": 3,
        "analytics.enabled": False,
        "features.plugins": False,
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "allow_login_shell": False,
        "shell_environment_policy.inherit": "core",
        "shell_environment_policy.ignore_default_excludes": False,
        "tool_output_token_limit": _TOOL_OUTPUT_TOKENS,
    }
    if model is not None:
        settings["model"] = model
    if not shell:
        settings |= {f"features.{name}": False for name in _SHELL_FEATURES}
    return settings


def sandbox_mode(level: IsolationLevel) -> str:
    """Return Codex's own sandbox for a level: off inside bwrap, which is the stronger one and closes nested ones (D9)."""
    return "danger-full-access" if level is IsolationLevel.BWRAP else "workspace-write"


def codex_binds(executable: Path) -> tuple[Bind, ...]:
    """Return what a sandbox must see so that `executable` runs in it: its whole package, with the programs it calls.

    Empty for a program below `/usr`, which every sandbox sees.
    """
    program = executable.resolve(strict=True)
    if program.is_relative_to("/usr"):
        return ()
    if program.parent.name == "bin" and (program.parent.parent / "codex-path").is_dir():
        return (Bind(source=program.parent.parent, target=PACKAGE_INSIDE),)
    return (Bind(source=program, target=f"{PACKAGE_INSIDE}/bin/{program.name}"),)


def prepare_home(home: Path) -> bool:
    """Make `.codex` in the run's home; True when a `config.toml` in it was taken away.

    An earlier attempt's agent may have written one, with servers and providers of its own (R-197). Raises `OSError`
    when `.codex` is no plain folder: the agent could have made it a link to anywhere.
    """
    folder, made = home / ".codex", True
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        made = False
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if made:
            # By handle: what is at the name by now may be a link to anywhere, and the host may be root.
            owner = home.stat()
            os.fchown(opened, owner.st_uid, owner.st_gid)
        os.unlink("config.toml", dir_fd=opened)
    except FileNotFoundError:
        return False
    finally:
        os.close(opened)
    return True


def codex_home(isolation: RunIsolation) -> str:
    """Return `CODEX_HOME` as the run's processes see it."""
    return f"{isolation.home_inside}/.codex"


def _check_arguments(words: Sequence[str]) -> None:
    rest = iter(words)
    servers = 0
    for word in rest:
        if word == "app-server":
            servers += 1
        elif word not in ("-c", "--config") or "=" not in next(rest, ""):
            raise _refused(f"the argument {word[:60]!r} is not allowed; only -c KEY=VALUE is")
    if servers != 1:
        raise _refused("it does not start `app-server`")


def _refused(why: str) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"the agent's launch command is refused: {why}",
        remedy=f"Write it as `{DEFAULT_COMMAND}`, with -c KEY=VALUE where needed. It is not run by a shell.",
    )
