"""Lines of the app-server, cut and read: separators, pieces, size, and what a broken one still says (C-17, AX-09)."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.worker.codex_frames import LineSplitter, Notification, Request, Response, Unreadable, read_frame

CALL = {
    "id": 4,
    "method": "item/tool/call",
    "params": {"tool": "demo", "arguments": {"text": "a\u2028b\u0085c\U0001f600"}},
}


def test_only_a_newline_ends_a_frame_and_a_carriage_return_before_it_is_nothing() -> None:
    line = json.dumps(CALL, ensure_ascii=False).encode() + b"\r\n"
    assert list(LineSplitter().feed(line)) == [Request(id=4, method="item/tool/call", params=CALL["params"])]


@given(st.lists(st.integers(min_value=0, max_value=400), max_size=12))
def test_however_the_bytes_arrive_the_frames_are_the_same(cuts: list[int]) -> None:
    line = json.dumps(CALL, ensure_ascii=False).encode()
    stream = line + b"\n\n" + b'{"method":"error","params":[]}\n' + line
    splitter = LineSplitter()
    edges = [0, *sorted(cuts), len(stream)]
    frames = [frame for start, end in itertools.pairwise(edges) for frame in splitter.feed(stream[start:end])]
    frames += splitter.finish()
    request = Request(id=4, method="item/tool/call", params=CALL["params"])
    assert frames == [request, Notification(method="error", params={}), request]


def test_a_line_over_the_limit_costs_only_itself_and_is_still_answered() -> None:
    splitter = LineSplitter(1_000)
    long = b'{"id":7,"method":"item/tool/call","params":{"text":"' + b"x" * 5_000 + b'"}}'
    frames = [frame for start in range(0, len(long), 100) for frame in splitter.feed(long[start : start + 100])]
    frames += splitter.feed(b'\n{"id":8,"result":{"a":1}}\n')
    assert frames == [
        Request(id=7, method="item/tool/call", refused="a line of more than 1000 bytes"),
        Response(id=8, result={"a": 1}),
    ]


def test_a_line_of_exactly_the_limit_is_read() -> None:
    line = b'{"id":1,"method":"m"}'
    assert list(LineSplitter(len(line)).feed(line + b"\n")) == [Request(id=1, method="m")]
    assert next(iter(LineSplitter(len(line) - 1).feed(line + b"\n"))) != Request(id=1, method="m")


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        (b'{"id":0,"method":"m"}', Request(id=0, method="m")),
        (b'{"id":"s","method":"m","params":[1]}', Request(id="s", method="m", params=[1])),
        (b'{"id":true,"method":"m"}', Notification(method="m", params={})),
        (b'{"id":null,"method":"m","params":{"a":1}}', Notification(method="m", params={"a": 1})),
        (b'{"id":1,"error":{"code":1,"message":"no"}}', Response(id=1, result={}, error={"code": 1, "message": "no"})),
        (b'{"id":1,"error":"no"}', Response(id=1, result={}, error={"message": "no"})),
        (b'{"id":1}', Response(id=1, result={})),
        (b"[]", Unreadable(reason="not an object")),
        (b"{}", Unreadable(reason="neither a request nor an answer")),
        (b"{oops", Unreadable(reason="not JSON")),
        (b"\xff", Unreadable(reason="not UTF-8")),
        (b'{"id":1,"id":2,"method":"m"}', Request(id=2, method="m", refused="duplicate key 'id'")),
        (b'{"id":1,"method":"m","params":NaN}', Request(id=1, method="m", refused="NaN is not JSON")),
        (b'{"id":1,"method":"m","params":{', Request(id=1, method="m", refused="not JSON")),
        (b'{"params":{"id":9,"method":"x"},"id":1,"method":"m",', Request(id=1, method="m", refused="not JSON")),
        (b'{"id":1,"method":"m","params":"\xff"}', Request(id=1, method="m", refused="not UTF-8")),
        (
            b'{"id":1,"result":{"a":',
            Response(id=1, result={}, error={"message": "the answer could not be read: not JSON"}),
        ),
    ],
)
def test_each_line_is_one_kind_of_frame(line: bytes, frame: object) -> None:
    assert read_frame(line) == frame


def test_nesting_beyond_all_bounds_is_a_refused_request_and_a_strange_notification_is_still_one() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert read_frame(f'{{"id":1,"method":"m","params":{deep}}}'.encode()) == Request(
        id=1, method="m", refused="nested too deeply"
    )
    end = read_frame(b'{"method":"turn/completed","params":{"threadId":"\\ud800","turn":{"a":1,"a":2}}}')
    assert end == Notification(method="turn/completed", params={"threadId": "\ud800", "turn": {"a": 2}})


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(line: bytes) -> None:
    assert isinstance(read_frame(line), Request | Notification | Response | Unreadable)
