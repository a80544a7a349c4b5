"""Secrets by reference: `env:NAME`, `file:PATH`, `command:[...]`. A configuration never holds one (R-229)."""

import json
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostside.errors import ConfigError

_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMMAND_SECONDS = 10.0


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
    """Return the reference. Raises ConfigError, without repeating the text, for anything that is not one."""
    kind, _, rest = text.partition(":")
    valid = (
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
    """Return the secret, or None when it is absent; an empty value counts as absent. Raises ConfigError for a reference
    that cannot be read (a file that others can read, a command that fails). The value is in no message."""
    kind, _, rest = reference.text.partition(":")
    if kind == "env":
        value: str | None = environment.get(rest)
    elif kind == "file":
        value = _read(Path(rest).expanduser())
    else:
        value = _run(_command(rest) or [])
    value = None if value is None else value.strip()
    if value and any(ord(character) < 32 for character in value):
        raise ConfigError(
            "invalid_configuration", f"{reference}: the secret has control characters.", remedy="Store it as one line."
        )
    return value or None


def _command(text: str) -> list[str] | None:
    try:
        argv = json.loads(text)
    except ValueError:
        return None
    if isinstance(argv, list) and argv and all(isinstance(part, str) and part for part in argv):
        return argv
    return None


def _read(path: Path) -> str | None:
    try:
        found = path.stat()
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ConfigError(
                "invalid_configuration",
                f"file:{path} can be read by others.",
                remedy=f"Run: chmod 600 {path}",
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            "invalid_configuration", f"file:{path} cannot be read: {type(exc).__name__}.", remedy="Check the path."
        ) from None


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as exc:
        # The exception's own text holds argv and output.
        raise ConfigError(
            "invalid_configuration",
            f"the secret command {argv[0]!r} failed ({type(exc).__name__}).",
            remedy="Run the command by hand; it must print the secret and exit with 0.",
        ) from None
    return done.stdout
