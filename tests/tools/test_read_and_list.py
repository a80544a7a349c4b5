"""read_file and list_dir: exact text, pages, hashes, limits, and what is no text (R-099, A1-14)."""

import hashlib
import os
import socket
from pathlib import Path

import anyio
import pytest

from hostside.core.canonical import compact
from hostside.errors import Effect, FailureCode
from tests.support.gateways import call, ok
from tests.support.workspaces import refusal, workspace_gateway

pytestmark = pytest.mark.anyio
FAILED = (FailureCode.TOOL_FAILED, Effect.NONE)


async def test_a_small_file_comes_whole_with_the_hash_of_its_bytes(tmp_path: Path) -> None:
    data = "\ufeffa\r\nb\u2028c\u0085d\re\nlast".encode()
    (tmp_path / "f.txt").write_bytes(data)
    assert await ok(workspace_gateway(tmp_path), "read_file", {"path": "f.txt"}) == {
        "text": data.decode(),
        "start_line": 1,
        "end_line": 3,
        "total_lines": 3,
        "sha256": hashlib.sha256(data).hexdigest(),
        "truncated": False,
    }


async def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    page = await ok(workspace_gateway(tmp_path), "read_file", {"path": "f"})
    assert (page["text"], page["end_line"], page["total_lines"], page["truncated"]) == ("", 0, 0, False)


@pytest.mark.parametrize(
    ("arguments", "first", "last", "truncated"),
    [
        ({}, 1, 200, True),
        ({"start_line": 201}, 201, 400, True),
        ({"start_line": 401}, 401, 450, False),
        ({"max_lines": 3}, 1, 3, True),
        ({"start_line": 449, "max_lines": 2}, 449, 450, False),
        ({"max_chars": 24}, 1, 3, True),
    ],
)
async def test_a_long_file_comes_in_pages(
    tmp_path: Path, arguments: dict[str, int], first: int, last: int, truncated: bool
) -> None:
    (tmp_path / "f").write_text("".join(f"line {n:02}\n"[-8:] for n in range(1, 451)))
    page = await ok(workspace_gateway(tmp_path), "read_file", {"path": "f", **arguments})
    lines = (tmp_path / "f").read_text().splitlines(keepends=True)
    assert (page["text"], page["start_line"], page["end_line"], page["total_lines"], page["truncated"]) == (
        "".join(lines[first - 1 : last]),
        first,
        last,
        450,
        truncated,
    )


async def test_one_line_beyond_the_limit_is_cut_and_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 30_000)
    page = await ok(workspace_gateway(tmp_path), "read_file", {"path": "f"})
    assert (page["text"], page["end_line"], page["truncated"]) == ("x" * 20_000, 1, True)


@pytest.mark.parametrize("character", ["\u4e2d", "\u202e", "\x01", '"'])
async def test_text_that_grows_in_json_is_paged_not_cut_by_the_boundary(tmp_path: Path, character: str) -> None:
    (tmp_path / "f").write_text(f"{character * 99}\n" * 199)
    gateway, text, line, pages = workspace_gateway(tmp_path), "", 1, 0
    while pages < 10:
        result = await call(gateway, "read_file", {"path": "f", "start_line": line})
        assert len(compact(result.structured).encode()) <= 40_000
        text += str(result.structured["text"])
        pages += 1
        if not result.structured["truncated"]:
            break
        line = int(str(result.structured["end_line"])) + 1
    assert text == f"{character * 99}\n" * 199


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "f", "max_lines": 201},
        {"path": "f", "max_chars": 20_001},
        {"path": "f", "start_line": 0},
        {"path": "f", "max_lines": "5"},
        {"path": "f", "file_path": "f"},
        {"path": ["f"]},
        {},
    ],
)
async def test_limits_and_types_are_refused_never_bent(tmp_path: Path, arguments: dict[str, object]) -> None:
    result = await call(workspace_gateway(tmp_path), "read_file", arguments)
    assert refusal(result) == (FailureCode.INVALID_ARGUMENTS, Effect.NONE)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("latin1", "UTF-8"),
        ("binary", "binary"),
        ("absent", "no such file"),
        ("folder", "folder"),
        ("short", "only 1 lines"),
        ("f" * 300, "too long"),
        ("short/below", "no such file"),
    ],
)
async def test_what_cannot_be_read_fails_with_its_path_and_a_remedy(tmp_path: Path, name: str, word: str) -> None:
    (tmp_path / "latin1").write_bytes("é".encode("latin-1"))
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "short").write_bytes(b"a")
    (tmp_path / "folder").mkdir()
    result = await call(workspace_gateway(tmp_path), "read_file", {"path": name, "start_line": 2})
    assert result.failure is not None
    assert refusal(result) == FAILED
    assert word in result.failure.message
    assert name[:200] in result.failure.message
    assert str(tmp_path) not in result.failure.message
    assert result.failure.remedy


async def test_a_file_over_the_limit_is_not_read_into_memory(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(64 * 1024**3)
    result = await call(workspace_gateway(tmp_path), "read_file", {"path": "big"})
    assert refusal(result) == FAILED
    assert result.failure is not None
    assert "larger than" in result.failure.message


async def test_a_pipe_a_socket_and_a_device_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        gateway = workspace_gateway(tmp_path)
        with anyio.fail_after(5):
            answers = [
                refusal(await call(gateway, "read_file", {"path": "fifo"})),
                refusal(await call(gateway, "read_file", {"path": "sock"})),
                refusal(await call(gateway, "write_file", {"path": "fifo", "content": "x"})),
                refusal(await call(gateway, "search_files", {"path": "fifo", "query": "x"})),
            ]
            nothing = await ok(gateway, "search_files", {"query": "x"})
    assert answers == [FAILED] * 4
    assert (nothing["matches"], nothing["searched_files"]) == ([], 0)


async def test_a_folder_is_listed_by_name_with_kinds_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".hidden").touch()
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))).touch()
    assert await ok(workspace_gateway(tmp_path), "list_dir") == {
        "entries": [
            {"name": ".hidden", "type": "file", "size": 0},
            {"name": "a", "type": "directory"},
            {"name": "b.txt", "type": "file", "size": 5},
            {"name": "link", "type": "symlink"},
            {"name": "pipe", "type": "other"},
            {"name": "\\xff", "type": "file", "size": 0},
        ],
        "total": 6,
        "truncated": False,
    }


async def test_a_large_folder_is_listed_up_to_a_limit_and_counted(tmp_path: Path) -> None:
    for number in range(1_200):
        (tmp_path / f"{number:04}").touch()
    listed = await ok(workspace_gateway(tmp_path), "list_dir")
    entries = listed["entries"]
    assert isinstance(entries, list)
    assert (listed["total"], listed["truncated"]) == (1_200, True)
    assert 500 < len(entries) <= 1_000
    assert refusal(await call(workspace_gateway(tmp_path), "list_dir", {"path": "0001"})) == FAILED
