"""Every built-in takes one object and returns a typed result, and every edge shows it with one schema (R-017, R-019)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from hostside.app.catalogue import catalogue
from hostside.app.host import workspace_tools
from hostside.config.host import HostSettings
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.edges.codex import dynamic_tools
from hostside.edges.mcp import mcp_server
from hostside.trackers.file import FileTracker, FileTrackerSettings
from tests.support.gateways import an_issue, call, make_gateway, ok
from tests.support.system_git import SystemGit, a_repository
from tests.support.workspaces import a_workspace

pytestmark = [pytest.mark.anyio, pytest.mark.system]
KNOWN = catalogue(HostSettings()).registry
BEFORE = b"one\ntwo\n"
#: The smallest object that each tool works with, in an order in which each finds something to do.
MINIMAL: dict[str, JsonObject] = {
    "read_file": {"path": "a.txt"},
    "list_dir": {},
    "find_files": {"pattern": "*.txt"},
    "search_files": {"query": "two"},
    "edit_file": {
        "path": "a.txt",
        "old_text": "two",
        "new_text": "2",
        "expected_sha256": hashlib.sha256(BEFORE).hexdigest(),
    },
    "write_file": {"path": "b.txt", "content": ""},
    "git_status": {},
    "git_diff": {},
    "git_add": {},
    "git_commit": {"message": "m"},
    "file_issue_get": {},
    "file_issue_states": {},
    "file_issue_comment_add": {"body": "x"},
    "file_issue_comments": {},
    "file_issue_comment_update": {"comment_id": "1", "body": "y"},
    "file_issue_move": {"target_state": "Done"},
}


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    """A session with every built-in, over a real repository and a real tracker file."""
    root = a_repository(tmp_path / "ws")
    assert (root / "a.txt").read_bytes() == BEFORE
    issues = [{"id": "id-DEMO-1", "identifier": "DEMO-1", "title": "t", "state": "Todo"}]
    (tmp_path / "issues.json").write_text(json.dumps(issues), encoding="utf-8")
    tracker = FileTracker(
        FileTrackerSettings(path=tmp_path / "issues.json", states=("Todo", "Done"), key=bytes(range(32)))
    )
    tools = [*tracker.tools(), *workspace_tools(SystemGit(root))]
    return make_gateway(tools, issue=an_issue(), workspace=a_workspace(root, branch="run-1"))


def test_the_table_has_each_built_in_and_nothing_else() -> None:
    assert set(MINIMAL) == set(KNOWN.tools)


async def test_each_built_in_takes_an_object_and_returns_a_typed_result(gateway: Gateway) -> None:
    # The boundary turns anything but a ToolResult that meets its own schema into `tool_crashed`.
    done = {name: await ok(gateway, name, arguments) for name, arguments in MINIMAL.items()}
    empty = [name for name, structured in done.items() if not structured]
    assert empty == []
    assert gateway.session.workspace is not None
    assert (Path(gateway.session.workspace.root) / "a.txt").read_bytes() == b"one\n2\n"


async def test_each_built_in_refuses_what_it_does_not_know(gateway: Gateway) -> None:
    codes = set()
    for name, arguments in MINIMAL.items():
        for wrong in ({**arguments, "args": "free text"}, json.dumps(arguments), [arguments]):
            result = await call(gateway, name, wrong)
            codes.add(result.failure and result.failure.code.value)
    assert codes == {"invalid_arguments"}


async def test_mcp_and_codex_show_each_built_in_with_the_schema_of_the_catalogue(gateway: Gateway) -> None:
    codex: list[Any] = dynamic_tools(gateway.session) or []
    async with Client(mcp_server(lambda: gateway)) as client:
        mcp = [(tool.name, tool.description, tool.input_schema) for tool in (await client.list_tools()).tools]
    assert mcp == [(tool["name"], tool["description"], tool["inputSchema"]) for tool in codex]
    assert mcp == [(name, item.spec.description, item.advertised_input) for name, item in KNOWN.tools.items()]
