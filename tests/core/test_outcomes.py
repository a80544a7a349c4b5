"""What is told of a call, to whom, and what may not disturb it (R-127, R-135, R-139, R-144..R-146)."""

import json
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.gateway import Gateway, Host
from hostside.core.policy import MODES, PROFILES, Mode, Profile
from hostside.core.receipt import Observation
from hostside.core.spec import Tool
from hostside.errors import REFUSED, Effect, FailureCode, ToolFailed
from tests.support.gateways import an_issue, call, make_gateway, make_host
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_post_spec, a_tool, a_write_spec, schema

pytestmark = pytest.mark.anyio
CANARY = "canary-0123456789"
#: Design §4: the first list promises that nothing was done.
CLOSED_LIST = (
    "unknown_tool invalid_arguments locality_refused capability_denied outside_issue outside_workspace approval_required "
    "approval_denied duplicate_operation rate_limited session_closed receipt_unavailable check_crashed "
    "missing_tracker_secret",
    "precondition_failed tool_failed tool_crashed timed_out cancelled effect_unknown tracker_request tracker_status "
    "tracker_response tracker_pagination tracker_rate_limited",
)


def test_the_failure_codes_are_the_closed_list() -> None:
    refused, failed = (set(words.split()) for words in CLOSED_LIST)
    assert {code.value for code in REFUSED} == refused
    assert {code.value for code in FailureCode} - refused == failed


def test_ask_and_plan_leave_reading_alone() -> None:
    assert MODES[Mode.ASK] == MODES[Mode.PLAN] == PROFILES[Profile.READONLY]


def listening(events: list[tuple[str, dict[str, JsonValue]]]) -> Host:
    def tell(name: str, facts: Mapping[str, JsonValue]) -> None:
        events.append((name, dict(facts)))

    return replace(make_host(), event=tell)


async def test_every_call_is_told_when_it_begins_and_how_it_ends_with_issue_session_and_tool() -> None:
    async def fail(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        raise ToolFailed(FailureCode.TOOL_FAILED, "no", remedy="r", effect=Effect.NONE)

    events: list[tuple[str, dict[str, JsonValue]]] = []
    tools = [a_tool(Recorder()), a_tool(fail, name="fails")]
    gateway = make_gateway(tools, issue=an_issue("DEMO-7"), host=listening(events))
    for name in ("demo_get", "fails", "unsupported"):
        await call(gateway, name, {})
    ends = [("demo_get", "ok", None), ("fails", "failed", "tool_failed"), ("unsupported", "refused", "unknown_tool")]
    for number, (tool, outcome, code) in enumerate(ends):
        (began, start), (ended, end) = events[2 * number : 2 * number + 2]
        ids = {"session_id": "s-1", "run_id": "r-1", "issue": "DEMO-7", "tool": tool}
        assert (began, ended) == ("tool_call_started", "tool_call_finished")
        assert start == {**ids, "receipt_id": start["receipt_id"]}
        assert {name: end[name] for name in (*ids, "receipt_id", "outcome", "code")} == {
            **start,
            "outcome": outcome,
            "code": code,
        }


async def test_an_observer_that_blocks_holds_up_neither_the_call_nor_the_others() -> None:
    go_on = threading.Event()

    class Blocks:
        def observe(self, observation: Observation) -> None:
            assert go_on.wait(30)

    class Counts:
        def __init__(self) -> None:
            self.tools: list[str] = []
            self.twice = threading.Event()

        def observe(self, observation: Observation) -> None:
            self.tools.append(observation.started.tool)
            if len(self.tools) == 2:
                self.twice.set()

    counts, log = Counts(), MemoryReceipts()
    host = make_host(receipts=log, observers=[Blocks(), counts])
    gateway = make_gateway([a_tool(Recorder(ToolResult(structured={"a": 1})))], host=host)
    results = [await call(gateway, "demo_get", {}) for _ in range(2)]
    assert counts.twice.wait(30)
    go_on.set()
    host.observers.close()
    assert [result.structured for result in results] == [{"a": 1}] * 2
    assert (counts.tools, len(log.ends)) == (["demo_get"] * 2, 2)


@pytest.mark.parametrize("words", ["Error: it failed", '{"failure":{"code":"tool_failed"}}', "Traceback (most recent"])
async def test_words_of_an_error_in_a_result_are_no_failure(words: str) -> None:
    output = schema({"text": {"type": "string"}})
    log = MemoryReceipts()
    tool = a_tool(Recorder(ToolResult(structured={"text": words})), output_schema=output)
    result = await call(make_gateway([tool], receipts=log), "demo_get", {})
    assert (result.ok, json.loads(result.text())) == (True, {"text": words})
    assert [end.outcome.value for end in log.ends] == ["ok"]


async def operations(*calls: tuple[str, JsonObject], run_id: str = "r-1") -> list[str]:
    document = schema({"a": {}, "b": {}})
    log = MemoryReceipts()
    tools: list[Tool] = [a_tool(Recorder(), spec=a_write_spec(name, input_schema=document)) for name in ("one", "two")]
    gateway = make_gateway(tools, receipts=log, run_id=run_id)
    for name, arguments in calls:
        await call(gateway, name, arguments)
    return [start.operation_id for start in log.starts]


async def test_an_operation_is_run_tool_and_arguments_whatever_the_order_of_keys() -> None:
    base, reordered, other_type, other_tool = await operations(
        ("one", {"a": 1, "b": [1]}),
        ("one", {"b": [1], "a": 1}),
        ("one", {"a": "1", "b": [1]}),
        ("two", {"a": 1, "b": [1]}),
    )
    (elsewhere,) = await operations(("one", {"a": 1, "b": [1]}), run_id="r-2")
    assert base == reordered
    assert len({base, other_type, other_tool, elsewhere}) == 4


async def crashing(gateway: Gateway, *names: str) -> None:
    for name in names:
        await call(gateway, name, {"body": "x"} if name == "demo_post" else {})


async def test_what_crashes_leaves_no_secret_in_the_hosts_log(caplog: pytest.LogCaptureFixture) -> None:
    async def crash(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        raise RuntimeError(f"could not reach https://u:{CANARY}@h/ with {CANARY}")

    async def unverifiable(_arguments: JsonObject, _context: CallContext, _result: ToolResult) -> bool:
        raise RuntimeError(CANARY)

    def targets(_arguments: JsonObject, _context: object) -> list[object]:
        raise RuntimeError(CANARY)

    tools = [
        a_tool(crash),
        a_tool(Recorder(), unverifiable, spec=a_write_spec()),
        a_tool(Recorder(), spec=a_post_spec(targets_of=targets)),
    ]
    gateway = make_gateway(tools, issue=an_issue(), host=make_host(secrets=[CANARY]))
    await crashing(gateway, "demo_get", "demo_write", "demo_post")
    said = "".join(
        record.getMessage() + str(record.exc_info and record.exc_info[1]) + str(record.exc_text)
        for record in caplog.records
    )
    assert len(caplog.records) == 3
    assert "RuntimeError" in caplog.text
    assert CANARY not in said + caplog.text
