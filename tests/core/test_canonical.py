"""One strict parser and one canonical form (D1, D20, R-039, R-040, R-042, R-043)."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.core.canonical import JsonRejected, JsonValue, compact, digest, encode, parse, snapshot

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_a_snapshot_of_a_snapshot_is_the_same(value: JsonValue) -> None:
    once = snapshot(value)
    assert encode(snapshot(once)) == encode(once)


@given(values)
def test_what_was_encoded_is_parsed_to_the_same_value(value: JsonValue) -> None:
    once = snapshot(value)
    assert encode(parse(encode(once))) == encode(once)


@given(values)
def test_compact_text_is_the_same_json(value: JsonValue) -> None:
    assert json.loads(compact(snapshot(value))) == snapshot(value)


@given(st.dictionaries(texts, values, min_size=2, max_size=5))
def test_the_order_of_keys_does_not_change_a_digest(value: dict[str, JsonValue]) -> None:
    backwards = dict(reversed(value.items()))
    assert digest(snapshot(backwards)) == digest(snapshot(value))


def test_the_type_of_a_value_changes_its_digest() -> None:
    values: list[JsonValue] = [1, "1", True, [1], None]
    assert len({digest(value) for value in values}) == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"a":2}', "duplicate key"),
        ('{"x":{"a":1,"\\u0061":2}}', "duplicate key"),
        ("[NaN]", "NaN"),
        ("[Infinity]", "Infinity"),
        ("[-Infinity]", "-Infinity"),
        ("[1e400]", "overflows"),
        ("[-1e400]", "overflows"),
        ('["\\ud800"]', "surrogate"),
        ('{"\\udfff":1}', "surrogate"),
        ("[" * 10_000 + "]" * 10_000, "nested deeper"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested deeper"),
        ("[" + "9" * 4_302 + "]", "digits"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1] x", "not JSON"),
        ('["\x01"]', "not JSON"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JsonRejected, match=reason):
        parse(text)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(JsonRejected, match="not UTF-8"):
        parse(b'{"a":"\xff"}')


def test_brackets_inside_text_do_not_count_as_depth() -> None:
    assert parse(json.dumps(["[" * 500 + '\\"{'])) == ["[" * 500 + '\\"{']


def test_integers_stay_exact_up_to_the_limit() -> None:
    assert parse("[9007199254740993]") == [2**53 + 1]
    assert parse("9" * 4_300) == int("9" * 4_300)
    assert encode(snapshot(int("9" * 4_300))) == "9" * 4_300


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        (12.0, "12"),
        (-0.0, "0"),
        (2.0**53, str(2**53)),
        (2.0**60, "1.152921504606847e+18"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_have_one_canonical_spelling(given: float, canonical: str) -> None:
    assert encode(snapshot(given)) == canonical


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        {1: 2},
        b"bytes",
        {"a": {1, 2}},
        object(),
        "\ud800",
        {"\udc00": 1},
        10**4_301,
        [[[]]] * 100_001,
    ],
    ids=str.split("nan inf key bytes set object surrogate surrogate-key digits items"),
)
def test_what_is_not_json_is_refused(value: object) -> None:
    if isinstance(value, list):
        with pytest.raises(JsonRejected, match="more than"):
            snapshot(value)
    else:
        with pytest.raises(JsonRejected):
            snapshot({"at": value})


def test_a_refusal_says_where() -> None:
    with pytest.raises(JsonRejected) as caught:
        snapshot({"a/b": [0, {"~": math.nan}]})
    assert caught.value.pointer == "/a~1b/1/~0"


def test_a_snapshot_shares_nothing_with_what_was_given() -> None:
    given_value: dict[str, JsonValue] = {"list": [{"a": 1}]}
    copy = snapshot(given_value)
    given_value["list"][0]["a"] = 2  # type: ignore[index, call-overload]
    assert copy == {"list": [{"a": 1}]}


def test_hidden_characters_arrive_escaped_and_not_removed() -> None:
    hidden = "a\x1b\x7f\x85\u202e\u2066\u2028\ufeffz"
    text = compact({"t": hidden})
    assert text == '{"t":"a\\u001b\\u007f\\u0085\\u202e\\u2066\\u2028\\ufeffz"}'
    assert json.loads(text) == {"t": hidden}


def test_text_is_kept_as_it_is() -> None:
    odd = ["café", "cafe\u0301", " x ", "a|b\n", "&lt;", "\U0001f469\u200d\U0001f4bb"]
    assert parse(encode(snapshot(odd))) == odd
