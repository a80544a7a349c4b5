"""The JSON that a person gives a command: in the word itself, in a file, or on standard input."""

import sys
from pathlib import Path

from hostside.core.canonical import JsonRejected, JsonValue, parse
from hostside.errors import ConfigError

MAX_BYTES = 16 * 1024 * 1024


def read_arguments(text: str | None) -> JsonValue:
    """Return the JSON value of `--arguments`; nothing gives `{}`. Raises ConfigError for what is no JSON (D1)."""
    if text is None:
        return {}
    try:
        return parse(_source(text))
    except JsonRejected as error:
        raise ConfigError(
            "invalid_configuration",
            f"--arguments is not JSON: {error.reason}.",
            remedy='Write one JSON object, e.g. --arguments \'{"path": "README.md"}\', or @FILE, or @- for standard input.',
        ) from None


def _source(text: str) -> str | bytes:
    if text == "@-":
        return sys.stdin.buffer.read(MAX_BYTES)
    if not text.startswith("@"):
        return text
    file = Path(text[1:]).expanduser()
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            "invalid_configuration", f"{file} cannot be read: {error.strerror}.", remedy="Check the path after the @."
        ) from None
