"""Tool schemas: a closed vocabulary, every word of it enforced (D2, R-026..R-047).

A schema is checked once, at registration; what is accepted there is what the validator evaluates. Nothing is coerced.
Patterns are searched, not matched in full, by an engine whose time is linear in the text, so no pattern can hang a call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jsonschema_rs

from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, compact, escape_pointer, snapshot
from hostside.core.violations import MAX_VIOLATIONS, Violation, describe, got

MAX_SCHEMA_DEPTH = 16
MAX_SUBSCHEMAS = 500
FORMATS = frozenset({"date", "date-time", "email", "uri", "uuid"})
_COMBINATORS = ("anyOf", "oneOf", "allOf")
_ANNOTATIONS = frozenset({"description", "title", "default", "examples"})
KEYWORDS = (
    frozenset(
        "type properties required additionalProperties items enum minLength maxLength minItems maxItems minProperties "
        "maxProperties minimum maximum exclusiveMinimum exclusiveMaximum multipleOf pattern format uniqueItems".split()
    )
    | _ANNOTATIONS
    | frozenset(_COMBINATORS)
)


class SchemaRejected(ValueError):
    """A schema outside the vocabulary. `pointer` is where in the schema, `rule` which rule."""

    def __init__(self, pointer: str, rule: str, message: str) -> None:
        super().__init__(f"{pointer or '/'}: {message}")
        self.pointer = pointer
        self.rule = rule


def _refuse_remote(uri: str) -> JsonValue:
    raise SchemaRejected("", "$ref", f"a reference is never followed: {uri}")


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema that passed every check, with its validator. Immutable; safe to share between sessions."""

    document: JsonObject
    validator: jsonschema_rs.Draft202012Validator
    has_defaults: bool

    def with_defaults(self, value: JsonObject) -> JsonObject:
        """Return `value` with documented defaults filled in, in place (R-044). `value` must be a private copy."""
        if self.has_defaults:
            _fill(self.document, value)
        return value

    def violations(self, value: JsonValue) -> tuple[Violation, ...]:
        """Return what is wrong with `value`, at most `MAX_VIOLATIONS`; empty means valid."""
        found: list[Violation] = []
        if not self.validator.is_valid(value):
            for error in self.validator.iter_errors(value):
                found.extend(describe(error, self.document))
                if len(found) >= MAX_VIOLATIONS:
                    break
        elif _holds_float(value):
            found.extend(_inexact_integers(self.document, value, ""))
        return tuple(found[:MAX_VIOLATIONS])


def compile_schema(document: Mapping[str, object], *, closed: bool = True) -> CompiledSchema:
    """Check and compile an object schema.

    `closed` demands `additionalProperties: false` at the root (tool inputs). Raises SchemaRejected for any keyword that
    is not enforced, at any depth (R-026), a root that is not a plain object schema (C-07), a nested object that does
    not say whether unknown fields are allowed (R-029), a bad pattern, format, bound or default.
    """
    try:
        root = snapshot(document)
    except JsonRejected as exc:
        raise SchemaRejected(exc.pointer, "json", exc.reason) from None
    assert isinstance(root, dict)
    _check_root(root, closed=closed)
    for count, (pointer, schema, depth) in enumerate(_walk(root), start=1):
        if depth > MAX_SCHEMA_DEPTH or count > MAX_SUBSCHEMAS:
            raise SchemaRejected(pointer, "size", f"deeper than {MAX_SCHEMA_DEPTH} or more than {MAX_SUBSCHEMAS} parts")
        _check_node(pointer, schema)
    if not jsonschema_rs.meta.is_valid(root):
        raise SchemaRejected("", "metaschema", _meta_reason(root))
    try:
        validator = jsonschema_rs.Draft202012Validator(
            root, validate_formats=True, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse_remote
        )
    except jsonschema_rs.ValidationError as exc:
        raise SchemaRejected("", "pattern", str(exc.message)) from None
    compiled = CompiledSchema(root, validator, any("default" in schema for _, schema, _ in _walk(root)))
    _check_defaults(root)
    return compiled


def advertised(document: JsonObject) -> JsonObject:
    """Return the schema as agents see it: bounds, patterns and defaults also said in each description (D21).

    Both agents drop most keywords before the model sees them, so the words are generated from the keywords.
    """
    copy = snapshot(document)
    assert isinstance(copy, dict)
    for _, schema, _ in _walk(copy):
        words = _bounds_in_words(schema)
        if words:
            said = str(schema.get("description", "")).rstrip()
            schema["description"] = f"{said} ({words})" if said else words
    return copy


def _check_root(root: JsonObject, *, closed: bool) -> None:
    for word in _COMBINATORS:
        if word in root:
            raise SchemaRejected("", word, f"`{word}` at the top of a schema: agents drop the tool or its keys")
    if root.get("type") != "object":
        raise SchemaRejected("", "type", "the top of a tool schema is `type: object`")
    if not isinstance(root.get("properties"), dict):
        raise SchemaRejected("", "properties", "the top of a tool schema has a `properties` mapping")
    if closed and root.get("additionalProperties") is not False:
        raise SchemaRejected("", "additionalProperties", "the top of a tool schema says `additionalProperties: false`")


def _walk(root: JsonObject) -> Iterator[tuple[str, JsonObject, int]]:
    stack: list[tuple[str, JsonValue, int]] = [("", root, 0)]
    while stack:
        pointer, schema, depth = stack.pop()
        if not isinstance(schema, dict):
            raise SchemaRejected(pointer, "schema", "a schema is an object")
        yield pointer, schema, depth
        for at, child in _children(pointer, schema):
            stack.append((at, child, depth + 1))


def _children(pointer: str, schema: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, child in properties.items():
            yield f"{pointer}/properties/{escape_pointer(name)}", child
    for word in _COMBINATORS:
        branches = schema.get(word)
        if isinstance(branches, list):
            for index, child in enumerate(branches):
                yield f"{pointer}/{word}/{index}", child
    if "items" in schema:
        yield f"{pointer}/items", schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        yield f"{pointer}/additionalProperties", schema["additionalProperties"]


def _check_node(pointer: str, schema: JsonObject) -> None:
    for word in schema:
        if word not in KEYWORDS:
            raise SchemaRejected(f"{pointer}/{escape_pointer(word)}", "vocabulary", f"`{word}` is not enforced here")
    if "format" in schema and schema["format"] not in FORMATS:
        raise SchemaRejected(f"{pointer}/format", "format", f"`{schema['format']}` has no checker here")
    types = schema.get("type")
    is_object = types == "object" or (isinstance(types, list) and "object" in types) or "properties" in schema
    if is_object and "additionalProperties" not in schema:
        raise SchemaRejected(pointer, "additionalProperties", "an object schema states `additionalProperties`")
    if "required" in schema:
        _check_required(pointer, schema)


def _check_required(pointer: str, schema: JsonObject) -> None:
    required, properties = schema["required"], schema.get("properties")
    known = set(properties) if isinstance(properties, dict) else set()
    if not isinstance(required, list) or any(not isinstance(name, str) or name not in known for name in required):
        raise SchemaRejected(f"{pointer}/required", "required", "`required` lists existing properties")
    if len(set(map(str, required))) != len(required):
        raise SchemaRejected(f"{pointer}/required", "required", "`required` lists each property once")


def _meta_reason(root: JsonObject) -> str:
    try:
        jsonschema_rs.meta.validate(root)
    except jsonschema_rs.ValidationError as exc:
        return f"/{'/'.join(map(str, exc.instance_path))}: {exc.message}"[:300]
    return "not a JSON Schema"


def _check_defaults(root: JsonObject) -> None:
    for pointer, schema, _ in _walk(root):
        if "default" not in schema:
            continue
        check = jsonschema_rs.Draft202012Validator(
            schema, validate_formats=True, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse_remote
        )
        if not check.is_valid(schema["default"]):
            raise SchemaRejected(f"{pointer}/default", "default", "the default breaks its own schema")


def _fill(schema: JsonObject, value: JsonValue) -> None:
    if isinstance(value, dict):
        properties = schema.get("properties")
        for name, child in properties.items() if isinstance(properties, dict) else ():
            assert isinstance(child, dict)
            if name not in value and "default" in child:
                value[name] = snapshot(child["default"])
            if name in value:
                _fill(child, value[name])
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for item in value:
            _fill(items, item)


def _holds_float(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_float, value.values()))
    if isinstance(value, list):
        return any(map(_holds_float, value))
    return isinstance(value, float)


def _inexact_integers(schema: JsonObject, value: JsonValue, pointer: str) -> list[Violation]:
    # A float beyond 2^53 is integral but not exact: JSON Schema lets it pass as an integer, D20 does not.
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    if isinstance(value, float) and "integer" in names and "number" not in names:
        return [Violation(pointer=pointer, rule="type", expected="an exact integer", got=got(value))]
    found: list[Violation] = []
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(value, dict) and isinstance(properties, dict):
        for name, child in properties.items():
            if name in value and isinstance(child, dict):
                found += _inexact_integers(child, value[name], f"{pointer}/{escape_pointer(name)}")
    if isinstance(value, list) and isinstance(items, dict):
        for index, item in enumerate(value):
            found += _inexact_integers(items, item, f"{pointer}/{index}")
    return found + _inexact_in_branches(schema, value, pointer)


def _inexact_in_branches(schema: JsonObject, value: JsonValue, pointer: str) -> list[Violation]:
    found: list[Violation] = []
    for word in _COMBINATORS:
        branches = schema.get(word)
        if not isinstance(branches, list) or not branches:
            continue
        results = [_inexact_integers(branch, value, pointer) for branch in branches if isinstance(branch, dict)]
        if word == "allOf" or all(results):
            found += [violation for result in results for violation in result]
    return found


def _bounds_in_words(schema: JsonObject) -> str:
    words: list[str] = []
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " keys"),
    ):
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            words.append(f"{least} to {most}{unit}")
        elif least is not None:
            words.append(f"at least {least}{unit}")
        elif most is not None:
            words.append(f"at most {most}{unit}")
    for word, text in (
        ("exclusiveMinimum", "above"),
        ("exclusiveMaximum", "below"),
        ("multipleOf", "a multiple of"),
        ("pattern", "matches"),
        ("format", "format"),
    ):
        if word in schema:
            words.append(f"{text} {schema[word]}")
    if schema.get("uniqueItems") is True:
        words.append("no item twice")
    if "default" in schema:
        words.append(f"default {compact(schema['default'])}")
    return "; ".join(words)
