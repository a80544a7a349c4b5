"""Claude Code on both of its edges and Codex, all real, work the same issue: same tools, results and receipts (A0-01)."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_script import Call, OfferedTool, Say, Script, ToolAnswer
from tests.support.clients import find_claude, find_codex
from tests.support.host_world import GREETING, Finished, HostWorld, git, make_world
from tests.support.real_clients import FUNCTION_CALL_MODEL, LISTING_MODEL
from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_openai import StubOpenAI

pytestmark = [pytest.mark.anyio, pytest.mark.system]
MODEL_KEY = "model-key-0123456789abcdef"
READ = Call("read_file", {"path": "greeting.py"})


def edit(answers: list[ToolAnswer]) -> list[Call]:
    digest = answers[-1].json()["sha256"]
    arguments = {"path": "greeting.py", "old_text": "Helo", "new_text": "Hello", "expected_sha256": digest}
    return [Call("edit_file", arguments)]


def script() -> Script:
    """One conversation with every kind of outcome that needs no provider (A0-03..A0-05, A0-16)."""
    return [
        [Call("file_issue_get")],
        [Call("file_issue_move", {"target_state": "In Progress", "expected_state": "Todo"})],
        [READ],
        edit,
        [Call("file_issue_comment_add", {"body": ["not", "text"]})],
        [Call("file_issue_comment_add", {"body": "Fixed é|\n“it”."})],
        [Call("file_issue_comment_add", {"body": "Fixed é|\n“it”."})],
        [Call("file_issue_comment_update", {"comment_id": "nope", "body": "x"})],
        [Call("file_issue_move", {"target_state": "Nowhere"})],
        [Call("read_file", {"path": "../../etc/passwd"})],
        [Call("git_add", {"paths": ["greeting.py"]})],
        [Call("git_commit", {"message": "Fix greeting"})],
        [Call("file_issue_comments")],
        [Call("file_issue_move", {"target_state": "In Review"})],
        Say("done"),
    ]


@dataclass(frozen=True, slots=True)
class Told:
    """What one agent's run left: what its model was offered and read, the run's report, its receipts, its world."""

    offered: list[OfferedTool]
    answers: list[ToolAnswer]
    finished: Finished
    receipts: list[dict[str, Any]]
    world: HostWorld


@asynccontextmanager
async def claude_model(play: Script) -> AsyncIterator[StubAnthropic]:
    async with StubAnthropic(play) as model:
        yield model


@asynccontextmanager
async def codex_model(play: Script, namespace: str | None = None) -> AsyncIterator[StubOpenAI]:
    async with StubOpenAI(play, namespace=namespace) as model:
        yield model


def codex_exec_model(play: Script) -> AbstractAsyncContextManager[StubOpenAI]:
    return codex_model(play, "mcp__hostside")


async def told_by(agent: str, edge: str, folder: Path, play: Callable[[], Script] = script) -> Told:
    folder.mkdir()
    world = make_world(folder)
    executable = find_claude() if agent == "claude" else find_codex()
    codex = (codex_exec_model, LISTING_MODEL) if edge == "http" else (codex_model, FUNCTION_CALL_MODEL)
    make = claude_model if agent == "claude" else codex[0]
    async with make(play()) as model:
        world.configure(
            f'[agent]\nkind = "{agent}"\nexecutable = "{executable}"\nbase_url = "{model.base_url}"\n'
            f'key = "env:THE_MODEL_KEY"\nedge = "{edge}"\n' + (f'model = "{codex[1]}"\n' if agent == "codex" else "")
        )
        finished = await world.run_async("run", "DEMO-1", "--json", extra={"THE_MODEL_KEY": MODEL_KEY})
        assert model.unexpected == []
        offered, answers = model.offered_tools(), model.tool_results()
    return Told(offered, answers, finished, world.receipts(), world)


VOLATILE = re.compile(r'"(receipt_id|created_at|updated_at|commit|parent)":"[^"]*"')
#: Tool, outcome, code and effect of every receipt, whoever called.
EXPECTED = [
    ("file_issue_get", "ok", None, "none"),
    ("file_issue_move", "ok", None, "verified"),
    ("read_file", "ok", None, "none"),
    ("edit_file", "ok", None, "verified"),
    ("file_issue_comment_add", "refused", "invalid_arguments", "none"),
    ("file_issue_comment_add", "ok", None, "reported"),
    # The same comment again: the stored outcome, and nothing is written (D23).
    ("file_issue_comment_add", "ok", None, "none"),
    ("file_issue_comment_update", "refused", "outside_issue", "none"),
    ("file_issue_move", "failed", "precondition_failed", "none"),
    ("read_file", "refused", "outside_workspace", "none"),
    ("git_add", "ok", None, "verified"),
    ("git_commit", "ok", None, "verified"),
    ("file_issue_comments", "ok", None, "none"),
    ("file_issue_move", "ok", None, "verified"),
]
FACTS = (
    *("tool", "outcome", "code", "effect", "arguments_fingerprint"),
    *("issue_id", "workspace_id", "registry_fingerprint"),
)
#: The edge that a run is on, by agent and configuration; `auto` comes out as the way without a port (D24).
RUNS = {
    ("claude", "auto"): "inband",
    ("claude", "http"): "run-http",
    ("codex", "auto"): "codex",
    ("codex", "http"): "run-http",
}


def steady(text: str) -> str:
    """A tool's answer without what differs between any two runs: ids, times and commits."""
    return VOLATILE.sub(r'"\1":"*"', text)


def host_tools(told: Told) -> list[tuple[str, dict[str, Any]]]:
    names = {row["tool"] for row in told.receipts} | {"list_dir", "find_files", "search_files", "write_file"}
    return sorted((tool.name, tool.input_schema) for tool in told.offered if tool.name in names)


def rows(told: Told, *facts: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in facts) for row in told.receipts]


def check_the_work(told: Told, edge: str) -> None:
    assert told.finished.exit_code == 0, told.finished.err + told.finished.out
    report = told.finished.json()
    assert (report["ok"], report["receipts"]["verified"], report["edge"]) == (True, True, edge)
    assert (report["issue"]["state_before"], report["issue"]["state_after"]) == ("Todo", "In Review")
    assert [comment["body"] for comment in report["issue"]["comments"]] == ["Fixed é|\n“it”."]
    assert told.world.issue("DEMO-2")["state"] == "Todo"
    fixed = git(told.world.workspace("DEMO-1"), "show", "HEAD:greeting.py")
    assert fixed == GREETING.replace("Helo", "Hello")
    assert len(told.answers) == 14
    assert rows(told, "tool", "outcome", "code", "effect") == EXPECTED
    assert {row["edge"] for row in told.receipts} == {edge}


async def test_on_every_edge_the_same_issue_is_worked_with_the_same_tools_results_and_receipts(tmp_path: Path) -> None:
    runs = {(agent, edge): await told_by(agent, edge, tmp_path / f"{agent}-{edge}") for agent, edge in RUNS}
    for key, told in runs.items():
        check_the_work(told, RUNS[key])
    inband, http, codex, codex_exec = runs.values()
    assert host_tools(inband) == host_tools(http)
    # Codex hands a schema on in its own words, the same for both of its ways.
    assert [name for name, _ in host_tools(inband)] == [name for name, _ in host_tools(codex)]
    assert host_tools(codex) == host_tools(codex_exec)
    for other in (http, codex, codex_exec):
        assert [answer.tool for answer in inband.answers] == [answer.tool for answer in other.answers]
        assert [steady(answer.text) for answer in inband.answers] == [steady(answer.text) for answer in other.answers]
        assert rows(inband, *FACTS) == rows(other, *FACTS)
    assert [answer.is_error for answer in inband.answers] == [answer.is_error for answer in http.answers]
