"""C-16: standard output is for frames only. C-17: what a frame is, byte by byte."""

import json
import os
import subprocess
import sys
from typing import Any

import anyio
import pytest

from hostside.edges.frames import MAX_FRAME_BYTES
from tests.cases.rows import Row, rows
from tests.support.clients import ROOT
from tests.support.http_edges import initialize_body
from tests.support.stdio_channel import channel

TOOL_OF = {"C-16.a": "noisy", "C-16.b": "noisy", "C-16.c": "demo_noarg", "C-16.d": "broken"}


def a_call(id: int, tool: str) -> dict[str, Any]:
    params = {"name": tool, "arguments": {}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


@pytest.mark.system
@pytest.mark.parametrize("row", rows("C-16"), ids=lambda row: row.id)
def test_every_line_on_standard_output_is_a_frame(row: Row) -> None:
    frames = [
        initialize_body(),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        a_call(1, TOOL_OF[row.id]),
        a_call(2, "demo_noarg"),
    ]
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "tests.support.stdio_server"],
        input=b"".join(json.dumps(frame).encode() + b"\n" for frame in frames),
        capture_output=True,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        timeout=30,
        check=True,
    )
    assert ended.stdout.endswith(b"\n")
    answers = {answer["id"]: answer for answer in map(json.loads, ended.stdout.splitlines())}
    assert all(answer["jsonrpc"] == "2.0" for answer in answers.values())
    assert answers[2]["result"]["structuredContent"] == {"done": True}
    assert set(answers) == {0, 1, 2}
    said = ended.stderr.decode()
    assert "printed at import" in said
    if TOOL_OF[row.id] == "noisy":
        for noise in ("hello from a handler", "unflushed", "raw bytes", "Cloning into x...", "a library logs"):
            assert noise in said
    assert "CANARY" not in ended.stdout.decode()


def legacy_frames(row: Row) -> tuple[list[bytes], list[int | None]]:
    """Return the writes of a row, and the ids of the answers that must come."""
    given = row.input
    echo = {"name": "echo", "arguments": {"text": "é🦀"}}
    one = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": echo}, ensure_ascii=False).encode()
    if "raw_bytes_hex" in given:
        return [bytes.fromhex(given["raw_bytes_hex"]), one + b"\n"], [None, 1]
    if "writes" in given:
        frames = [one.replace(b'"id": 1', b'"id": %d' % number) + b"\n" for number in (1, 2, 3)]
        third = frames[2]
        return [frames[0] + frames[1], *(third[at : at + 1] for at in range(len(third)))], [1, 2, 3]
    if "frame_generator" in given:
        count = given["frame_generator"]["count"]
        length = count if isinstance(count, int) else MAX_FRAME_BYTES + 1
        long = one.replace("é🦀".encode(), b"a" * length).replace(b'"id": 1', b'"id": 9')
        return [long + b"\n", one + b"\n"], [9 if isinstance(count, int) else None, 1]
    ids: list[int | None] = [None, 2] if row.id == "C-17.e" else [1]
    return [given["raw_bytes_utf8"].encode()], ids


@pytest.mark.anyio
@pytest.mark.parametrize("row", rows("C-17"), ids=lambda row: row.id)
async def test_only_a_line_feed_ends_a_frame_and_a_bad_one_does_not_stop_the_next(row: Row) -> None:
    writes, ids = legacy_frames(row)
    async with channel() as client:
        await client.shake_hands()
        answers: list[dict[str, Any]] = []

        async def read() -> None:
            answers.extend([await client.next() for _ in ids])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for data in writes:
                await client.send(data)
        assert sorted(str(answer["id"]) for answer in answers) == sorted(map(str, ids))
        errors = {answer["error"]["code"] for answer in answers if answer["id"] is None}
        assert errors <= {-32700, -32600}
        assert all("result" in answer for answer in answers if answer["id"] is not None)
        if "echo_text" in row.expect:
            assert answers[0]["result"]["structuredContent"] == {"text": row.expect["echo_text"]}
    assert b"\r" not in client.raw
