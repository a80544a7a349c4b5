"""write_file and edit_file: whole, exact, checked against what was read (R-098, R-143, A1-14, A1-19)."""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import pytest

from hostside.core.call import ToolResult
from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode
from hostside.tools.files import file_tools
from tests.support.gateways import call, make_gateway, ok
from tests.support.memory_receipts import MemoryReceipts
from tests.support.workspaces import a_workspace, refusal, tree, workspace_gateway

pytestmark = pytest.mark.anyio
STALE = (FailureCode.PRECONDITION_FAILED, Effect.NONE)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_a_new_file_is_made_with_its_folders_and_verified(tmp_path: Path) -> None:
    result = await call(workspace_gateway(tmp_path), "write_file", {"path": "a/b/c.txt", "content": "x|y\n"})
    assert (result.failure, result.effect) == (None, Effect.VERIFIED)
    assert result.structured == {"sha256": digest(b"x|y\n"), "bytes": 4, "created": True}
    assert tree(tmp_path) == {"a": "dir", "a/b": "dir", "a/b/c.txt": b"x|y\n"}
    umask = int(
        next(line for line in Path("/proc/self/status").read_text().splitlines() if "Umask" in line).split()[1], 8
    )
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o644 & ~umask


async def test_an_existing_file_is_replaced_with_its_mode_and_not_its_special_bits(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_bytes(b"old")
    file.chmod(0o6750)
    other = tmp_path / "hard"
    os.link(file, other)
    written = await ok(workspace_gateway(tmp_path), "write_file", {"path": str(file), "content": "new"})
    assert written["created"] is False
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o750)
    assert other.read_bytes() == b"old"  # swapped in, not written through


async def test_path_and_content_are_never_mixed_up(tmp_path: Path) -> None:
    await ok(workspace_gateway(tmp_path), "write_file", {"path": "a|b", "content": "c|d"})
    await ok(workspace_gateway(tmp_path), "write_file", {"path": "c|d", "content": "a|b"})
    await ok(workspace_gateway(tmp_path), "write_file", {"path": "cafe\u0301", "content": ""})
    await ok(workspace_gateway(tmp_path), "write_file", {"path": "caf\u00e9", "content": "\u00e9"})
    assert tree(tmp_path) == {"a|b": b"c|d", "c|d": b"a|b", "cafe\u0301": b"", "caf\u00e9": b"\xc3\xa9"}


async def test_receipts_keep_the_hash_of_the_content_not_the_content(tmp_path: Path) -> None:
    receipts = MemoryReceipts()
    await ok(workspace_gateway(tmp_path, receipts=receipts), "write_file", {"path": "f", "content": "my words"})
    (started,) = receipts.starts
    assert started.arguments_redacted == {"path": "f", "content": {"sha256": digest(b"my words"), "bytes": 8}}


@pytest.mark.parametrize(("path", "word"), [("d", "folder"), ("d/", "folder"), ("f/x", "no such"), (".", "folder")])
async def test_a_path_that_cannot_be_a_file_fails_and_leaves_no_trace(tmp_path: Path, path: str, word: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").touch()
    before = tree(tmp_path)
    result = await call(workspace_gateway(tmp_path), "write_file", {"path": path, "content": "x"})
    assert result.failure is not None
    assert (refusal(result), tree(tmp_path)) == ((FailureCode.TOOL_FAILED, Effect.NONE), before)
    assert word in result.failure.message


async def test_a_write_that_fails_before_the_swap_leaves_neither_file_nor_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "x")

    monkeypatch.setattr("hostside.tools.workspace_writes.os.rename", full)
    result = await call(workspace_gateway(tmp_path), "write_file", {"path": "a/b/c", "content": "x"})
    assert (refusal(result), tree(tmp_path)) == ((FailureCode.TOOL_FAILED, Effect.NONE), {})


async def test_a_verifier_that_finds_other_bytes_makes_the_effect_unknown(tmp_path: Path) -> None:
    write = next(tool for tool in file_tools() if tool.spec.name == "write_file")

    async def write_then_lose(arguments: JsonObject, context: object) -> ToolResult:
        result = await write.execute(arguments, context)  # type: ignore[arg-type]
        (tmp_path / "f").write_bytes(b"other")
        return result

    gateway = make_gateway([replace(write, execute=write_then_lose)], workspace=a_workspace(tmp_path))
    result = await call(gateway, "write_file", {"path": "f", "content": "mine"})
    assert refusal(result) == (FailureCode.EFFECT_UNKNOWN, Effect.UNKNOWN)


async def test_an_edit_replaces_one_piece_keeps_the_mode_and_tells_the_next_hash(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"one\r\ntwo\r\nthree")
    file.chmod(0o600)
    gateway = workspace_gateway(tmp_path)
    read = await ok(gateway, "read_file", {"path": "f"})
    edited = await call(
        gateway,
        "edit_file",
        {"path": "f", "old_text": "two\r\n", "new_text": "2\n", "expected_sha256": read["sha256"]},
    )
    assert (edited.structured, edited.effect) == (
        {"sha256": digest(b"one\r\n2\nthree"), "bytes": 12, "line": 2},
        Effect.VERIFIED,
    )
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"one\r\n2\nthree", 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("data", "old", "hashed", "word"),
    [
        (b"abc", "b", b"abd", "expected_sha256"),
        (b"abc", "x", None, "does not occur"),
        (b"abab", "ab", None, "more than once"),
        (b"aaa", "aa", None, "more than once"),
        (b"caf\xc3\xa9", "cafe\u0301", None, "does not occur"),
    ],
)
async def test_an_edit_that_does_not_fit_changes_nothing(
    tmp_path: Path, data: bytes, old: str, hashed: bytes | None, word: str
) -> None:
    (tmp_path / "f").write_bytes(data)
    arguments = {"path": "f", "old_text": old, "new_text": "z", "expected_sha256": digest(hashed or data)}
    result = await call(workspace_gateway(tmp_path), "edit_file", arguments)
    assert result.failure is not None
    assert (refusal(result), tree(tmp_path)) == (STALE, {"f": data})
    assert word in result.failure.message


async def test_a_file_that_changes_during_the_edit_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    sync: Callable[[int], None] = os.fsync

    def changed_meanwhile(handle: int) -> None:
        sync(handle)
        file.write_bytes(b"somebody else's")

    monkeypatch.setattr("hostside.tools.workspace_writes.os.fsync", changed_meanwhile)
    arguments = {"path": "f", "old_text": "b", "new_text": "z", "expected_sha256": digest(b"abc")}
    result = await call(workspace_gateway(tmp_path), "edit_file", arguments)
    assert (refusal(result), tree(tmp_path)) == (STALE, {"f": b"somebody else's"})


@pytest.mark.parametrize(
    "change", [{"old_text": ""}, {"expected_sha256": "A" * 64}, {"expected_sha256": "a" * 63}, {"new_text": None}]
)
async def test_an_edit_with_wrong_arguments_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    arguments = {"path": "f", "old_text": "b", "new_text": "z", "expected_sha256": "a" * 64, **change}
    result = await call(workspace_gateway(tmp_path), "edit_file", arguments)
    assert refusal(result) == (FailureCode.INVALID_ARGUMENTS, Effect.NONE)


async def test_an_edit_of_binary_or_absent_files_fails(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"a\xff")
    gateway = workspace_gateway(tmp_path)
    arguments = {"old_text": "a", "new_text": "z", "expected_sha256": digest(b"a\xff")}
    assert [refusal(await call(gateway, "edit_file", {"path": path, **arguments})) for path in ("b", "absent")] == [
        (FailureCode.TOOL_FAILED, Effect.NONE)
    ] * 2
    assert tree(tmp_path) == {"b": b"a\xff"}


async def test_tools_of_one_workspace_refuse_a_session_of_another(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    other = replace(a_workspace(tmp_path / "two"), id="ws-2")
    gateway = make_gateway(file_tools(a_workspace(tmp_path / "one")), workspace=other)
    result = await call(gateway, "write_file", {"path": "f", "content": "x"})
    assert refusal(result) == (FailureCode.OUTSIDE_WORKSPACE, Effect.NONE)
    assert tree(tmp_path) == {"one": "dir", "two": "dir"}


async def test_new_files_belong_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    os.chown(tmp_path, 4242, 4343)
    await ok(workspace_gateway(tmp_path), "write_file", {"path": "a/b", "content": "x"})
    owners = await anyio.to_thread.run_sync(lambda: {(p.stat().st_uid, p.stat().st_gid) for p in tmp_path.rglob("*")})
    assert owners == {(4242, 4343)}
