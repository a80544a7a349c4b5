"""The loop of the guide works an edit to its end in each dialect, over HTTP, on a host of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.edges.function_shapes import Dialect
from tests.docs.test_examples import EXAMPLES, example
from tests.support.agent_script import Call, Say, Script, ToolAnswer
from tests.support.function_wire import DIALECTS
from tests.support.host_world import GREETING, HostWorld, make_world
from tests.support.scripted_model import ScriptedModel
from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_chat import StubChat
from tests.support.stub_openai import StubOpenAI

pytestmark = pytest.mark.anyio
KEY = "model-key-0123456789abcdef"
TASK = "Correct the greeting in greeting.py."
READ = Call("read_file", {"path": "greeting.py"}, native=True)


def edit(answers: list[ToolAnswer]) -> list[Call]:
    """Correct the file, and ask for what is refused in the same turn."""
    arguments = {"path": "greeting.py", "old_text": "Helo", "new_text": "Hello"}
    return [
        Call("edit_file", {**arguments, "expected_sha256": answers[0].json()["sha256"]}, native=True),
        Call("read_file", {"path": "../../etc/passwd"}, native=True),
        Call("read_files", {}, native=True),
        Call("read_file", '{"path": "greeting.py", "path": "x"}', native=True),
        READ,
    ]


def model_for(dialect: Dialect) -> tuple[ScriptedModel, str]:
    """Return the scripted provider and the path of its API."""
    script: Script = [[READ], edit, Say("Corrected.")]
    if dialect == "chat":
        return StubChat(script), "/v1"
    return (StubOpenAI(script) if dialect == "responses" else StubAnthropic(script)), "/v1"


def outcomes(answers: list[ToolAnswer]) -> list[str]:
    return [answer.json().get("failure", {"code": "ok"})["code"] for answer in answers]


def check_work(world: HostWorld, model: ScriptedModel, dialect: Dialect) -> None:
    expected = ["ok", "ok", "outside_workspace", "unknown_tool", "invalid_arguments", "ok"]
    answers = model.tool_results()
    assert (outcomes(answers), model.unexpected, model.requests_beyond_script) == (expected, [], 0)
    assert [answer.is_error for answer in answers] == (
        [code != "ok" for code in expected] if dialect == "messages" else [None] * 6
    )
    assert "Hello" in answers[-1].json()["text"]  # the read after the edit saw it
    assert (world.folder / "seed" / "greeting.py").read_text() == GREETING.replace("Helo", "Hello")
    receipts = world.receipts()
    assert sorted(receipt["code"] or "ok" for receipt in receipts) == sorted(expected)
    assert {receipt["edge"] for receipt in receipts} == {"functions"}
    offered = {tool.name: tool.input_schema for tool in model.offered_tools()}
    assert {"read_file", "edit_file", "git_commit"} <= offered.keys()
    assert offered["read_file"]["additionalProperties"] is False


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_loop_of_the_guide_works_in_each_dialect(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path)
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    loop: Any = example("agent_loop")
    model, path = model_for(dialect)
    with anyio.fail_after(60):
        async with model:
            said = await loop.work(world.folder / "seed", dialect, model.origin + path, KEY, "scripted", TASK)
    assert said == "Corrected."
    check_work(world, model, dialect)
    header = {"messages": ("x-api-key", KEY)}.get(dialect, ("authorization", f"Bearer {KEY}"))
    assert {received.headers[header[0]] for received in model.received} == {header[1]}


@pytest.mark.system
async def test_the_loop_runs_as_a_command_and_prints_the_last_words(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    model, path = model_for("chat")
    words = ["--dialect", "chat", "--base-url", "", "--model", "scripted", TASK]
    with anyio.fail_after(60):
        async with model:
            words[3] = model.origin + path
            done = await anyio.run_process(
                [sys.executable, str(EXAMPLES / "agent_loop.py"), *words],
                env=world.environment({"MODEL_KEY": KEY}),
                cwd=world.folder / "seed",
                stdin=subprocess.DEVNULL,
                check=False,
            )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Corrected.\n", b"")
    check_work(world, model, "chat")
