"""Framing and bounds of what a child writes."""

import os

import anyio
import pytest

from hostside.worker.process_streams import Head, LineTooLong, PipeReader, PipeWriter, Tail

pytestmark = pytest.mark.anyio


def pipe() -> tuple[PipeReader, PipeWriter]:
    reader, writer = os.pipe()
    return PipeReader(reader), PipeWriter(writer)


async def lines_of(content: bytes) -> list[bytes]:
    reader, writer = pipe()
    lines = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:

            async def write() -> None:
                await writer.send(content)
                writer.close()

            group.start_soon(write)
            while (line := await reader.receive_line()) is not None:
                lines.append(line)
    reader.close()
    return lines


async def test_only_a_newline_ends_a_line() -> None:
    frame = '{"text":"a\u2028b\u2029c\x0b\x0c\x1c\x85"}\r'.encode()
    assert await lines_of(frame + b"\n\n" + b"last") == [frame, b"", b"last"]


async def test_a_line_of_twelve_megabytes_arrives_whole() -> None:
    long = os.urandom(12_000_000).replace(b"\n", b"\r")
    assert await lines_of(b"first\n" + long + b"\nend\n") == [b"first", long, b"end"]


async def test_a_line_beyond_the_limit_is_an_error_and_not_a_cut_line() -> None:
    reader, writer = pipe()
    await writer.send(b"x" * 100 + b"\n")
    with pytest.raises(LineTooLong):
        await reader.receive_line(max_bytes=99)
    reader.close()
    writer.close()


async def test_a_cancelled_read_loses_nothing() -> None:
    reader, writer = pipe()
    await writer.send(b"first ha")
    with anyio.move_on_after(0.05) as waited:
        await reader.receive_line()
    assert waited.cancelled_caught
    await writer.send(b"lf\nrest")
    assert [await reader.receive_line(), await reader.receive()] == [b"first half", b"rest"]
    reader.close()
    writer.close()


async def test_closing_wakes_the_task_that_reads() -> None:
    reader, writer = pipe()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def read() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await reader.receive()

            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            reader.close()
    writer.close()


async def test_writing_to_a_reader_that_left_is_a_typed_error() -> None:
    reader, writer = pipe()
    reader.close()
    with pytest.raises(anyio.BrokenResourceError):
        await writer.send(b"x")
    writer.close()


def test_a_tail_keeps_the_end_and_shows_no_half_of_a_secret() -> None:
    tail = Tail(20)
    for chunk in (b"early\n", b"key=top-secret\n", b"last line\n"):
        tail.add(chunk)
    assert (tail.content(), tail.dropped) == (b"op-secret\nlast line\n", 11)
    assert tail.text(lambda text: text.replace("top-secret", "***")) == "last line\n"


def test_a_tail_that_holds_everything_is_redacted_whole() -> None:
    tail = Tail(100)
    tail.add(b"key=top-secret \xff\n")
    assert tail.text(lambda text: text.replace("top-secret", "***")) == "key=*** \ufffd\n"


def test_a_head_keeps_the_beginning_and_says_that_it_was_cut() -> None:
    head = Head(5)
    head.add(b"abc")
    assert not head.truncated
    head.add(b"def")
    assert (head.content(), head.truncated) == (b"abcde", True)
