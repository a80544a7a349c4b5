"""What a run was started with stays, whatever becomes of the configuration meanwhile; the next run sees the change. And a
finished run leaves nothing of the host's in the checkout (A0-12, AX-20, R-021, R-022, R-095)."""

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.agent_script import Call, OfferedTool, Say, Script, ToolAnswer
from tests.support.clients import find_claude, find_codex
from tests.support.host_world import HostWorld, git, make_world
from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_openai import StubOpenAI

pytestmark = [pytest.mark.anyio, pytest.mark.system]
MODEL_KEY = "model-key-0123456789abcdef"
Model: TypeAlias = StubAnthropic | StubOpenAI
MODELS: dict[str, Any] = {"claude": StubAnthropic, "codex": StubOpenAI}
FIND = {"claude": find_claude, "codex": find_codex}


def configure(world: HostWorld, agent: str, model: Model) -> None:
    world.configure(
        f'[agent]\nkind = "{agent}"\nexecutable = "{FIND[agent]()}"\nbase_url = "{model.base_url}"\n'
        'key = "env:THE_MODEL_KEY"\n' + ('model = "gpt-5.5"\n' if agent == "codex" else "")
    )


def offered(model: Model, request: int) -> list[OfferedTool]:
    """The host's own tools as the client showed them to the model with this request."""
    kept = list(model.received)
    model.received[:] = [kept[request]]
    try:
        return sorted(tool for tool in model.offered_tools() if tool.name in HOST_TOOLS)
    finally:
        model.received[:] = kept


TRACKER = {f"file_issue_{word}" for word in ("comment_add", "comment_update", "comments", "get", "move", "states")}
FILES = {"read_file", "list_dir", "find_files", "search_files", "write_file", "edit_file"}
HOST_TOOLS = TRACKER | FILES | {"git_status", "git_diff", "git_add", "git_commit"}


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_a_running_agent_keeps_its_tools_and_its_tracker_and_the_next_run_has_the_new_ones(
    agent: str, tmp_path: Path
) -> None:
    world = make_world(tmp_path)
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_bytes(world.tracker.read_bytes())

    def reconfigure(_answers: list[ToolAnswer]) -> list[Call]:
        text = world.config.read_text(encoding="utf-8")
        text = text.replace(str(world.tracker), str(elsewhere)).replace('tools = ["files", "git"]', "tools = []")
        world.config.write_text(text, encoding="utf-8")
        return [Call("read_file", {"path": "greeting.py"}), Call("file_issue_comment_add", {"body": "after"})]

    before: Script = [[Call("read_file", {"path": "greeting.py"})], reconfigure, Say("done")]
    async with MODELS[agent](before) as model:
        configure(world, agent, model)
        first = await world.run_async("run", "DEMO-1", "--json", extra={"THE_MODEL_KEY": MODEL_KEY})
        assert first.exit_code == 0, first.err + first.out
        shown = [offered(model, number) for number in (0, -1)]
        answers = [answer.json() for answer in model.tool_results()]
    assert {tool.name for tool in shown[0]} == HOST_TOOLS
    assert shown[0] == shown[1]
    assert answers[0] == answers[1]
    assert [comment["body"] for comment in world.issue("DEMO-1")["comments"]] == ["after"]
    assert "after" not in elsewhere.read_text(encoding="utf-8")

    after: Script = [[Call("file_issue_comment_add", {"body": "in the new tracker"})], Say("done")]
    async with MODELS[agent](after) as model:
        text = world.config.read_text(encoding="utf-8").partition("[agent]")[0]
        world.config.write_text(text, encoding="utf-8")
        configure(world, agent, model)
        second = await world.run_async("run", "DEMO-2", "--json", extra={"THE_MODEL_KEY": MODEL_KEY})
        assert second.exit_code == 0, second.err + second.out
        assert {tool.name for tool in offered(model, 0)} == TRACKER
    assert "in the new tracker" in elsewhere.read_text(encoding="utf-8")
    assert "in the new tracker" not in world.tracker.read_text(encoding="utf-8")


async def run_once(agent: str, world: HostWorld) -> None:
    """Let the agent read, commit a file and move its issue."""
    steps = [
        Call("file_issue_get"),
        Call("write_file", {"path": "note.txt", "content": "n\n"}),
        Call("git_add", {"paths": ["note.txt"]}),
        Call("git_commit", {"message": "Note"}),
        Call("file_issue_move", {"target_state": "Done"}),
    ]
    if agent == "scripted":
        script = world.folder / "script.json"
        script.write_text(json.dumps([{"tool": step.tool, "arguments": step.arguments} for step in steps]))
        world.configure(f'[agent]\nkind = "scripted"\nscript = "{script}"\n')
        ended = world.run("run", "DEMO-1", "--json")
    else:
        async with MODELS[agent]([[step] for step in steps] + [Say("done")]) as model:
            configure(world, agent, model)
            ended = await world.run_async("run", "DEMO-1", "--json", extra={"THE_MODEL_KEY": MODEL_KEY})
    assert ended.exit_code == 0, ended.err + ended.out
    assert ended.json()["issue"]["state_after"] == "Done"


@pytest.mark.parametrize("agent", ["scripted", "claude", "codex"])
async def test_after_a_run_the_checkout_holds_what_was_committed_and_nothing_else(agent: str, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    await run_once(agent, world)
    checkout = world.workspace("DEMO-1")
    assert sorted(os.listdir(checkout)) == [".git", "greeting.py", "note.txt"]
    assert git(checkout, "status", "--porcelain", "--ignored") == ""
    ours = ("hostside", "mcp", "claude", "codex", "receipt", "hst_", ".sock", ".lock", ".db")
    inside = [str(path.relative_to(checkout)) for path in checkout.rglob("*")]
    assert [path for path in inside if any(word in path.lower() for word in ours)] == []
    assert [path for path in checkout.parent.iterdir() if path.name not in ("DEMO-1", ".locks")] == []
