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
from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.codex import CodexRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support.codex_runs import MODEL_KEY, MODEL_TOKEN, CodexRun, fake_codex, steps
from tests.support.tools import Recorder, a_tool, never, schema
from tests.worker.conftest import IsolationFactory

pytestmark = [pytest.mark.anyio, pytest.mark.system]

MakeRun = Callable[..., CodexRun]
DONE: dict[str, Any] = {"complete": {}}
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
    assert start["environment"]["HOSTSIDE_MODEL_TOKEN"] == MODEL_TOKEN
    assert MODEL_TOKEN not in json.dumps(start["argv"])
    assert MODEL_KEY not in json.dumps(start)
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
    assert [(success, value["failure"]["code"]) for success, value in told] == [(False, "invalid_arguments")] * len(
        told
    )
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


async def test_a_thread_is_resumed_by_its_id_and_keeps_the_tools_it_has(make_run: MakeRun) -> None:
    run = make_run(DONE, tools=[a_tool(never)], resume="thread-7")
    outcome = await drive(run)
    (resumed,) = run.requests("thread/resume")
    assert (resumed["threadId"], resumed["sandbox"], "dynamicTools" in resumed) == (
        "thread-7",
        "workspace-write",
        False,
    )
    assert (outcome.agent_session_id, run.requests("thread/start")) == ("thread-7", [])


async def test_the_agents_own_tools_are_kept_as_it_reports_them(make_run: MakeRun, folder: Path) -> None:
    command = {"command": f"echo {MODEL_KEY}", "cwd": str(folder / "workspace"), "status": "completed", "exitCode": 0}
    patch = {"changes": [{"path": "a.py", "diff": "+x"}], "status": "completed"}
    run = make_run(
        {"notify": {"method": "item/completed", "item": {"type": "commandExecution", "id": "i-1", **command}}},
        {"notify": {"method": "item/completed", "item": {"type": "fileChange", "id": "i-2", **patch}}},
        {"notify": {"method": "item/completed", "item": {"type": "agentMessage", "id": "i-3", "text": "done"}}},
        DONE,
    )
    await drive(run)
    told = {"tool": "exec_command", "tool_use_id": "i-1", "command": "echo [redacted]", "cwd": command["cwd"]}
    assert run.facts("agent_native_tool") == [
        {**told, "status": "completed", "exit_code": 0},
        {"tool": "apply_patch", "tool_use_id": "i-2", "paths": ["a.py"], "status": "completed"},
    ]
    assert (run.facts("agent_message"), run.receipts.events) == ([{"text": "done"}], [])


async def test_usage_is_what_this_process_used_with_its_sub_agents(make_run: MakeRun) -> None:
    def counts(total: int, last: int, **params: Any) -> dict[str, Any]:
        usage = {
            "total": {"totalTokens": total, "inputTokens": total},
            "last": {"totalTokens": last, "inputTokens": last},
        }
        return {"notify": {"method": "thread/tokenUsage/updated", "tokenUsage": usage, **params}}

    used = (counts(1_010, 10), counts(1_030, 20), counts(5, 5, threadId="sub"))
    for parts in ((counts(1_000, 30, turnId="turn-of-before"), *used), used):
        outcome = await drive(make_run(*parts, DONE, resume="thread-1"))
        assert (outcome.usage["total_tokens"], outcome.usage["output_tokens"]) == (35, 0)


async def test_another_turn_follows_only_when_asked_for_and_never_beyond_the_limit(make_run: MakeRun) -> None:
    asked: list[str] = []

    async def next_prompt(outcome: AgentOutcome) -> str | None:
        asked.append(outcome.reason)
        return steps(DONE)

    run = make_run(DONE, max_turns=2)
    outcome = await drive(run, next_prompt=next_prompt)
    assert (ending(outcome), outcome.turns, asked) == (("failed", "max_turns"), 2, ["completed", "completed"])
    assert len(run.requests("turn/start")) == 2


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
    assert (ending(outcome), [name for name, _ in run.events]) == (("failed", "start_failed"), ["agent_ended"])
    assert (elsewhere / "config.toml").read_text() == "keep"
