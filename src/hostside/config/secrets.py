"""Secrets by reference: `env:NAME`, `file:PATH`, `command:[...]`. A configuration never holds one (R-229)."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostside.config.owned_files import OPEN_TO_OTHERS, UnsafeFileError, read_owned
from hostside.errors import ConfigError

_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMMAND_SECONDS = 10.0
MAX_BYTES = 65_536
_C0_C1 = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is; printing it tells nothing else."""

    text: str

    @property
    def environment_name(self) -> str | None:
        """The variable it is read from, so that a child's environment can be kept free of it."""
        return self.text[4:] if self.text.startswith("env:") else None

    def __str__(self) -> str:
        return self.text


def parse_reference(text: str) -> SecretReference:
    """Return the reference. Raises ConfigError, without repeating the text, for anything that is not one.

    A path is absolute or starts with `~/`; a program is a bare name (found in PATH) or such a path. The current
    directory never decides where a secret comes from (D16).
    """
    kind, _, rest = text.partition(":")
    valid = "\0" not in text and (
        (kind == "env" and _ENV.fullmatch(rest) is not None)
        or (kind == "file" and rest.startswith(("/", "~/")))
        or (kind == "command" and _command(rest) is not None)
    )
    if not valid:
        raise ConfigError(
            "invalid_configuration",
            "a secret is written as a reference, never as itself.",
            remedy='Use "env:NAME", "file:/path" or "command:[\\"program\\", \\"argument\\"]".',
        )
    return SecretReference(text)


def resolve(reference: SecretReference, environment: Mapping[str, str]) -> str | None:
    """Return the secret, or None when it is absent; an empty value counts as absent (Symphony §5.3.1).

    White space around it is cut off. `environment` is the host's; a command gets it whole, and 10 seconds. Raises
    ConfigError for a reference that cannot be read: a file that others can read or that is another user's, a command
    that fails, more than 64 KiB, control characters. The value is in no message.
    """
    kind, _, rest = reference.text.partition(":")
    if kind == "env":
        value: str | None = environment.get(rest)
    elif kind == "file":
        value = _read(_expanded(rest, environment))
    else:
        value = _run(_command(rest) or [], environment)
    value = None if value is None else value.strip()
    if value and (_C0_C1.search(value) or not _is_text(value)):
        raise ConfigError(
            "invalid_configuration",
            f"{reference}: the secret is not one line of text.",
            remedy="Store it as one line without control characters, in UTF-8.",
        )
    return value or None


def _command(text: str) -> list[str] | None:
    try:
        argv = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(argv, list) or not argv or not all(isinstance(part, str) and "\0" not in part for part in argv):
        return None
    program = argv[0]
    return argv if program and ("/" not in program or program.startswith(("/", "~/"))) else None


def _read(path: Path) -> str | None:
    try:
        content = read_owned(path, max_bytes=MAX_BYTES, forbidden=OPEN_TO_OTHERS)
        return None if content is None else content.decode("utf-8")
    except UnsafeFileError as exc:
        raise ConfigError("invalid_configuration", f"file:{path}: {exc.message}.", remedy=exc.remedy) from None
    except UnicodeDecodeError:
        raise ConfigError(
            "invalid_configuration", f"file:{path}: it is not UTF-8.", remedy="Store the secret as text."
        ) from None


def _run(argv: list[str], environment: Mapping[str, str]) -> str:
    program = str(_expanded(argv[0], environment)) if argv[0].startswith("~/") else argv[0]
    try:
        started = subprocess.Popen(
            [program, *argv[1:]],
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        raise _command_failed(argv, type(exc).__name__) from None
    with started:
        try:
            output, _ = started.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            # Not reaped yet, so the number still names this group; whoever keeps the pipe open is in it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(started.pid, signal.SIGKILL)
            raise _command_failed(argv, f"it did not end within {COMMAND_SECONDS:g} s") from None
    if started.returncode != 0:
        raise _command_failed(argv, f"exit code {started.returncode}")
    if len(output) > MAX_BYTES:
        raise _command_failed(argv, f"it printed more than {MAX_BYTES} bytes")
    try:
        return output.decode("utf-8")
    except UnicodeDecodeError:
        raise _command_failed(argv, "it did not print UTF-8") from None


def _command_failed(argv: list[str], why: str) -> ConfigError:
    # Neither the arguments nor the output are repeated: either may hold the secret.
    return ConfigError(
        "invalid_configuration",
        f"the secret command {argv[0]!r} failed ({why}).",
        remedy="Run the command by hand; it must print the secret and exit with 0.",
    )


def _expanded(path: str, environment: Mapping[str, str]) -> Path:
    if not path.startswith("~/"):
        return Path(path)
    return Path(environment.get("HOME") or Path.home()) / path[2:]


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
