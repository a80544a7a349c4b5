"""The Codex runtime with the real Codex, inside a sandbox, against a scripted model (A0-03, A0-04, R-187, R-195)."""

import itertools
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.spec import Tool
from hostside.errors import Effect, FailureCode, ToolRefused
from hostside.worker.agent import AgentOutcome
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.codex import CodexRuntime
from hostside.worker.codex_launch import codex_binds
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, probe_levels
from hostside.worker.process_identity import children_of
from tests.support.agent_script import Call, HttpError, Say, Script
from tests.support.clients import find_codex
from tests.support.codex_runs import MODEL_KEY, MODEL_TOKEN, CodexRun
from tests.support.real_clients import CODE_MODE_MODEL, FUNCTION_CALL_MODEL, LISTING_MODEL
from tests.support.stub_openai import StubOpenAI
from tests.support.tools import a_post_spec, a_spec, a_tool, a_write_spec, schema

pytestmark = [pytest.mark.anyio, pytest.mark.system]

TEXT = schema({"text": {"type": "string", "maxLength": 10}}, ("text",))
MakeRun = Callable[..., CodexRun]


@pytest.fixture(scope="module")
def codex() -> Path:
    return find_codex()


@pytest.fixture(scope="module")
def sandbox() -> None:
    status = probe_levels().status(IsolationLevel.BWRAP)
    if not status.available:
        pytest.skip(f"isolation level bwrap not available: {status.reason}")


@pytest.fixture
def make_run(codex: Path, sandbox: None) -> Iterator[MakeRun]:
    """A run inside bwrap; later runs of a test share its workspace and home."""
    with tempfile.TemporaryDirectory(prefix="hostside-test-", ignore_cleanup_errors=True) as name:
        workspace, home = Path(name, "workspace"), Path(name, "home")
        workspace.mkdir()
        home.mkdir(mode=0o700)

        def make(stub: StubOpenAI, *tools: Tool, **changes: Any) -> CodexRun:
            isolation = RunIsolation(
                level=IsolationLevel.BWRAP,
                workspace=workspace,
                home=home,
                environment=EnvironmentSource(base={"LANG": "C.UTF-8"}),
                ro_binds=codex_binds(codex),
            )
            chosen = {"model": CODE_MODE_MODEL if stub.code_mode else FUNCTION_CALL_MODEL} | changes
            return CodexRun(isolation, codex, tools, "Do what the script says.", model_base_url=stub.base_url, **chosen)

        yield make


async def drive(run: CodexRun) -> tuple[str, str]:
    with anyio.fail_after(90):
        outcome = await CodexRuntime().run(run.task)
    return outcome.state.value, outcome.reason


async def echo(arguments: JsonObject, _context: CallContext) -> ToolResult:
    return ToolResult(structured={"text": arguments.get("text", "")})


async def post(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    return ToolResult(structured={"id": "c-1"}, effect=Effect.REPORTED)


async def refuse(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    raise ToolRefused(FailureCode.OUTSIDE_ISSUE, "Not this run's comment.", remedy="Use your own.")


CONVERSATION: Script = [
    [Call("demo_get", {"text": "x" * 11}), Call("demo_get", "[1]"), Call("demo_missing"), Call("demo_refuse")],
    [Call("demo_get", {"text": "one"}), Call("demo_post", {"body": "hello"})],
    Say("done"),
]


@pytest.mark.parametrize("code_mode", [False, True], ids=["function-calls", "code-mode"])
async def test_every_outcome_reaches_the_model_and_leaves_its_receipt(make_run: MakeRun, code_mode: bool) -> None:
    script = list(CONVERSATION)
    if code_mode:  # a script that calls what does not exist, or is no object, is an error of its own
        script[0] = [Call("demo_get", {"text": "x" * 11}), Call("demo_refuse")]
    async with StubOpenAI(script, code_mode=code_mode) as model:
        run = make_run(
            model,
            a_tool(echo, input_schema=TEXT),
            a_tool(refuse, spec=a_spec("demo_refuse")),
            a_tool(post, spec=a_post_spec()),
        )
        (run.isolation.workspace / "AGENTS.md").write_text("MARK-OF-THE-REPOSITORY")
        project = run.isolation.workspace / ".codex"
        project.mkdir()
        (project / "config.toml").write_text('developer_instructions = "MARK-OF-THE-REPOSITORY"\n')
        ended = await drive(run)

    assert (ended, model.requests_beyond_script, model.unexpected) == (("succeeded", "completed"), 0, [])
    read = [(answer.tool, answer.text) for answer in model.tool_results()]
    codes = [(tool, json.loads(text).get("failure", {}).get("code")) for tool, text in read if text.startswith("{")]
    invalid = [("demo_get", "invalid_arguments")] * (1 if code_mode else 2)
    assert codes == [*invalid, ("demo_refuse", "outside_issue"), ("demo_get", None), ("demo_post", None)]
    assert [text for tool, text in read if tool == "demo_missing"] == (
        [] if code_mode else ["unsupported call: demo_missing"]
    )
    assert sorted(run.codes(), key=str) == sorted(
        [
            *((tool, code, "none") for tool, code in invalid),
            ("demo_refuse", "outside_issue", "none"),
            ("demo_get", None, "none"),
            ("demo_post", None, "reported"),
        ],
        key=str,
    )
    assert "MARK-OF-THE-REPOSITORY" not in json.dumps(model.requests)
    assert "Tools of Hostside, bound to issue DEMO-1" in json.dumps(model.requests[0])
    assert [received.headers["authorization"] for received in model.received] == [f"Bearer {MODEL_KEY}"] * 3
    assert run.facts("call_result_dropped") == []
    assert run.facts("agent_message") == [{"text": "done"}]


@pytest.mark.parametrize("name", [FUNCTION_CALL_MODEL, LISTING_MODEL, CODE_MODE_MODEL])
async def test_the_largest_result_reaches_the_model_whole(make_run: MakeRun, name: str) -> None:
    async def large(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        return ToolResult(structured={"text": "é" * 5_000 + "word " * 5_996})

    async with StubOpenAI([Call("demo_get"), Say("done")], code_mode=name == CODE_MODE_MODEL) as model:
        run = make_run(model, a_tool(large), model=name)
        assert await drive(run) == ("succeeded", "completed")
    (answer,) = model.tool_results()
    assert len(answer.text.encode()) == 39_991
    assert answer.json() == {"text": "é" * 5_000 + "word " * 5_996}


async def test_an_agent_killed_in_a_call_leaves_a_receipt_an_outcome_and_no_process(make_run: MakeRun) -> None:
    killed = anyio.Event()
    family: list[int] = []

    async def write(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        (started,) = run.facts("agent_started")
        pid = int(str(started["pid"]))
        family.extend(_family(pid))
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(20):
            while any(Path(f"/proc/{member}/fd").exists() for member in family[1:]):
                await anyio.sleep(0.01)
        killed.set()
        return ToolResult(structured={"done": True}, effect=Effect.REPORTED)

    async with StubOpenAI([Call("demo_write"), Say("never")]) as model:
        run = make_run(model, a_tool(write, spec=a_write_spec(timeout_seconds=30.0)))
        outcome = await _outcome(run)

    assert (outcome.state.value, outcome.reason, outcome.exit_code) == ("failed", "agent_exited", 128 + signal.SIGKILL)
    assert (killed.is_set(), run.codes()) == (True, [("demo_write", None, "reported")])
    assert len(family) >= 3  # bwrap, its first process inside, Codex
    assert [member for member in family if Path(f"/proc/{member}").exists()] == []
    assert run.facts("call_result_dropped")[0]["receipt_id"] == "rc-1"


async def _outcome(run: CodexRun) -> AgentOutcome:
    with anyio.fail_after(90):
        return await CodexRuntime().run(run.task)


def _family(pid: int) -> list[int]:
    return [pid, *itertools.chain.from_iterable(_family(child) for child in children_of(pid))]


async def test_a_script_left_running_loses_its_outcome_and_that_is_told(make_run: MakeRun) -> None:
    ended = anyio.Event()

    async def slow(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        with anyio.fail_after(20):
            while not run.facts("agent_turn_completed"):
                await anyio.sleep(0.01)
        ended.set()
        return ToolResult(structured={"done": True}, effect=Effect.REPORTED)

    source = '// @exec: {"yield_time_ms": 500}\ntext(await tools.demo_write({}));'
    async with StubOpenAI([Call("exec", source, native=True), Say("done early")], code_mode=True) as model:
        run = make_run(model, a_tool(slow, spec=a_write_spec(timeout_seconds=30.0)))
        assert await drive(run) == ("succeeded", "completed")

    assert (ended.is_set(), run.codes()) == (True, [("demo_write", None, "reported")])
    assert [facts["receipt_id"] for facts in run.facts("call_result_dropped")] == ["rc-1"]


async def test_a_resumed_thread_keeps_its_history_and_its_tools(make_run: MakeRun) -> None:
    tool = a_tool(echo, input_schema=TEXT)
    async with StubOpenAI([Call("demo_get", {"text": "first"}), Say("once")]) as model:
        first = await _outcome(make_run(model, tool))
    async with StubOpenAI([Call("demo_get", {"text": "second"}), Say("twice")]) as model:
        run = make_run(model, tool, a_tool(name="demo_new"), resume=first.agent_session_id)
        second = await _outcome(run)

    assert (first.reason, second.reason, second.agent_session_id) == ("completed", "completed", first.agent_session_id)
    assert [answer.text for answer in model.tool_results()] == ['{"text":"first"}', '{"text":"second"}']
    offered = {tool.name for tool in model.offered_tools()}
    # What was listed later is not offered: the tools belong to the thread (so the worker resumes under one snapshot).
    assert ("demo_get" in offered, "demo_new" in offered) == (True, False)
    assert (first.usage, second.usage) == (USAGE, USAGE)


USAGE = {
    "input_tokens": 200,
    "cached_input_tokens": 80,
    "cache_write_input_tokens": 0,
    "output_tokens": 40,
    "reasoning_output_tokens": 10,
    "total_tokens": 240,
}


async def test_the_shell_inside_does_not_get_the_key_and_reaches_only_the_model(make_run: MakeRun) -> None:
    probe = "env; cat /proc/net/route; ls /root /work; echo made > made.txt; pwd"
    async with StubOpenAI([Call("exec_command", {"cmd": probe}, native=True), Say("done")]) as model:
        run = make_run(model)
        assert await drive(run) == ("succeeded", "completed")
    (answer,) = model.tool_results()
    assert (MODEL_KEY in answer.text, MODEL_TOKEN in answer.text) == (False, False)
    assert str(run.isolation.workspace) in answer.text
    assert (run.isolation.workspace / "made.txt").read_text() == "made\n"
    (told,) = run.facts("agent_native_tool")
    assert (told["tool"], told["exit_code"], told["cwd"]) == ("exec_command", 0, str(run.isolation.workspace))


async def test_a_command_that_works_elsewhere_stops_the_run(make_run: MakeRun) -> None:
    command = Call("exec_command", {"cmd": "pwd", "workdir": "/tmp"}, native=True)
    async with StubOpenAI([command, Say("never mind")]) as model:
        run = make_run(model)
        assert await drive(run) == ("failed", "stopped")
    assert run.facts("boundary_violation") == [{"cwd": "/tmp", "workspace": str(run.isolation.workspace)}]


async def test_without_native_tools_only_the_hosts_are_left(make_run: MakeRun) -> None:
    async with StubOpenAI([Say("done")]) as model:
        run = make_run(model, a_tool(echo), model=LISTING_MODEL, native_tools="off")
        assert await drive(run) == ("succeeded", "completed")
    assert [tool.name for tool in model.offered_tools()] == ["request_user_input", "demo_get"]


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "agent_error"), (429, "rate_limited"), (500, "model_unavailable")]
)
async def test_a_provider_that_keeps_failing_ends_the_run_with_its_reason(
    make_run: MakeRun, status: int, reason: str
) -> None:
    async with StubOpenAI(itertools.repeat(HttpError(status))) as model:
        run = make_run(model)
        assert await drive(run) == ("failed", reason)
    assert len(model.requests) <= 16
