"""What is wrong with a configuration, in words that repeat no value: a value may be a secret in the wrong place (R-229)."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from hostside.core.redaction import Redactor

MAX_PROBLEMS = 5
_MAX_KEY = 60
#: Pydantic's own sentences that repeat what was given, or that say less than they could.
_PHRASES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "extra_forbidden": lambda context: "unknown key",
    "missing": lambda context: "required",
    "union_tag_invalid": lambda context: f"`kind` must be one of {context.get('expected_tags')}",
    "union_tag_not_found": lambda context: "`kind` is required",
    "literal_error": lambda context: f"must be {context.get('expected')}",
    "value_error": lambda context: str(context.get("error")),
    "string_pattern_mismatch": lambda context: f"must match {context.get('pattern')}",
}


def describe(error: ValidationError, *, place: Callable[[tuple[int | str, ...]], tuple[int | str, ...]]) -> str:
    """Return the first problems as `key: what is wrong; ...`. `place` turns a location into the file's own path."""
    problems = error.errors(include_input=False, include_url=False)
    said = [f"{_path(place(problem['loc']))}: {_phrase(problem)}" for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        said.append(f"and {len(problems) - MAX_PROBLEMS} more")
    # A key is repeated, so that it can be found; what looks like a credential is not, even as a key.
    return Redactor().text("; ".join(said))


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:_MAX_KEY] for part in location) or "the file"


def _phrase(problem: Mapping[str, Any]) -> str:
    phrase = _PHRASES.get(problem["type"])
    if phrase is not None:
        return phrase(problem.get("ctx", {}))
    text = str(problem["msg"])
    return text[:1].lower() + text[1:]
