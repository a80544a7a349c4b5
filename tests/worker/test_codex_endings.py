"""How a run of Codex ends: each way out has a stable reason, its receipts, and nothing left behind (AX-33, R-341)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.errors import Effect
from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.codex import CodexRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support.codex_runs import MODEL_KEY, CodexRun, fake_codex, steps
from tests.support.tools import a_tool, a_write_spec, never
from tests.worker.conftest import IsolationFactory

pytestmark = [pytest.mark.anyio, pytest.mark.system]

MakeRun = Callable[..., CodexRun]
DONE: dict[str, Any] = {"complete": {}}


@pytest.fixture
def make_run(isolate: IsolationFactory, folder: Path) -> MakeRun:
    """A run of the fake without a sandbox; `prompt` is made of steps."""

    def make(*parts: dict[str, Any], tools: Any = (), **changes: Any) -> CodexRun:
        return CodexRun(isolate(IsolationLevel.HOME), fake_codex(folder), tools, steps(*parts), **changes)

    return make


async def drive(run: CodexRun, **options: Any) -> AgentOutcome:
    with anyio.fail_after(40):
        return await CodexRuntime(**options).run(run.task)


def ending(outcome: AgentOutcome) -> tuple[str, str]:
    return outcome.state.value, outcome.reason


async def test_an_answer_after_the_agent_closed_its_input_is_dropped_and_the_receipt_stands(make_run: MakeRun) -> None:
    run = make_run(
        {"call": {"id": 0, "tool": "demo_write", "arguments": {}}},
        {"close_input": {}},
        {"hold": {}},
        tools=(),
        stall_timeout_seconds=0.3,
    )
    closed = anyio.Event()

    async def write(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await closed.wait()
        return ToolResult(structured={"done": True}, effect=Effect.REPORTED)

    run = CodexRun(
        run.isolation,
        run.task.settings.executable or Path(),
        [a_tool(write, spec=a_write_spec())],
        run.task.prompt,
        stall_timeout_seconds=0.3,
    )
    async with anyio.create_task_group() as tasks:

        async def release() -> None:
            while not run.facts("agent_warning"):
                await anyio.sleep(0.01)
            closed.set()

        tasks.start_soon(release)
        outcome = await drive(run)

    assert run.codes() == [("demo_write", None, "reported")]
    assert run.facts("call_result_dropped") == [{"call_id": "call-0", "receipt_id": "rc-1"}]
    assert ending(outcome) == ("failed", "stalled")


async def test_an_agent_that_dies_in_a_call_leaves_the_receipt_of_what_was_done(make_run: MakeRun) -> None:
    async def write(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await gone.wait()
        return ToolResult(structured={"done": True}, effect=Effect.REPORTED)

    gone = anyio.Event()
    run = make_run(
        {"stderr": {"text": f"panicked with {MODEL_KEY}"}},
        {"call": {"id": 0, "tool": "demo_write", "arguments": {}}},
        {"exit": {"code": 7}},
        tools=[a_tool(write, spec=a_write_spec())],
    )
    async with anyio.create_task_group() as tasks:

        async def release() -> None:
            pid = None
            while pid is None or Path(f"/proc/{pid}/fd").exists():
                pid = next((facts["pid"] for facts in run.facts("agent_started")), None)
                await anyio.sleep(0.01)
            gone.set()

        tasks.start_soon(release)
        outcome = await drive(run)

    assert (ending(outcome), outcome.exit_code) == (("failed", "agent_exited"), 7)
    assert outcome.detail == "the agent ended in the middle of its turn: panicked with [redacted]"
    assert run.codes() == [("demo_write", None, "reported")]
    assert run.facts("call_result_dropped") == [{"call_id": "call-0", "receipt_id": "rc-1"}]


async def test_an_outcome_that_the_agent_went_on_without_is_told_with_its_receipt(make_run: MakeRun) -> None:
    dropped = anyio.Event()

    async def write(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await dropped.wait()
        return ToolResult(effect=Effect.REPORTED)

    run = make_run(
        {"call": {"id": 0, "tool": "demo_write", "arguments": {}}},
        {"drop": {"id": 0}},
        {"notify": {"method": "warning", "message": "dropped"}},
        DONE,
        tools=[a_tool(write, spec=a_write_spec())],
    )
    async with anyio.create_task_group() as tasks:

        async def release() -> None:
            while not run.facts("agent_turn_completed"):
                await anyio.sleep(0.01)
            dropped.set()

        tasks.start_soon(release)
        outcome = await drive(run)

    assert run.facts("call_result_dropped") == [{"call_id": "call-0", "receipt_id": "rc-1"}]
    assert (run.codes(), ending(outcome)) == ([("demo_write", None, "reported")], ("succeeded", "completed"))


async def test_a_call_in_flight_is_no_silence_but_silence_is_a_stall(make_run: MakeRun) -> None:
    async def slow(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await anyio.sleep(0.9)  # three times as long as the agent may be silent
        return ToolResult()

    run = make_run(
        {"call": {"id": 0, "tool": "demo_get", "arguments": {}}},
        {"answer": {"id": 0}},
        {"expect": {"method": "never"}},
        tools=[a_tool(slow)],
        stall_timeout_seconds=0.3,
    )
    outcome = await drive(run)
    assert run.read_answer(0) == (True, {})
    assert (ending(outcome), outcome.detail) == (("failed", "stalled"), "the agent said nothing for 0.3 s")
    assert len(run.requests("turn/interrupt")) == 1


async def test_a_turn_is_bounded_even_while_a_call_runs(make_run: MakeRun) -> None:
    async def slow(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await anyio.sleep_forever()
        raise AssertionError

    run = make_run(
        {"call": {"id": 0, "tool": "demo_write", "arguments": {}}},
        {"expect": {"method": "never"}},
        tools=[a_tool(slow, spec=a_write_spec(timeout_seconds=1.0))],
        turn_timeout_seconds=0.3,
    )
    outcome = await drive(run)
    assert ending(outcome) == ("failed", "turn_timeout")
    assert run.codes() == [("demo_write", "timed_out", "unknown")]


@pytest.mark.parametrize(
    ("mode", "reason", "detail"),
    [
        ("deaf", "start_failed", "the agent did not get ready in time"),
        ("broken", "start_failed", "the agent ended before it answered initialize: error: cannot start"),
        ("toolless", "tools_missing", "thread/start: thread/start.dynamicTools requires experimentalApi capability"),
    ],
)
async def test_a_start_that_fails_says_why(make_run: MakeRun, mode: str, reason: str, detail: str) -> None:
    run = make_run(
        DONE,
        tools=[a_tool(never)],
        options={"command": f"codex -c fake={mode} app-server"},
        start_timeout_seconds=1.0 if mode == "deaf" else 20.0,
    )
    outcome = await drive(run)
    assert (outcome.state, outcome.reason, outcome.detail, outcome.turns) == (EndState.FAILED, reason, detail, 0)


@pytest.mark.parametrize("cwd", ["/etc", "{workspace}/../other", "{workspace}-2"])
async def test_a_command_outside_the_workspace_stops_the_run(make_run: MakeRun, folder: Path, cwd: str) -> None:
    where = cwd.format(workspace=folder / "workspace")
    run = make_run(
        {"notify": {"method": "item/started", "item": {"type": "commandExecution", "cwd": str(folder / "workspace")}}},
        {"notify": {"method": "item/started", "item": {"type": "commandExecution", "cwd": where}}},
        {"expect": {"method": "never"}},
    )
    outcome = await drive(run)
    assert ending(outcome) == ("failed", "stopped")
    assert [facts["workspace"] for facts in run.facts("boundary_violation")] == [str(folder / "workspace")]


@pytest.mark.parametrize(
    ("status", "info", "expected"),
    [
        ("failed", {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, ("failed", "rate_limited")),
        ("failed", "usageLimitExceeded", ("failed", "rate_limited")),
        ("failed", {"httpConnectionFailed": {"httpStatusCode": 401}}, ("failed", "agent_error")),
        ("failed", {"httpConnectionFailed": {"httpStatusCode": None}}, ("failed", "model_unavailable")),
        ("failed", "internalServerError", ("failed", "model_unavailable")),
        ("failed", {"activeTurnNotSteerable": "odd"}, ("failed", "agent_error")),
        ("failed", "aWordOfTomorrow", ("failed", "agent_error")),
        ("interrupted", None, ("cancelled", "stopped")),
        ("dreaming", None, ("failed", "no_result")),
    ],
)
async def test_the_end_of_a_turn_has_a_stable_reason(
    make_run: MakeRun, status: str, info: Any, expected: tuple[str, str]
) -> None:
    error = {"message": f"it said {MODEL_KEY}", "codexErrorInfo": info}
    run = make_run(
        {"notify": {"method": "error", "error": error, "willRetry": True}},
        {"complete": {"status": status, "error": None if info is None else error}},
    )
    outcome = await drive(run)
    assert ending(outcome) == expected
    assert MODEL_KEY not in repr((outcome, run.events))
    assert run.facts("agent_model_retry") == [{"message": "it said [redacted]"}]


@pytest.mark.parametrize("mode", ["willing", "stubborn"])
async def test_a_cancelled_run_leaves_no_process_and_closes_its_receipts(make_run: MakeRun, mode: str) -> None:
    async def for_ever(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    begun = anyio.Event()
    run = make_run(
        {"call": {"id": 0, "tool": "demo_write", "arguments": {}}},
        {"answer": {"id": 0}},
        tools=[a_tool(for_ever, spec=a_write_spec())],
        options={"command": f"codex -c fake={mode} app-server"},
    )
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive, run)
            await begun.wait()
            tasks.cancel_scope.cancel()

    heard = [{"turn_id": "turn-1", "status": "interrupted"}] if mode == "willing" else []
    assert run.facts("agent_turn_completed") == heard
    (started,) = run.facts("agent_started")
    assert not Path(f"/proc/{started['pid']}").exists()
    assert run.codes() == [("demo_write", "cancelled", "unknown")]
    assert len(run.requests("turn/interrupt")) == 1
