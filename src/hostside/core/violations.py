"""One broken rule of a schema, in words that let a model correct its call in one try (D1)."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from hostside.core.canonical import JsonObject, JsonValue, compact, escape_pointer

MAX_VIOLATIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """`pointer` is a JSON pointer into the arguments, `rule` the schema keyword that was broken."""

    pointer: str
    rule: str
    expected: str
    got: str
    hint: str = ""

    def sentence(self) -> str:
        """Return one sentence that is enough on its own."""
        where = self.pointer or "/"
        return f"{where}: expected {self.expected}, got {self.got}.{' ' + self.hint if self.hint else ''}"

    def detail(self) -> JsonObject:
        """Return the structured form of a failure's `details`."""
        return {"pointer": self.pointer, "rule": self.rule, "expected": self.expected, "got": self.got}


def pointer_of(path: Sequence[str | int]) -> str:
    """Return the JSON pointer of an instance path."""
    return "".join(f"/{escape_pointer(str(part))}" for part in path)


def describe(error: jsonschema_rs.ValidationError, schema: Mapping[str, JsonValue]) -> tuple[Violation, ...]:
    """Return the violations behind one validator error: one for each unknown key, else exactly one."""
    kind = error.kind
    rule: str = kind.name
    value: Any = kind.value
    pointer = pointer_of(error.instance_path)
    if rule == "additionalProperties":
        known = _known_keys(schema, error.schema_path)
        return tuple(_unknown_key(pointer, str(key), known) for key in value)
    if rule == "required":
        return (
            Violation(pointer=f"{pointer}/{escape_pointer(str(value))}", rule=rule, expected="a value", got="nothing"),
        )
    instance: Any = error.instance
    hint = ""
    if rule == "type":
        hint = _hint_for_type(value, instance)
    return (
        Violation(
            pointer=pointer,
            rule=rule,
            expected=_expected(rule, value, schema, error.schema_path),
            got=got(instance),
            hint=hint,
        ),
    )


def got(value: JsonValue) -> str:
    """Return what a value is, without repeating contents that may be long or private."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        text = str(value) if not isinstance(value, int) or value.bit_length() < 200 else "a very large one"
        return f"the number {text[:40]}"
    if isinstance(value, str):
        return _got_text(value)
    if isinstance(value, list):
        return f"an array of {len(value)}" if value else "an empty array"
    return "an object"


def _got_text(value: str) -> str:
    if value[:1] in "[{" and _holds_json(value):
        return "a string that holds JSON"
    if not value:
        return "an empty string"
    return f"a string of {len(value)} characters" if len(value) > 24 else f"the string {compact(value)}"


def _holds_json(value: str) -> bool:
    if len(value) > 20_000:
        return False
    try:
        return isinstance(json.loads(value), list | dict)
    except (ValueError, RecursionError):
        return False


def _hint_for_type(expected: JsonValue, instance: JsonValue) -> str:
    types = expected if isinstance(expected, list) else [expected]
    if isinstance(instance, str) and {"array", "object"} & set(map(str, types)) and instance[:1] in "[{":
        if not _holds_json(instance):
            return ""
        wanted = "array" if instance[0] == "[" else "object"
        return f"Send the {wanted} itself: {instance[:200]}."
    if instance is None:
        return "Leave the key out where nothing is meant."
    return ""


def _unknown_key(pointer: str, key: str, known: Sequence[str]) -> Violation:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else ""
    return Violation(
        pointer=f"{pointer}/{escape_pointer(key[:100])}",
        rule="additionalProperties",
        expected=f"only the keys {', '.join(known)}" if known else "no keys",
        got=f"the unknown key {compact(key[:100])}",
        hint=hint,
    )


def _at(schema: Mapping[str, JsonValue], path: Sequence[str | int]) -> JsonValue:
    here: JsonValue = dict(schema)
    for part in path:
        if isinstance(here, dict):
            here = here.get(str(part))
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        else:
            return None
    return here


def _known_keys(schema: Mapping[str, JsonValue], schema_path: Sequence[str | int]) -> list[str]:
    parent = _at(schema, schema_path[:-1])
    properties = parent.get("properties") if isinstance(parent, dict) else None
    return sorted(properties) if isinstance(properties, dict) else []


_ARTICLES = {"array": "an array", "integer": "an integer", "object": "an object", "null": "null"}
_SIMPLE = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} keys",
    "maxProperties": "at most {} keys",
    "minimum": "a number of at least {}",
    "maximum": "a number of at most {}",
    "exclusiveMinimum": "a number above {}",
    "exclusiveMaximum": "a number below {}",
    "multipleOf": "a multiple of {}",
    "pattern": "text that matches {}",
    "format": "a {}",
}
_FIXED = {
    "uniqueItems": "no item twice",
    "anyOf": "a value of one of the allowed forms",
    "oneOf": "a value of exactly one of the allowed forms",
    "allOf": "a value that fits all parts",
}


def _expected(rule: str, value: JsonValue, schema: Mapping[str, JsonValue], path: Sequence[str | int]) -> str:
    if rule == "type":
        return _expected_type(value, _at(schema, path[:-1]))
    if rule == "enum" and isinstance(value, list):
        return "one of " + ", ".join(compact(option) for option in value[:20])
    if rule in _SIMPLE:
        return _SIMPLE[rule].format(value)
    return _FIXED.get(rule, f"a value that fits `{rule}`")


def _expected_type(value: JsonValue, parent: JsonValue) -> str:
    types = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    words = [_ARTICLES.get(name, f"a {name}") for name in types]
    if types == ["array"] and isinstance(parent, dict):
        items = parent.get("items")
        inner = items.get("type") if isinstance(items, dict) else None
        if isinstance(inner, str):
            return f"an array of {inner}s"
    return " or ".join(words)
