"""The Codex runtime against a fake app-server (A0-03, A0-04, A0-05, AX-33)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.edges.codex import dynamic_tools
from hostside.errors import Effect
from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.codex import CodexRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support.codex_runs import MODEL_KEY, CodexRun, fake_codex, steps
from tests.support.tools import Recorder, a_tool, a_write_spec, never, schema
from tests.worker.conftest import IsolationFactory

pytestmark = [pytest.mark.anyio, pytest.mark.system]

MakeRun = Callable[..., CodexRun]
DONE = {"complete": {}}
TEXT = schema({"text": {"type": "string"}}, ("text",))


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


async def test_a_thread_starts_with_exactly_the_listed_tools_and_the_key_is_in_no_argument(make_run: MakeRun) -> None:
    run = make_run(DONE, tools=[a_tool(input_schema=TEXT), a_tool(name="demo_other")])
    outcome = await drive(run)

    assert outcome == AgentOutcome(
        state=EndState.SUCCEEDED, reason="completed", agent_session_id="thread-1", exit_code=0, turns=1
    )
    (initialize,), (thread,) = run.requests("initialize"), run.requests("thread/start")
    assert initialize["capabilities"] == {"experimentalApi": True, "requestAttestation": False}
    assert thread["dynamicTools"] == dynamic_tools(run.gateway.session)
    assert [tool["name"] for tool in thread["dynamicTools"]] == ["demo_get", "demo_other"]
    assert (thread["cwd"], thread["sandbox"], thread["approvalPolicy"]) == (
        str(run.isolation.workspace),
        "workspace-write",
        "never",
    )
    start = run.report()[0]
    assert start["environment"]["HOSTSIDE_MODEL_KEY"] == MODEL_KEY
    assert MODEL_KEY not in json.dumps(start["argv"])
    assert "mcp_servers" not in json.dumps(start["argv"])
    assert [entry["got"].get("method") for entry in run.report()[1:4]] == ["initialize", "initialized", "thread/start"]


async def test_without_tools_the_field_is_absent(make_run: MakeRun) -> None:
    run = make_run(DONE)
    await drive(run)
    (thread,) = run.requests("thread/start")
    assert "dynamicTools" not in thread


async def test_native_tools_off_takes_the_shell_away(make_run: MakeRun) -> None:
    run = make_run(DONE, native_tools="off")
    await drive(run)
    (thread,), (turn,) = run.requests("thread/start"), run.requests("turn/start")
    assert (thread["environments"], turn["environments"]) == ([], [])
    assert {"features.shell_tool=false", "features.unified_exec=false"} <= set(run.report()[0]["argv"])


async def test_refused_calls_are_answered_and_the_thread_goes_on(make_run: MakeRun) -> None:
    execute = Recorder(ToolResult(structured={"n": 1}))
    run = make_run(
        {"call": {"id": 0, "tool": "demo_gett", "arguments": {}}},
        {"answer": {"id": 0}},
        {"call": {"id": 1, "tool": "demo_get", "arguments": {"text": 5}}},
        {"answer": {"id": 1}},
        {"call": {"id": 2, "tool": "demo_get", "arguments": ["x"]}},
        {"answer": {"id": 2}},
        {"call": {"id": 3, "tool": "demo_get", "arguments": {"text": "ok"}}},
        {"answer": {"id": 3}},
        DONE,
        tools=[a_tool(execute, input_schema=TEXT)],
    )
    outcome = await drive(run)

    told = [run.read_answer(number) for number in range(4)]
    assert [(success, value.get("failure", {}).get("code")) for success, value in told] == [
        (False, "unknown_tool"),
        (False, "invalid_arguments"),
        (False, "invalid_arguments"),
        (True, None),
    ]
    assert told[0][1]["failure"]["details"][-1] == {"supported": ["demo_get"]}
    assert told[3][1] == {"n": 1}
    assert execute.arguments == [{"text": "ok"}]
    assert run.codes() == [
        ("demo_gett", "unknown_tool", "none"),
        ("demo_get", "invalid_arguments", "none"),
        ("demo_get", "invalid_arguments", "none"),
        ("demo_get", None, "none"),
    ]
    assert ending(outcome) == ("succeeded", "completed")


async def test_a_slow_call_does_not_hold_up_another_and_each_is_answered_on_its_id(make_run: MakeRun) -> None:
    second = anyio.Event()

    async def slow(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await second.wait()
        return ToolResult(structured={"who": "slow"})

    async def quick(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        second.set()
        return ToolResult(structured={"who": "quick"})

    run = make_run(
        {"call": {"id": 0, "tool": "demo_slow", "arguments": {}, "call_id": "same"}},
        {"call": {"id": 1, "tool": "demo_quick", "arguments": {}, "call_id": "same"}},
        {"answer": {"id": 1}},
        {"answer": {"id": 0}},
        DONE,
        tools=[a_tool(slow, name="demo_slow"), a_tool(quick, name="demo_quick")],
    )
    outcome = await drive(run)

    assert (run.read_answer(0), run.read_answer(1)) == ((True, {"who": "slow"}), (True, {"who": "quick"}))
    assert list(run.answers()) == [1, 0]
    assert ending(outcome) == ("succeeded", "completed")


CALL = '{"id":%s,"method":"item/tool/call","params":{"threadId":"t","turnId":"u","callId":"c","namespace":null,%s}}'
FUZZ = {
    "a repeated key": '"tool":"demo_get","arguments":{"text":"a","text":"b"}',
    "NaN": '"tool":"demo_get","arguments":{"text":NaN}',
    "an overflowing number": '"tool":"demo_get","arguments":{"text":1e400}',
    "a lone surrogate": '"tool":"demo_get","arguments":{"text":"\\ud800"}',
    "deep nesting": '"tool":"demo_get","arguments":' + "[" * 10_000 + "]" * 10_000,
    "an endless integer": '"tool":"demo_get","arguments":{"text":' + "9" * 5_000 + "}",
    "no arguments": '"tool":"demo_get"',
    "null": '"tool":"demo_get","arguments":null',
    "a text": '"tool":"demo_get","arguments":"{}"',
}


async def test_strange_frames_get_a_typed_refusal_and_the_edge_stays_alive(make_run: MakeRun) -> None:
    lines = [(CALL % (number, body)).encode() for number, body in enumerate(FUZZ.values())]
    lines.append((CALL % (len(lines), '"tool":"demo_get","arguments":{"text":"@"}')).encode().replace(b"@", b"\xff"))
    parts: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        parts += [{"raw": {"hex": line.hex()}}, {"answer": {"id": number}}]
    for junk in (b"{oops", b"[]", b"", b"7", b'{"id":true}', b'{"params":{}}', b"\xff\xfe"):
        parts.append({"raw": {"hex": junk.hex()}})
    run = make_run(
        *parts,
        {"call": {"id": 99, "tool": "demo_get", "filler": 5 << 20}},
        {"answer": {"id": 99}},
        DONE,
        tools=[a_tool(Recorder(), input_schema=TEXT, free_text=("/text",))],
    )
    outcome = await drive(run)

    told = [run.read_answer(number) for number in range(len(lines))]
    assert [(success, value["failure"]["code"]) for success, value in told] == [(False, "invalid_arguments")] * len(told)
    assert (run.read_answer(99), ending(outcome)) == ((True, {}), ("succeeded", "completed"))


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("item/commandExecution/requestApproval", {"result": {"decision": "decline"}}),
        ("item/fileChange/requestApproval", {"result": {"decision": "decline"}}),
        ("item/permissions/requestApproval", {"result": {"permissions": {}, "scope": "turn"}}),
        ("mcpServer/elicitation/request", {"result": {"action": "decline", "content": None, "_meta": None}}),
        ("item/tool/requestUserInput", {"result": {"answers": {}}}),
        ("dynamic_tool_call", {"error": {"code": -32601, "message": "this host does not answer dynamic_tool_call"}}),
    ],
)
async def test_what_nobody_can_decide_is_answered_at_once(
    make_run: MakeRun, method: str, answer: dict[str, Any]
) -> None:
    run = make_run({"ask": {"id": 0, "method": method, "params": {"questions": []}}}, {"answer": {"id": 0}}, DONE)
    outcome = await drive(run)
    assert (run.answers()[0], ending(outcome)) == ({"id": 0, **answer}, ("succeeded", "completed"))
    assert run.facts("agent_request_declined") == [{"method": method}]


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
        while run.gateway.session and not gone.is_set():
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


async def test_ten_megabytes_in_a_line_and_noise_on_stderr_disturb_nothing(make_run: MakeRun) -> None:
    execute = Recorder()
    run = make_run(
        {"stderr": {"text": '{"id":0,"result":{}}\n' * 2_000}},
        {"call": {"id": 0, "tool": "demo_get", "filler": 10 * 1024 * 1024}},
        {"answer": {"id": 0}},
        DONE,
        tools=[a_tool(execute, input_schema=TEXT, free_text=("/text",))],
    )
    outcome = await drive(run)
    assert [len(str(arguments["text"])) for arguments in execute.arguments] == [10 * 1024 * 1024]
    assert ending(outcome) == ("succeeded", "completed")


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


async def test_a_thread_is_resumed_by_its_id_and_keeps_the_tools_it_has(make_run: MakeRun) -> None:
    run = make_run(DONE, tools=[a_tool(never)], resume="thread-7")
    outcome = await drive(run)
    (resumed,) = run.requests("thread/resume")
    assert (resumed["threadId"], resumed["sandbox"], "dynamicTools" in resumed) == ("thread-7", "workspace-write", False)
    assert (outcome.agent_session_id, run.requests("thread/start")) == ("thread-7", [])


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
    assert run.facts("agent_error") == [{"message": "it said [redacted]", "will_retry": True}]


async def test_usage_is_what_this_process_used_with_its_sub_agents(make_run: MakeRun) -> None:
    def counts(total: int, last: int, **params: Any) -> dict[str, Any]:
        usage = {"total": {"totalTokens": total, "inputTokens": total}, "last": {"totalTokens": last, "inputTokens": last}}
        return {"notify": {"method": "thread/tokenUsage/updated", "tokenUsage": usage, **params}}

    run = make_run(counts(1_010, 10), counts(1_030, 20), counts(5, 5, threadId="sub"), DONE, resume="thread-1")
    outcome = await drive(run)
    assert (outcome.usage["total_tokens"], outcome.usage["input_tokens"], outcome.usage["output_tokens"]) == (35, 35, 0)


async def test_another_turn_follows_only_when_asked_for_and_never_beyond_the_limit(make_run: MakeRun) -> None:
    asked: list[str] = []

    async def next_prompt(outcome: AgentOutcome) -> str | None:
        asked.append(outcome.reason)
        return steps(DONE)

    run = make_run(DONE, max_turns=2)
    outcome = await drive(run, next_prompt=next_prompt)
    assert (ending(outcome), outcome.turns, asked) == (("failed", "max_turns"), 2, ["completed", "completed"])
    assert len(run.requests("turn/start")) == 2


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

    (started,) = run.facts("agent_started")
    assert not Path(f"/proc/{started['pid']}").exists()
    assert run.codes() == [("demo_write", "cancelled", "unknown")]
    assert len(run.requests("turn/interrupt")) == 1


async def test_a_configuration_left_in_the_agents_home_is_removed(make_run: MakeRun) -> None:
    run = make_run(DONE)
    left = run.isolation.home / ".codex" / "config.toml"
    left.parent.mkdir()
    left.write_text('[mcp_servers.mine]\ncommand = "sh"\n')
    await drive(run)
    assert (left.exists(), run.facts("agent_configuration_removed")) == (False, [{"file": "config.toml"}])


async def test_a_link_in_place_of_the_agents_folder_stops_the_start(make_run: MakeRun, folder: Path) -> None:
    run = make_run(DONE)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text("keep")
    (run.isolation.home / ".codex").symlink_to(elsewhere)
    outcome = await drive(run)
    assert (ending(outcome), run.events) == (("failed", "start_failed"), [])
    assert (elsewhere / "config.toml").read_text() == "keep"
