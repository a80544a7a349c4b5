"""The call path of design §4: order, permits, receipts, replays, bounds (AX-06, AX-10, AX-14, AX-25, AX-26, A1-17, A1-18)."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolCall, ToolResult, Workspace
from hostside.core.canonical import JsonObject, digest, parse
from hostside.core.locality import NO_REACH, Locality
from hostside.core.policy import Mode, Policy, Profile
from hostside.core.receipt import ApprovalAnswer, ApprovalDecision, ApprovalRequest, Observation, Outcome
from hostside.core.scope import PathTarget
from hostside.core.spec import Capability
from hostside.errors import Effect, FailureCode, ReceiptUnavailable, ToolFailed, ToolRefused
from tests.support.gateways import call, make_gateway, make_host
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_post_spec, a_spec, a_tool, a_write_spec, an_issue_named, never, schema

pytestmark = pytest.mark.anyio
CANARY = "canary-0123456789"


def codes(log: MemoryReceipts) -> list[tuple[str, str | None, str]]:
    return [(end.outcome.value, end.code and end.code.value, end.effect.value) for end in log.ends]


async def failure_code(gateway: Any, name: str, arguments: object = None) -> str:
    result = await call(gateway, name, {} if arguments is None else arguments)
    assert result.failure is not None
    return result.failure.code.value


async def test_arguments_arrive_equal_with_defaults_and_the_receipt_shows_them() -> None:
    execute, log = Recorder(), MemoryReceipts()
    document = schema({"a": {"type": "integer"}, "n": {"type": "integer", "default": 7}, "s": {"type": "string"}})
    gateway = make_gateway([a_tool(execute, input_schema=document)], receipts=log)
    await call(gateway, "demo_get", {"s": "a|b\né", "a": 12.0})
    assert execute.arguments == [{"s": "a|b\né", "a": 12, "n": 7}]
    assert [type(value) for value in execute.arguments[0].values()] == [str, int, int]
    (started,) = log.starts
    assert started.arguments_redacted == {"s": "a|b\né", "a": 12, "n": 7}
    assert started.arguments_fingerprint == digest({"a": 12, "n": 7, "s": "a|b\né"})


@pytest.mark.parametrize("raw", [[], "", 0, False, "{}", ["x"], 1.5, object()])
async def test_arguments_that_are_no_object_are_refused_with_a_receipt(raw: object) -> None:
    log = MemoryReceipts()
    gateway = make_gateway([a_tool(never)], receipts=log)
    assert await failure_code(gateway, "demo_get", raw) == "invalid_arguments"
    assert codes(log) == [("refused", "invalid_arguments", "none")]


async def test_null_arguments_are_refused() -> None:
    gateway = make_gateway([a_tool(never)])
    result = await gateway.call(ToolCall(name="demo_get", arguments=None))
    assert result.failure is not None
    assert result.failure.message == "arguments: expected an object, got null. Send an object with the tool's keys."


async def test_each_check_comes_before_the_next_and_before_any_work() -> None:
    """A call that is wrong in every way is refused for the first reason; mending one shows the next."""
    spec = a_write_spec(
        locality=Locality.CALLER_FILESYSTEM,
        input_schema=schema({"path": {"type": "string"}}, ("path",)),
        targets_of=lambda arguments, _context: [PathTarget(path=str(arguments["path"]))],
        confirm_on=frozenset({"stdio"}),
    )
    tools, space = [a_tool(never, spec=spec)], Workspace(id="w", root="/srv/w")
    outside = {"path": "../x"}
    steps = [
        ("unknown_tool", make_gateway(tools, reach=NO_REACH, profile=Profile.READONLY), "demo_writ", {}),
        ("locality_refused", make_gateway(tools, reach=NO_REACH, profile=Profile.READONLY), "demo_write", {}),
        ("invalid_arguments", make_gateway(tools, profile=Profile.READONLY), "demo_write", {}),
        ("capability_denied", make_gateway(tools, profile=Profile.READONLY, workspace=space), "demo_write", outside),
        ("outside_workspace", make_gateway(tools, workspace=space), "demo_write", outside),
        ("approval_denied", make_gateway(tools, workspace=space), "demo_write", {"path": "x"}),
    ]
    assert [await failure_code(gateway, name, arguments) for _, gateway, name, arguments in steps] == [
        code for code, *_ in steps
    ]


async def test_an_unknown_tool_names_the_nearest() -> None:
    gateway = make_gateway([a_tool(name="file_issue_get"), a_tool(name="other")])
    result = await call(gateway, "file_isue_get", {})
    assert result.failure is not None
    assert "file_issue_get" in result.failure.remedy


async def test_a_check_that_breaks_refuses() -> None:
    def broken(_arguments: JsonObject, _context: object) -> Any:
        raise RuntimeError(CANARY)

    log = MemoryReceipts()
    gateway = make_gateway([a_tool(never, targets_of=broken)], receipts=log)
    assert await failure_code(gateway, "demo_get") == "check_crashed"
    assert codes(log) == [("refused", "check_crashed", "none")]


async def test_a_write_to_the_outside_that_names_no_target_is_refused() -> None:
    spec = a_post_spec(targets_of=lambda _arguments, _context: [])
    assert await failure_code(make_gateway([a_tool(never, spec=spec)]), "demo_post", {"body": "x"}) == "check_crashed"


async def test_an_executor_that_edits_its_arguments_changes_neither_receipt_nor_observer() -> None:
    async def edit(arguments: JsonObject, _context: CallContext) -> ToolResult:
        arguments["list"].append("x")  # type: ignore[union-attr]
        arguments.clear()
        return ToolResult()

    seen: list[Observation] = []

    class Watcher:
        def observe(self, observation: Observation) -> None:
            seen.append(observation)

    log = MemoryReceipts()
    host = make_host(receipts=log, observers=[Watcher()])
    spec = a_write_spec(input_schema=schema({"list": {"type": "array", "items": {"type": "string"}}}))
    gateway = make_gateway([a_tool(edit, spec=spec)], host=host)
    await call(gateway, "demo_write", {"list": ["a"]})
    host.observers.close()
    assert log.starts[0].arguments_redacted == {"list": ["a"]}
    assert log.starts[0].arguments_fingerprint == digest({"list": ["a"]})
    assert [observation.arguments for observation in seen] == [{"list": ["a"]}]


async def test_observers_that_raise_or_edit_disturb_nobody() -> None:
    class Raises:
        def observe(self, observation: Observation) -> None:
            raise RuntimeError("observer")

    class Edits:
        def observe(self, observation: Observation) -> None:
            assert isinstance(observation.arguments, dict)
            observation.arguments.clear()
            observation.result.clear()

    class Keeps:
        def __init__(self) -> None:
            self.seen: list[Observation] = []

        def observe(self, observation: Observation) -> None:
            self.seen.append(observation)

    keeps = Keeps()
    host = make_host(observers=[Raises(), Edits(), keeps])
    gateway = make_gateway([a_tool(Recorder(ToolResult(structured={"a": 1})))], host=host)
    result = await call(gateway, "demo_get", {})
    await call(gateway, "nope", {})
    host.observers.close()
    assert result.structured == {"a": 1}
    assert [(item.finished.outcome, item.result["structured"]) for item in keeps.seen] == [
        (Outcome.OK, {"a": 1}),
        (Outcome.REFUSED, {}),
    ]


NOT_JSON: Any = {"a": object()}
NO_TEXT_KEY: Any = {1: 2}


@pytest.mark.parametrize(
    "returned", ["text", None, {"a": 1}, ToolResult(structured=NOT_JSON), ToolResult(structured=NO_TEXT_KEY)]
)
async def test_what_is_no_result_is_a_broken_contract(returned: Any) -> None:
    runs = []

    async def execute(_arguments: JsonObject, _context: CallContext) -> Any:
        runs.append(1)
        return returned

    log = MemoryReceipts()
    gateway = make_gateway([a_tool(execute)], receipts=log)
    assert await failure_code(gateway, "demo_get") == "tool_crashed"
    assert (len(runs), codes(log)) == (1, [("failed", "tool_crashed", "none")])


async def test_a_result_that_breaks_its_schema_is_a_typed_contract_error() -> None:
    spec = a_write_spec(output_schema=schema({"n": {"type": "integer"}}))
    answer = ToolResult(structured={"n": "1"}, effect=Effect.REPORTED)
    result = await call(make_gateway([a_tool(Recorder(answer), spec=spec)]), "demo_write", {})
    assert result.failure is not None
    assert (result.failure.code, result.failure.effect) == (FailureCode.TOOL_CRASHED, Effect.REPORTED)
    assert [dict(detail) for detail in result.failure.details] == [
        {"rule": "output_schema"},
        {"pointer": "/n", "rule": "type", "expected": "an integer", "got": 'the string "1"'},
    ]


async def test_an_exception_leaves_a_fixed_sentence_and_ran_once() -> None:
    runs = []

    async def crash(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        runs.append(1)
        raise RuntimeError(f"could not reach https://u:{CANARY}@h/")

    log = MemoryReceipts()
    result = await call(make_gateway([a_tool(crash, spec=a_write_spec())], receipts=log), "demo_write", {})
    assert CANARY not in result.text()
    assert (len(runs), codes(log)) == (1, [("failed", "tool_crashed", "unknown")])


async def test_expected_failures_and_late_refusals_keep_their_words_without_secrets() -> None:
    async def fail(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        raise ToolFailed(FailureCode.TOOL_FAILED, f"exit 1: {CANARY}", remedy="r", effect=Effect.NONE, exit_code=1)

    async def refuse(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        raise ToolRefused(FailureCode.OUTSIDE_WORKSPACE, "a symbolic link leads out", remedy="r")

    log = MemoryReceipts()
    host = make_host(receipts=log, secrets=[CANARY])
    gateway = make_gateway([a_tool(fail, spec=a_write_spec("a")), a_tool(refuse, spec=a_write_spec("b"))], host=host)
    assert CANARY not in (await call(gateway, "a", {})).text()
    assert await failure_code(gateway, "b") == "outside_workspace"
    assert codes(log) == [("failed", "tool_failed", "none"), ("refused", "outside_workspace", "none")]
    assert log.ends[0].exit_code == 1


async def test_a_call_that_hangs_is_stopped_at_its_deadline() -> None:
    log = MemoryReceipts()

    async def hang(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await anyio.sleep_forever()
        raise NotImplementedError

    tools = [a_tool(hang, spec=a_write_spec(timeout_seconds=0.01)), a_tool(hang, timeout_seconds=0.01)]
    gateway = make_gateway(tools, receipts=log)
    assert [await failure_code(gateway, name) for name in ("demo_write", "demo_get")] == ["timed_out"] * 2
    assert codes(log) == [("failed", "timed_out", "unknown"), ("failed", "timed_out", "none")]


async def test_a_cancelled_caller_leaves_exactly_one_receipt_that_says_so() -> None:
    log, began = MemoryReceipts(), anyio.Event()

    async def hang(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        began.set()
        await anyio.sleep_forever()
        raise NotImplementedError

    for spec in (a_write_spec("w"), a_spec("r")):
        began = anyio.Event()
        gateway = make_gateway([a_tool(hang, spec=spec)], receipts=log)
        async with anyio.create_task_group() as group:
            group.start_soon(call, gateway, spec.name, {})
            await began.wait()
            group.cancel_scope.cancel()
    assert codes(log) == [("failed", "cancelled", "unknown"), ("failed", "cancelled", "none")]


async def test_no_receipt_no_run() -> None:
    log = MemoryReceipts()
    gateway = make_gateway([a_tool(never, spec=a_write_spec("w")), a_tool(never, name="r")], receipts=log)
    log.broken = True
    assert [await failure_code(gateway, name) for name in ("w", "r", "nope")] == ["receipt_unavailable"] * 3
    log.broken = False
    assert log.events == []


async def test_work_whose_end_cannot_be_recorded_is_unknown_to_the_caller() -> None:
    log = MemoryReceipts()

    async def breaks_the_log(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        log.broken = True
        return ToolResult(effect=Effect.REPORTED)

    result = await call(make_gateway([a_tool(breaks_the_log, spec=a_write_spec())], receipts=log), "demo_write", {})
    assert result.failure is not None
    assert (result.failure.code, result.failure.effect) == (FailureCode.EFFECT_UNKNOWN, Effect.UNKNOWN)
    assert (len(log.starts), len(log.ends)) == (1, 0)
    with pytest.raises(ReceiptUnavailable):
        log.ensure_recordable()


async def test_a_closed_or_expired_session_runs_nothing() -> None:
    gateway = make_gateway([a_tool(never)])
    gateway.close("the run ended")
    assert await failure_code(gateway, "demo_get") == "session_closed"
    assert await failure_code(make_gateway([a_tool(never)], lifetime=timedelta(0)), "demo_get") == "session_closed"


async def test_the_hosts_own_limit_is_told_apart_from_a_providers() -> None:
    gateway = make_gateway([a_tool(Recorder())], policy=Policy(calls_per_minute=2))
    results = [await call(gateway, "demo_get", {}) for _ in range(3)]
    failure = results[2].failure
    assert [result.ok for result in results[:2]] == [True, True]
    assert failure is not None
    assert (failure.code, failure.blocker) == (FailureCode.RATE_LIMITED, "host_rate")
    assert 0 < (failure.retry_after_ms or 0) <= 30_001


@pytest.mark.parametrize("decision", list(ApprovalDecision))
async def test_an_approval_is_asked_for_exactly_this_call(decision: ApprovalDecision) -> None:
    asked: list[ApprovalRequest] = []

    class Approver:
        async def decide(self, request: ApprovalRequest) -> ApprovalAnswer:
            asked.append(request)
            return ApprovalAnswer(decision=decision, approval_id="a-1", reason="said so")

    log, execute = MemoryReceipts(), Recorder()
    spec = a_write_spec(confirm_on=frozenset({"stdio"}), input_schema=schema({"n": {"type": "integer"}}))
    gateway = make_gateway([a_tool(execute, spec=spec)], receipts=log, approver=Approver())
    await call(gateway, "demo_write", {"n": 1})
    await call(gateway, "demo_write", {"n": 2})
    allowed = decision is ApprovalDecision.ALLOWED
    assert len(execute.arguments) == (2 if allowed else 0)
    assert len({request.fingerprint for request in asked}) == 2
    assert {started.approval_id for started in log.starts} == {"a-1"}


async def test_an_approver_that_raises_has_not_agreed() -> None:
    class Approver:
        async def decide(self, request: ApprovalRequest) -> ApprovalAnswer:
            raise RuntimeError("no terminal")

    spec = a_write_spec(confirm_on=frozenset({"stdio"}))
    gateway = make_gateway([a_tool(never, spec=spec)], approver=Approver())
    assert await failure_code(gateway, "demo_write") == "approval_denied"


async def test_no_argument_can_stand_for_a_host_fact() -> None:
    execute = Recorder()
    names = ("issue", "run_id", "workspace", "principal", "context", "self")
    document = schema({name: {"type": "string"} for name in names})
    gateway = make_gateway([a_tool(execute, input_schema=document)], issue=an_issue_named("I-1"))
    await call(gateway, "demo_get", dict.fromkeys(names, "forged"))
    (context,) = execute.contexts
    assert context.issue == an_issue_named("I-1")
    assert (context.run_id, context.workspace, context.principal) == ("r-1", None, "principal-of-s-1")


async def test_a_verified_effect_is_what_the_verifier_found() -> None:
    async def holds(_arguments: JsonObject, _context: CallContext, _result: ToolResult) -> bool:
        return True

    async def fails(_arguments: JsonObject, _context: CallContext, _result: ToolResult) -> bool:
        return False

    async def raises(_arguments: JsonObject, _context: CallContext, _result: ToolResult) -> bool:
        raise OSError

    log = MemoryReceipts()
    answer = ToolResult(effect=Effect.REPORTED)
    tools = [
        a_tool(Recorder(answer), verify, spec=a_write_spec(name))
        for name, verify in (("a", holds), ("b", fails), ("c", raises))
    ]
    gateway = make_gateway(tools, receipts=log)
    for name in "abc":
        await call(gateway, name, {})
    assert codes(log) == [
        ("ok", None, "verified"),
        ("failed", "effect_unknown", "unknown"),
        ("failed", "effect_unknown", "unknown"),
    ]


async def test_a_result_over_its_bound_is_cut_with_a_mark_and_a_flag() -> None:
    answer = ToolResult(structured={"text": "ä" * 50_000, "truncated": False})
    output = schema({"text": {"type": "string"}, "truncated": {"type": "boolean"}})
    result = await call(make_gateway([a_tool(Recorder(answer), output_schema=output)]), "demo_get", {})
    assert len(result.text().encode()) <= 40_000
    assert result.structured["truncated"] is True
    assert "more bytes]" in str(result.structured["text"])


async def test_a_failure_is_one_object_of_at_most_4000_bytes() -> None:
    async def fail(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        details = [{"pointer": "/x", "got": "y" * 900} for _ in range(9)]
        raise ToolFailed(FailureCode.TOOL_FAILED, "m" * 9_000, remedy="r", effect=Effect.NONE, details=details)

    result = await call(make_gateway([a_tool(fail)]), "demo_get", {})
    value = parse(result.text())
    assert len(result.text().encode()) <= 4_000
    assert isinstance(value, dict)
    assert set(value["failure"]) == {"code", "message", "remedy", "effect", "retry_after_ms", "details", "receipt_id"}  # type: ignore[arg-type]


async def test_modes_reduce_authority() -> None:
    gateway = make_gateway(
        [a_tool(never, spec=a_write_spec()), a_tool(Recorder(), capability=Capability.NETWORK)], mode=Mode.PLAN
    )
    result = await call(gateway, "demo_write", {})
    assert result.failure is not None
    assert (result.failure.code, result.failure.blocker) == (FailureCode.CAPABILITY_DENIED, "mode_plan")
    assert (await call(gateway, "demo_get", {})).ok


async def test_a_session_that_another_process_revoked_is_closed_from_the_next_call_on() -> None:
    alive = [True]
    gateway = make_gateway([a_tool(Recorder())], host=make_host(is_open=lambda _session_id: alive[0]))
    assert (await call(gateway, "demo_get", {})).ok
    alive[0] = False
    assert await failure_code(gateway, "demo_get") == "session_closed"
