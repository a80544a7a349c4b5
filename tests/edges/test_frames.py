"""Cutting a byte stream into frames, and what is a frame at all (C-05, C-17, D1)."""

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.edges.frames import Frame, FrameKind, FrameRejected, FrameSplitter, read_frame, wire_bytes

LIMIT = 40


def split(pieces: list[bytes], limit: int = LIMIT) -> list[bytes | None]:
    splitter = FrameSplitter(limit)
    return [frame for piece in pieces for frame in splitter.feed(piece)]


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(st.lists(st.binary(max_size=60)), st.lists(st.integers(min_value=0)))
def test_where_the_bytes_are_cut_makes_no_difference(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert split(in_pieces(data, cuts)) == split([data])


@given(st.lists(st.binary(max_size=60).filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))))
def test_only_a_line_feed_ends_a_frame(lines: list[bytes]) -> None:
    expected = [line if len(line) <= LIMIT else None for line in lines]
    assert split([b"".join(line + b"\n" for line in lines)]) == expected
    assert split([b"".join(line + b"\r\n" for line in lines)]) == expected


def test_a_long_frame_is_forgotten_as_it_comes_and_the_next_one_works() -> None:
    splitter = FrameSplitter(LIMIT)
    for _ in range(1_000):
        assert list(splitter.feed(b"a" * 1_000)) == []
    assert splitter.unfinished
    assert list(splitter.feed(b"a\nnext\n")) == [None, b"next"]
    assert not splitter.unfinished


def test_a_frame_as_long_as_the_limit_passes_also_with_a_carriage_return() -> None:
    assert split([b"a" * LIMIT + b"\n", b"b" * LIMIT + b"\r\n", b"c" * LIMIT + b"c\n"]) == [
        b"a" * LIMIT,
        b"b" * LIMIT,
        None,
    ]


REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {"a": 1}}}


def rejection(frame: bytes | object) -> tuple[int, object]:
    with pytest.raises(FrameRejected) as caught:
        read_frame(frame if isinstance(frame, bytes) else json.dumps(frame).encode())
    answer = json.loads(caught.value.as_bytes())
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"]["message"]
    return answer["error"]["code"], answer["id"]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"\xff",
        b'{"a":1,"a":2}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"b":[{"a":1,"a":2}]}}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1e400}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"9" * 5_000 + b"}}",
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"x"}',
    ],
    ids=range(11),
)
def test_what_is_not_strict_json_is_a_parse_error_of_no_request(frame: bytes) -> None:
    assert rejection(frame) == (-32700, None)


@pytest.mark.parametrize(
    ("frame", "known"),
    [
        ([REQUEST], None),
        ("text", None),
        (1, None),
        (None, None),
        ({}, None),
        ({"id": 1, "method": "x"}, 1),
        ({"jsonrpc": "1.0", "id": "a", "method": "x"}, "a"),
        ({"jsonrpc": 2.0, "id": 1, "method": "x"}, 1),
        ({"jsonrpc": "2.0", "id": True, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": None, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": 1.0, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": [1], "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": "a" * 257, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": 2**63, "method": "x"}, None),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "params": []}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "params": "y"}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "result": {}}, 1),
        ({"jsonrpc": "2.0", "id": 1}, 1),
        ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, 1),
        ({"jsonrpc": "2.0", "id": 1, "result": "x"}, 1),
        ({"jsonrpc": "2.0", "error": {}}, None),
        ({"jsonrpc": "2.0", "id": None, "result": {}}, None),
    ],
)
def test_what_is_not_one_message_is_an_invalid_request_with_its_id_where_that_is_known(
    frame: object, known: object
) -> None:
    assert rejection(frame) == (-32600, known)


def read(message: dict[str, Any]) -> Frame:
    return read_frame(json.dumps(message).encode())


@pytest.mark.parametrize("arguments", [None, [], ["x"], "", "{}", 0, 1.5, True, False], ids=repr)
def test_raw_arguments_are_kept_and_the_library_sees_an_empty_object(arguments: object) -> None:
    frame = read({**REQUEST, "params": {"name": "t", "arguments": arguments}})
    assert (frame.arguments, frame.altered) == (arguments, True)
    assert json.loads(wire_bytes(frame.message)) == {**REQUEST, "params": {"name": "t", "arguments": {}}}


def test_an_object_goes_on_as_it_came_and_a_missing_one_is_empty() -> None:
    frame = read(REQUEST)
    assert (frame.arguments, frame.altered, frame.message) == ({"a": 1}, False, REQUEST)
    assert read({**REQUEST, "params": {"name": "t"}}).arguments == {}
    assert read({**REQUEST, "params": {"name": "t", "arguments": {"n": 2**53 + 1}}}).arguments == {"n": 2**53 + 1}


def test_each_kind_of_message_is_told_apart() -> None:
    kinds = [
        read(REQUEST).kind,
        read({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t"}}).kind,
        read({"jsonrpc": "2.0", "id": "x", "result": {}}).kind,
        read({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}}).kind,
    ]
    assert kinds == [FrameKind.REQUEST, FrameKind.NOTIFICATION, FrameKind.RESPONSE, FrameKind.RESPONSE]


def test_hidden_characters_leave_escaped_and_mean_the_same() -> None:
    message = {"text": "a\u2028b\u0085c\u202ed\x7f"}
    sent = wire_bytes(dict(message))
    assert sent.isascii()
    assert json.loads(sent) == message


@given(st.binary(max_size=300))
def test_any_bytes_are_a_frame_or_a_rejection(data: bytes) -> None:
    with contextlib.suppress(FrameRejected):
        assert read_frame(data).message["jsonrpc"] == "2.0"
