"""C-22.g and C-24: file tools stay inside the workspace and out of git's own folder.

`reject` of the rows is `outside_workspace` here; where a row leaves a choice, an odd name is one literal name. The rows'
`file_write` is write_file. A root that is itself a link is opened by its real path, as the host finds it.
"""

from pathlib import Path

import pytest

from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode
from tests.cases.rows import Row, rows
from tests.support.gateways import call, ok
from tests.support.memory_receipts import MemoryReceipts
from tests.support.workspaces import refusal, tree, workspace_gateway

pytestmark = pytest.mark.anyio
OUTSIDE = (FailureCode.OUTSIDE_WORKSPACE, Effect.NONE)
LITERAL = {"C-24.h": "~/x", "C-24.i": "..\\..\\x", "C-24.j": "%2e%2e/x", "C-24.k": "a.txt"}
REFUSED = [row for row in rows("C-24") if row.id not in LITERAL]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The rows' world: `ws/run-1` beside `ws/run-10`, with links that lead out."""
    root = tmp_path / "ws/run-1"
    (root / "a").mkdir(parents=True)
    (tmp_path / "ws/run-10").mkdir()
    (tmp_path / "ws/run-10/a.txt").write_text("foreign")
    (root / "link_to_outside_file").symlink_to("../run-10/a.txt")
    (root / "dangling_link_to_outside").symlink_to("../run-10/new.txt")
    (root / "link_to_outside_dir").symlink_to("../run-10")
    return root


def test_every_row_of_workspace_files_is_taken_here() -> None:
    assert [row.id for row in rows("C-24")] == [f"C-24.{letter}" for letter in "abcdefghijk"]
    assert {row.component for row in [*rows("C-24"), *rows("C-22.g")]} == {"workspace.files"}


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.id)
async def test_c_24_a_path_that_leaves_is_refused_before_anything_is_opened_or_made(row: Row, root: Path) -> None:
    before, receipts = tree(root.parent), MemoryReceipts()
    path = row.input["path"]
    calls: list[tuple[str, JsonObject]] = [
        ("read_file", {"path": path}),
        ("write_file", {"path": path, "content": "x"}),
    ]
    for tool, arguments in calls:
        result = await call(workspace_gateway(root, receipts=receipts), tool, arguments)
        assert result.failure is not None
        assert refusal(result) == OUTSIDE
        assert repr(path.replace("\0", "\\0")) in result.failure.message
        assert [word for word in row.expect["error_mentions"] if word not in result.failure.message] == []
        assert "run-10" not in result.failure.message.replace(repr(path), "")
    assert tree(root.parent) == before
    assert [end.code for end in receipts.ends] == [FailureCode.OUTSIDE_WORKSPACE] * 2


@pytest.mark.parametrize("row", [row for row in rows("C-24") if row.id in LITERAL], ids=lambda row: row.id)
async def test_c_24_an_odd_name_is_one_literal_name_inside_the_root(row: Row, root: Path) -> None:
    if row.input.get("root_is_symlink"):
        (root.parent / "link").symlink_to("run-1")
        root = root.parent / "link"
    assert row.input["path"] == LITERAL[row.id]
    await ok(workspace_gateway(root), "write_file", {"path": row.input["path"], "content": "x"})
    assert (root / row.input["path"]).read_text() == "x"
    assert (await ok(workspace_gateway(root), "read_file", {"path": row.input["path"]}))["text"] == "x"
    assert sorted(path.name for path in root.parent.iterdir() if path.name != "link") == ["run-1", "run-10"]


async def test_c_22_g_a_path_inside_git_is_refused_and_makes_no_file(root: Path) -> None:
    (row,) = rows("C-22.g")
    (root / ".git").mkdir()
    for arguments in row.input["arguments_each"]:
        result = await call(workspace_gateway(root), "write_file", {**arguments, "content": "x"})
        assert result.failure is not None
        assert refusal(result) == OUTSIDE
        assert [word for word in row.expect["error_mentions"] if word not in result.failure.message] == []
    assert list((root / ".git").iterdir()) == []
    assert not (root / "sub").exists()
