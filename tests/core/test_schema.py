"""The closed vocabulary: every word enforced at every depth, or refused at registration (D2, R-026..R-047, AX-08)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.core.canonical import JsonObject
from hostside.core.schema import KEYWORDS, SchemaRejected, advertised, compile_schema
from tests.support.tools import schema

#: keyword -> (schema of one property, a value that passes, a value that does not)
ENFORCED: dict[str, tuple[JsonObject, Any, Any]] = {
    "type": ({"type": "string"}, "x", 1),
    "properties": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"a": "x"},
        {"a": 1},
    ),
    "required": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False},
        {"a": "x"},
        {},
    ),
    "additionalProperties": ({"type": "object", "properties": {}, "additionalProperties": False}, {}, {"b": 1}),
    "items": ({"type": "array", "items": {"type": "integer"}}, [1], ["1"]),
    "enum": ({"enum": ["a", 1]}, "a", "b"),
    "anyOf": ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, 1.5),
    "oneOf": ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}, 1, 7),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, 7, 1),
    "minLength": ({"type": "string", "minLength": 2}, "ab", "a"),
    "maxLength": ({"type": "string", "maxLength": 2}, "ab", "abc"),
    "minItems": ({"type": "array", "minItems": 1}, [1], []),
    "maxItems": ({"type": "array", "maxItems": 1}, [1], [1, 2]),
    "minProperties": ({"type": "object", "minProperties": 1, "additionalProperties": True}, {"a": 1}, {}),
    "maxProperties": ({"type": "object", "maxProperties": 1, "additionalProperties": True}, {"a": 1}, {"a": 1, "b": 2}),
    "minimum": ({"type": "integer", "minimum": 2}, 2, 1),
    "maximum": ({"type": "integer", "maximum": 2}, 2, 3),
    "exclusiveMinimum": ({"type": "number", "exclusiveMinimum": 2}, 2.5, 2),
    "exclusiveMaximum": ({"type": "number", "exclusiveMaximum": 2}, 1.5, 2),
    "multipleOf": ({"type": "integer", "multipleOf": 3}, 9, 10),
    "pattern": ({"type": "string", "pattern": "^a+$"}, "aa", "ab"),
    "format": ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", "yesterday"),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, [1, 2], [1, 1]),
}
ANNOTATIONS = {"description", "title", "default", "examples"}
OTHER_2020_12 = (
    "$id $schema $ref $anchor $dynamicRef $dynamicAnchor $vocabulary $comment $defs prefixItems contains patternProperties "
    "propertyNames if then else dependentSchemas not unevaluatedItems unevaluatedProperties const maxContains minContains "
    "dependentRequired deprecated readOnly writeOnly contentEncoding contentMediaType contentSchema"
).split()
OTHER_DRAFTS = [
    "nullable",
    "dependencies",
    "additionalItems",
    "definitions",
    "maxLenght",
    "x-mcp-header",
    "id",
    "divisibleBy",
]


def wrapped(inner: JsonObject, depth: int) -> tuple[JsonObject, Any]:
    document: JsonObject = inner
    for _ in range(depth - 1):
        document = {"type": "object", "properties": {"d": document}, "additionalProperties": False}
    return {"type": "object", "properties": {"d": document}, "additionalProperties": False}, depth


def at(value: Any, depth: int) -> dict[str, Any]:
    for _ in range(depth):
        value = {"d": value}
    assert isinstance(value, dict)
    return value


def test_every_keyword_is_either_enforced_or_an_annotation() -> None:
    assert set(ENFORCED) | ANNOTATIONS == KEYWORDS


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("word", sorted(ENFORCED))
def test_an_accepted_keyword_flips_the_verdict(word: str, depth: int) -> None:
    inner, good, bad = ENFORCED[word]
    document, _ = wrapped(inner, depth)
    compiled = compile_schema(document)
    assert compiled.violations(at(good, depth)) == ()
    (violation, *_rest) = compiled.violations(at(bad, depth))
    assert violation.rule == ("type" if word == "type" else violation.rule)
    assert violation.pointer.startswith("/d" * depth)
    assert violation.sentence()


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("word", [*OTHER_2020_12, *OTHER_DRAFTS])
def test_a_keyword_that_is_not_enforced_is_refused(word: str, depth: int) -> None:
    document, _ = wrapped({"type": "string", word: True}, depth)
    with pytest.raises(SchemaRejected) as caught:
        compile_schema(document)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"type": "string"}, "type: object"),
        ({"type": ["object", "null"], "properties": {}}, "type: object"),
        ({"properties": {}, "additionalProperties": False}, "type: object"),
        ({"type": "object", "additionalProperties": False}, "properties"),
        ({"type": "object", "properties": {}}, "additionalProperties"),
        ({"type": "object", "properties": {}, "additionalProperties": True}, "additionalProperties"),
        ({**schema(), "anyOf": [{}]}, "anyOf"),
        ({**schema(), "oneOf": [{}]}, "oneOf"),
        ({**schema(), "allOf": [{}]}, "allOf"),
        (schema({"o": {"type": "object", "properties": {}}}), "additionalProperties"),
        (schema({"p": {"type": "string", "format": "color"}}), "color"),
        (schema({"p": {"type": "string", "pattern": "(a"}}), "regex"),
        (schema({"p": {"type": "string", "pattern": "(?=a)b"}}), "regex"),
        (schema({"p": {"type": "string", "required": True}}), "required"),
        (schema({"p": {"type": "array", "items": [{"type": "integer"}]}}), "items"),
        (schema({"p": {"type": "string", "minLength": -1}}), "minLength"),
        (schema({"p": {"type": "text"}}), "type"),
        (schema({"p": {"type": "integer", "default": "1"}}), "default"),
        (schema({"p": {"type": "number", "default": float("nan")}}), "finite"),
        (schema({"p": True}), "object"),
        ({**schema({"p": {}}), "required": ["q"]}, "required"),
        ({**schema({"p": {}}), "required": ["p", "p"]}, "required"),
        (schema({"p": {"$ref": "http://127.0.0.1:9/x"}}), "$ref"),
        (dict[Any, Any]({**schema()}) | {1: 2}, "text"),
        (schema({f"p{n}": {"type": "string"} for n in range(501)}), "500"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_that_breaks_a_rule_is_refused_with_its_reason(document: Any, word: str) -> None:
    with pytest.raises(SchemaRejected) as caught:
        compile_schema(document)
    assert word in str(caught.value)


def test_a_schema_of_200_levels_is_refused() -> None:
    document, _ = wrapped({"type": "string"}, 31)
    with pytest.raises(SchemaRejected):
        compile_schema(document)
    deep: Any = {"type": "string"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"d": deep}, "additionalProperties": False}
    with pytest.raises(SchemaRejected):
        compile_schema(deep)


def test_a_catastrophic_pattern_cannot_hang_a_call() -> None:
    compiled = compile_schema(schema({"p": {"type": "string", "pattern": "^(a+)+$"}}))
    assert compiled.violations({"p": "a" * 50_000 + "b"})[0].rule == "pattern"


def test_a_pattern_is_searched_and_not_matched_in_full() -> None:
    compiled = compile_schema(schema({"p": {"type": "string", "pattern": "b"}}))
    assert compiled.violations({"p": "abc"}) == ()


def test_a_default_is_applied_at_every_level_and_copied() -> None:
    compiled = compile_schema(
        schema(
            {
                "o": {
                    "type": "object",
                    "properties": {"n": {"type": "integer", "default": 3}},
                    "additionalProperties": False,
                },
                "l": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"t": {"type": "array", "default": []}},
                        "additionalProperties": False,
                    },
                },
            }
        )
    )
    first = compiled.with_defaults({"o": {}, "l": [{}]})
    assert first == {"o": {"n": 3}, "l": [{"t": []}]}
    first["l"][0]["t"].append(1)  # type: ignore[index, call-overload, union-attr]
    assert compiled.with_defaults({"l": [{}]}) == {"l": [{"t": []}]}


def test_a_float_that_is_no_exact_integer_is_refused_where_an_integer_is_due() -> None:
    compiled = compile_schema(schema({"i": {"type": "integer"}, "n": {"type": "number"}}))
    assert compiled.violations({"i": 2.0**60})[0].expected == "an exact integer"
    assert compiled.violations({"n": 2.0**60}) == ()


def test_bounds_are_said_in_the_description_because_agents_drop_the_keywords() -> None:
    shown = advertised(
        schema(
            {
                "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5, "description": "How many."},
                "s": {"type": "string", "pattern": "^x"},
            }
        )  # type: ignore[arg-type]
    )
    assert shown["properties"] == {
        "n": {
            "type": "integer",
            "minimum": 1,
            "maximum": 9,
            "default": 5,
            "description": "How many. (1 to 9; default 5)",
        },
        "s": {"type": "string", "pattern": "^x", "description": "matches ^x"},
    }


@given(
    st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=8), max_size=5)
)
def test_any_arguments_get_a_verdict_and_never_an_exception(arguments: JsonObject) -> None:
    compiled = compile_schema(schema({"a": {"type": "string", "maxLength": 3}, "b": {"type": "integer"}}, ("a",)))
    for violation in compiled.violations(arguments):
        assert violation.sentence()
