"""JSON as this product means it: one strict parser, one canonical form, one digest (D1, D20).

`parse` refuses what two readers could understand differently; `snapshot` makes the private copy that every later
step shares; `encode` and `digest` are functions of the JSON value alone, never of its spelling.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = dict[str, JsonValue]
#: What a caller may hand in: anything. `snapshot` proves that it is JSON.
Unchecked: TypeAlias = object

MAX_DEPTH = 64
MAX_ITEMS = 100_000
MAX_INTEGER_DIGITS = 4_300
_EXACT = 2**53
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonRejected(ValueError):
    """The text or value is not JSON that this product accepts. `pointer` is where, as far as it is known."""

    def __init__(self, reason: str, pointer: str = "") -> None:
        super().__init__(f"{pointer or '/'}: {reason}" if pointer else reason)
        self.reason = reason
        self.pointer = pointer


def parse(text: str | bytes) -> JsonValue:
    """Return the JSON value of `text`.

    Refuses (JsonRejected) bad UTF-8, duplicate keys, NaN and Infinity, literals that overflow, integers beyond
    4,300 digits, lone surrogates and nesting beyond `MAX_DEPTH`. Depth is checked here so that no later step recurses
    into what an attacker chose.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise JsonRejected(f"not UTF-8 (byte {exc.start})") from None
    if _deeper_than(text, MAX_DEPTH):
        raise JsonRejected(f"nested deeper than {MAX_DEPTH}")
    try:
        value: JsonValue = _DECODER.decode(text)
    except JsonRejected:
        raise
    except RecursionError:
        raise JsonRejected(f"nested deeper than {MAX_DEPTH}") from None
    except ValueError as exc:
        raise JsonRejected(f"not JSON ({_short(exc)})") from None
    if "\\u" in text or _SURROGATE.search(text):
        _refuse_surrogates(value)
    return value


def snapshot(value: Unchecked, pointer: str = "") -> JsonValue:
    """Return a private canonical copy: integral floats within ±2^53 become integers and -0.0 becomes 0.

    Refuses (JsonRejected, with the JSON pointer) whatever is not JSON: other types, non-string keys, non-finite
    numbers, lone surrogates, and sizes beyond the host's ceilings (R-042).
    """
    budget = [MAX_ITEMS]
    return _copy(value, pointer, 0, budget)


def encode(value: JsonValue) -> str:
    """Return the canonical text: keys sorted, no white space, non-ASCII kept. Equal JSON gives equal text."""
    return _ENCODER.encode(value)


def digest(value: JsonValue) -> str:
    """Return the SHA-256 of the canonical text, in hexadecimal."""
    return hashlib.sha256(encode(value).encode("utf-8")).hexdigest()


# C0 is escaped by JSON itself. The rest would reach a terminal or a model's page raw (D22).
_HIDDEN = re.compile("[\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def compact(value: JsonValue) -> str:
    """Return compact JSON in the order given, with control, C1 and bidirectional characters escaped, not removed (D22)."""
    return escape_hidden(_COMPACT.encode(value))


def escape_hidden(text: str) -> str:
    """Return JSON text with its hidden characters as `\\uXXXX`; the JSON value is the same."""
    return _HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _pairs(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonRejected(f"duplicate key {key[:100]!r}")
            seen.add(key)
    return found


def _float(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise JsonRejected(f"the number {literal[:40]} overflows")
    return number


def _integer(literal: str) -> int:
    if len(literal) > MAX_INTEGER_DIGITS + 1:
        raise JsonRejected(f"an integer of more than {MAX_INTEGER_DIGITS} digits")
    return int(literal)


def _constant(literal: str) -> JsonValue:
    raise JsonRejected(f"{literal} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_float, parse_int=_integer, parse_constant=_constant, strict=True
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def _deeper_than(text: str, limit: int) -> bool:
    # Cheap first: without that many opening brackets there is no such depth.
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for match in _STRUCTURE.finditer(text):
        first = match.group()[0]
        if first in "[{":
            depth += 1
            if depth > limit:
                return True
        elif first in "]}":
            depth -= 1
    return False


def _refuse_surrogates(value: JsonValue) -> None:
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if _SURROGATE.search(item):
                raise JsonRejected("a lone surrogate is not Unicode text")
        elif isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _copy(value: Unchecked, pointer: str, depth: int, budget: list[int]) -> JsonValue:
    budget[0] -= 1
    if budget[0] < 0:
        raise JsonRejected(f"more than {MAX_ITEMS} values", pointer)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, pointer)
    if isinstance(value, int | float):
        return _number(value, pointer)
    if depth >= MAX_DEPTH:
        raise JsonRejected(f"nested deeper than {MAX_DEPTH}", pointer)
    if isinstance(value, Mapping):
        result: JsonObject = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise JsonRejected("a key that is not text", pointer)
            result[_text(key, pointer)] = _copy(item, f"{pointer}/{escape_pointer(key)}", depth + 1, budget)
        return result
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_copy(item, f"{pointer}/{index}", depth + 1, budget) for index, item in enumerate(value)]
    raise JsonRejected(f"{type(value).__name__} is not a JSON type", pointer)


def _text(value: str, pointer: str) -> str:
    if not value.isascii() and _SURROGATE.search(value):
        raise JsonRejected("a lone surrogate is not Unicode text", pointer)
    return str(value)


def _number(value: int | float, pointer: str) -> int | float:
    if isinstance(value, int):
        # 10^4300 has 14,285 bits; anything longer cannot be printed again under Python's own limit.
        if value.bit_length() > 14_285:
            raise JsonRejected(f"an integer of more than {MAX_INTEGER_DIGITS} digits", pointer)
        return int(value)
    if not math.isfinite(value):
        raise JsonRejected("a number that is not finite", pointer)
    if value.is_integer() and -_EXACT <= value <= _EXACT:
        return int(value)
    return float(value)


def escape_pointer(key: str) -> str:
    """Return one JSON pointer segment (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _short(exc: ValueError) -> str:
    return str(exc)[:120]
