"""One conversation over each agent's edge: the same context, the same failures, and the conversation goes on
(A0-05, A0-08, A0-16, R-189, R-208, R-209)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.issue import Issue, NativeRef
from hostside.core.spec import Executor, Tool
from hostside.errors import REFUSED, Effect, FailureCode, ToolFailed, ToolRefused
from hostside.worker.claude import ClaudeRuntime
from hostside.worker.codex import CodexRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support.agent_bench import TOKEN, Bench, fake_claude_in, settings
from tests.support.codex_runs import CodexRun, fake_codex, steps
from tests.support.gateways import make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_post_spec, a_spec, a_tool
from tests.worker.conftest import IsolationFactory

pytestmark = [pytest.mark.anyio, pytest.mark.system]
ISSUE = Issue(
    id="I_kwDO-1",
    identifier="DEMO-1",
    title="Greeting is misspelled",
    state="Todo",
    dispatchable=True,
    native_ref=NativeRef({"itemId": "PVTI_1", "nested": [1, None, {"é": True}]}),
)
EDGES = ["codex", "run-http", "inband"]
Calls = Sequence[tuple[str, JsonObject]]


async def converse(edge: str, tools: Sequence[Tool], calls: Calls, isolate: IsolationFactory, folder: Path) -> Any:
    """Let the stand-in of the edge's agent make these calls one after another; return outcome and receipts."""
    log, isolation = MemoryReceipts(), isolate(IsolationLevel.HOME)
    gateway = make_gateway(tools, issue=ISSUE, edge=edge, receipts=log)
    if edge == "codex":
        parts: list[dict[str, Any]] = []
        for number, (tool, arguments) in enumerate(calls):
            parts += [{"call": {"id": number, "tool": tool, "arguments": arguments}}, {"answer": {"id": number}}]
        run = CodexRun(isolation, fake_codex(folder), (), steps(*parts, {"complete": {}}))
        with anyio.fail_after(60):
            return await CodexRuntime().run(replace(run.task, gateway=gateway)), log
    bench = Bench(isolation=isolation, settings=settings("claude", fake_claude_in(folder)), session_edge=edge)
    bench.gateways[TOKEN] = gateway
    asked = [{"do": "call", "tool": tool, "arguments": arguments} for tool, arguments in calls]
    return await bench.play(ClaudeRuntime(edge), [{"do": "init"}, *asked, {"do": "result"}]), log


@pytest.mark.parametrize("edge", EDGES)
async def test_a_tool_gets_the_issue_with_its_reference_whatever_the_arguments_say(
    edge: str, isolate: IsolationFactory, folder: Path
) -> None:
    execute = Recorder(ToolResult(structured={"id": "c-1"}, effect=Effect.REPORTED))
    body = '{"issue": {"id": "I_other", "native_ref": {"itemId": "PVTI_other"}}}'
    outcome, log = await converse(
        edge, [a_tool(execute, spec=a_post_spec())], [("demo_post", {"body": body})], isolate, folder
    )
    (context,) = execute.contexts
    assert (outcome.reason, execute.arguments) == ("completed", [{"body": body}])
    assert context.issue == ISSUE
    assert (context.issue.native_ref or NativeRef({})).open() == {"itemId": "PVTI_1", "nested": [1, None, {"é": True}]}
    assert (context.run_id, context.session_id, context.principal) == ("r-1", "s-1", "principal-of-s-1")
    # What belongs to the adapter is in nothing that is written down.
    assert "PVTI_1" not in repr((log.events, log.outcomes))


def raising(code: FailureCode) -> Executor:
    async def execute(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        details, wait = [{"seen": code.value}], 7_000 if code is FailureCode.TRACKER_RATE_LIMITED else None
        if code in REFUSED:
            raise ToolRefused(code, "No.", remedy="Mend it.", details=details, retry_after_ms=wait)
        effect = Effect.UNKNOWN if code is FailureCode.EFFECT_UNKNOWN else Effect.NONE
        raise ToolFailed(code, "No.", remedy="Mend it.", effect=effect, details=details, retry_after_ms=wait)

    return execute


#: What an adapter may meet. (A name that is not listed never leaves the real Claude Code, so it is no part of this.)
RAISED = (
    *(FailureCode.MISSING_TRACKER_SECRET, FailureCode.OUTSIDE_ISSUE, FailureCode.PRECONDITION_FAILED),
    *(FailureCode.TRACKER_REQUEST, FailureCode.TRACKER_STATUS, FailureCode.TRACKER_RESPONSE),
    *(FailureCode.TRACKER_PAGINATION, FailureCode.TRACKER_RATE_LIMITED, FailureCode.EFFECT_UNKNOWN),
    *(FailureCode.TOOL_FAILED, FailureCode.TIMED_OUT),
)


async def told_over(edge: str, isolate: IsolationFactory, folder: Path) -> tuple[str, list[tuple[Any, ...]]]:
    folder = folder / edge
    folder.mkdir()
    good = Recorder(ToolResult(structured={"fine": True}))
    tools = [a_tool(raising(code), spec=a_spec(f"raises_{code.value}")) for code in RAISED]
    calls: list[tuple[str, JsonObject]] = []
    for tool in tools:
        calls += [(tool.spec.name, {}), ("demo_good", {})]
    calls += [("demo_good", {"wrong": 1}), ("demo_good", {})]
    outcome, log = await converse(edge, [*tools, a_tool(good, name="demo_good")], calls, isolate, folder)
    assert len(good.arguments) == len(RAISED) + 1
    starts = {start.receipt_id: start for start in log.starts}
    facts = [
        (
            *(starts[end.receipt_id].tool, end.outcome.value, end.code and end.code.value, end.effect.value),
            *(end.result_sha256, starts[end.receipt_id].arguments_fingerprint),
        )
        for end in log.ends
    ]
    return outcome.reason, facts


async def test_each_failure_is_the_same_on_each_edge_and_the_conversation_goes_on(
    isolate: IsolationFactory, folder: Path
) -> None:
    told = {edge: await told_over(edge, isolate, folder) for edge in EDGES}
    assert {reason for reason, _ in told.values()} == {"completed"}
    expected = [*(code.value for code in RAISED), "invalid_arguments"]
    for edge in EDGES:
        facts = told[edge][1]
        assert [code for _, outcome, code, *_ in facts if outcome != "ok"] == expected
        assert [outcome for _, outcome, *_ in facts[1::2]] == ["ok"] * (len(RAISED) + 1)
        assert facts == told["codex"][1]
