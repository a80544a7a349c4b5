"""A call that comes twice does its work once (D23, C-28)."""

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode, ToolFailed
from tests.support.gateways import call, make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_post_spec, a_tool, a_write_spec, an_issue_named, schema

pytestmark = pytest.mark.anyio
POSTED = ToolResult(structured={"id": "c-1"}, effect=Effect.REPORTED)
ISSUE = an_issue_named("I-1")


async def test_the_same_delivery_is_answered_with_the_stored_outcome_and_its_own_receipt() -> None:
    execute, log = Recorder(), MemoryReceipts()
    gateway = make_gateway([a_tool(execute, spec=a_write_spec())], receipts=log)
    first = await call(gateway, "demo_write", {}, delivery="toolu_1")
    again = await call(gateway, "demo_write", {}, delivery="toolu_1")
    assert len(execute.arguments) == 1
    assert again.replay_of == first.receipt_id
    assert [started.replay_of for started in log.starts] == [None, first.receipt_id]
    assert [end.effect.value for end in log.ends] == ["none", "none"]


async def test_one_key_for_two_different_calls_is_refused() -> None:
    spec = a_write_spec(input_schema=schema({"n": {"type": "integer"}}))
    execute = Recorder()
    gateway = make_gateway([a_tool(execute, spec=spec), a_tool(Recorder(), spec=a_write_spec("other"))])
    await call(gateway, "demo_write", {"n": 1}, key="k")
    for name, arguments in (("demo_write", {"n": 2}), ("other", {})):
        result = await call(gateway, name, arguments, key="k")
        assert result.failure is not None
        assert result.failure.code is FailureCode.DUPLICATE_OPERATION
    assert execute.arguments == [{"n": 1}]


async def test_an_identical_post_is_replayed_unless_the_caller_sends_a_new_key() -> None:
    execute = Recorder(POSTED)
    gateway = make_gateway([a_tool(execute, spec=a_post_spec())], issue=ISSUE)
    results = [
        await call(gateway, "demo_post", {"body": "hello"}),
        await call(gateway, "demo_post", {"body": "hello"}, delivery="toolu_2"),
        await call(gateway, "demo_post", {"body": "hello!"}),
        await call(gateway, "demo_post", {"body": "hello"}, key="wanted-twice"),
    ]
    assert [result.structured for result in results] == [
        {"id": "c-1"},
        {"id": "c-1", "unchanged": True},
        {"id": "c-1"},
        {"id": "c-1"},
    ]
    assert [arguments["body"] for arguments in execute.arguments] == ["hello", "hello!", "hello"]


async def test_a_local_write_runs_every_time() -> None:
    execute = Recorder()
    gateway = make_gateway([a_tool(execute, spec=a_write_spec())])
    await call(gateway, "demo_write", {})
    await call(gateway, "demo_write", {})
    assert len(execute.arguments) == 2


async def test_identical_posts_at_the_same_time_do_their_work_once() -> None:
    started, release, bodies = anyio.Event(), anyio.Event(), []

    async def slow(arguments: JsonObject, _context: CallContext) -> ToolResult:
        bodies.append(arguments["body"])
        started.set()
        await release.wait()
        return POSTED

    gateway = make_gateway([a_tool(slow, spec=a_post_spec())], issue=ISSUE)
    results: list[ToolResult] = []

    async def post() -> None:
        results.append(await call(gateway, "demo_post", {"body": "x"}))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(post)
            await started.wait()
            release.set()
    assert bodies == ["x"]
    assert sorted(str(result.structured.get("unchanged", False)) for result in results) == ["False", *["True"] * 4]


async def test_a_post_whose_effect_is_unknown_is_not_sent_again() -> None:
    runs = []

    async def lost(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        runs.append(1)
        raise ToolFailed(FailureCode.EFFECT_UNKNOWN, "the answer was lost", remedy="look first", effect=Effect.UNKNOWN)

    gateway = make_gateway([a_tool(lost, spec=a_post_spec())], issue=ISSUE)
    for _ in range(3):
        result = await call(gateway, "demo_post", {"body": "x"})
        assert result.failure is not None
        assert result.failure.code is FailureCode.EFFECT_UNKNOWN
    assert len(runs) == 1


async def test_a_post_that_failed_without_effect_may_be_tried_again() -> None:
    runs = []

    async def rejected(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        runs.append(1)
        raise ToolFailed(FailureCode.TRACKER_STATUS, "422", remedy="mend it", effect=Effect.NONE)

    gateway = make_gateway([a_tool(rejected, spec=a_post_spec())], issue=ISSUE)
    await call(gateway, "demo_post", {"body": "x"})
    await call(gateway, "demo_post", {"body": "x"})
    assert len(runs) == 2


async def test_a_call_that_a_crash_left_open_is_unknown_and_not_run_again() -> None:
    log = MemoryReceipts()

    async def crash(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        log.broken = True  # nothing after this is recorded, as after a kill
        return POSTED

    tools = [a_tool(crash, spec=a_post_spec())]
    await call(make_gateway(tools, issue=ISSUE, receipts=log), "demo_post", {"body": "x"}, delivery="d")
    log.broken = False
    execute = Recorder(POSTED)
    reopened = make_gateway([a_tool(execute, spec=a_post_spec())], issue=ISSUE, receipts=log)
    for key in ("d", None):
        result = await call(reopened, "demo_post", {"body": "x"}, delivery=key)
        assert result.failure is not None
        assert result.failure.code is FailureCode.EFFECT_UNKNOWN
    assert execute.arguments == []


async def test_writes_to_one_issue_never_overlap() -> None:
    running, most = 0, 0

    async def count(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return POSTED

    gateway = make_gateway([a_tool(count, spec=a_post_spec())], issue=ISSUE)
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(call, gateway, "demo_post", {"body": str(number)})
    assert most == 1
