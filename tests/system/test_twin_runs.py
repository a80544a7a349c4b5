"""The real Codex and the real Claude Code work the same issue: same tools, same results, same receipts (A0-01, R-209)."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_script import Call, OfferedTool, Say, Script, ToolAnswer
from tests.support.clients import find_claude, find_codex
from tests.support.host_world import GREETING, Finished, HostWorld, git, make_world
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
async def codex_model(play: Script) -> AsyncIterator[StubOpenAI]:
    async with StubOpenAI(play) as model:
        yield model


async def told_by(agent: str, folder: Path, play: Callable[[], Script] = script) -> Told:
    folder.mkdir()
    world = make_world(folder)
    executable = find_claude() if agent == "claude" else find_codex()
    make = claude_model if agent == "claude" else codex_model
    async with make(play()) as model:
        world.configure(
            f'[agent]\nkind = "{agent}"\nexecutable = "{executable}"\nbase_url = "{model.base_url}"\n'
            'key = "env:THE_MODEL_KEY"\n' + ('model = "gpt-5.5"\n' if agent == "codex" else "")
        )
        finished = await world.run_async("run", "DEMO-1", "--json", extra={"THE_MODEL_KEY": MODEL_KEY})
        assert model.unexpected == []
        offered, answers = model.offered_tools(), model.tool_results()
    return Told(offered, answers, finished, world.receipts(), world)


VOLATILE = re.compile(r'"(receipt_id|created_at|updated_at|commit|parent)":"[^"]*"')


def steady(text: str) -> str:
    """A tool's answer without what differs between any two runs: ids, times and commits."""
    return VOLATILE.sub(r'"\1":"*"', text)


async def test_both_agents_work_the_same_issue_with_the_same_tools_results_and_receipts(tmp_path: Path) -> None:
    claude, codex = [await told_by(agent, tmp_path / agent) for agent in ("claude", "codex")]
    for told in (claude, codex):
        assert told.finished.exit_code == 0, told.finished.err + told.finished.out
        report = told.finished.json()
        assert report["ok"] is True
        assert report["receipts"]["verified"] is True
        assert (report["issue"]["state_before"], report["issue"]["state_after"]) == ("Todo", "In Review")
        assert [comment["body"] for comment in report["issue"]["comments"]] == ["Fixed é|\n“it”."]
        assert told.world.issue("DEMO-2")["state"] == "Todo"
        fixed = git(told.world.workspace("DEMO-1"), "show", "HEAD:greeting.py")
        assert fixed == GREETING.replace("Helo", "Hello")
        assert len(told.answers) == 14

    def host_tools(told: Told) -> list[tuple[str, dict[str, Any]]]:
        names = {row["tool"] for row in told.receipts} | {"list_dir", "find_files", "search_files", "write_file"}
        return sorted((tool.name, tool.input_schema) for tool in told.offered if tool.name in names)

    assert [name for name, _ in host_tools(claude)] == [name for name, _ in host_tools(codex)]
    assert [answer.tool for answer in claude.answers] == [answer.tool for answer in codex.answers]
    assert [steady(answer.text) for answer in claude.answers] == [steady(answer.text) for answer in codex.answers]
    facts = (
        "tool",
        "outcome",
        "code",
        "effect",
        "arguments_fingerprint",
        "issue_id",
        "workspace_id",
        "registry_fingerprint",
    )
    both = [[tuple(row[name] for name in facts) for row in told.receipts] for told in (claude, codex)]
    assert both[0] == both[1]
    assert [row["code"] for row in claude.receipts if row["code"]] == [
        "invalid_arguments",
        "outside_issue",
        "precondition_failed",
        "outside_workspace",
    ]
    assert {row["edge"] for row in claude.receipts} == {"run-http"}
    assert {row["edge"] for row in codex.receipts} == {"codex"}
