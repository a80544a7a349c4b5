"""C-06: contents arrive byte for byte, as files and as commit messages; comments are the trackers' own cases."""

from pathlib import Path

import pytest

from hostside.core.canonical import compact, parse
from tests.cases.rows import Row, rows
from tests.support.gateways import ok
from tests.support.system_git import a_repository, git
from tests.support.workspaces import workspace_gateway

pytestmark = pytest.mark.anyio
ROWS = rows("C-06")


def text_of(row: Row) -> str:
    if "text" in row.input:
        return str(row.input["text"])
    made = row.input["text_generator"]
    return str(made["repeat"]) * int(made["count"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
async def test_c_06_a_written_file_has_exactly_the_bytes_that_were_sent(row: Row, tmp_path: Path) -> None:
    text = text_of(row)
    arguments = parse(compact({"path": "f", "content": text}))  # as a frame brings it
    await ok(workspace_gateway(tmp_path), "write_file", arguments)
    assert (tmp_path / "f").read_bytes() == text.encode("utf-8")
    assert len(text.encode()) == row.expect.get("length", len(text.encode()))


@pytest.mark.parametrize("row", [row for row in ROWS if "text" in row.input], ids=lambda row: row.id)
async def test_c_06_an_edit_and_a_read_keep_every_byte(row: Row, tmp_path: Path) -> None:
    text, gateway = text_of(row), workspace_gateway(tmp_path)
    (tmp_path / "f").write_bytes(b"<OLD>")
    read = await ok(gateway, "read_file", {"path": "f"})
    await ok(
        gateway,
        "edit_file",
        {"path": "f", "old_text": "OLD", "new_text": text, "expected_sha256": read["sha256"]},
    )
    assert (tmp_path / "f").read_bytes() == f"<{text}>".encode()
    assert (await ok(gateway, "read_file", {"path": "f"}))["text"] == f"<{text}>"


@pytest.mark.system
@pytest.mark.parametrize("row", [row for row in ROWS if "commit message" in row.input["via"]], ids=lambda row: row.id)
async def test_c_06_a_commit_message_is_kept_byte_for_byte(row: Row, tmp_path: Path) -> None:
    root, text = a_repository(tmp_path / "ws"), text_of(row)
    (root / "a.txt").write_text("changed")
    gateway = workspace_gateway(root)
    await ok(gateway, "git_add")
    await ok(gateway, "git_commit", {"message": text})
    assert git(root, "cat-file", "commit", "HEAD").partition(b"\n\n")[2] == text.encode()
