"""An executor that does not end when its time is over: a typed failure, no secret, an answered caller (AX-14, R-069)."""

import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode, ToolFailed
from tests.support.gateways import call, make_gateway, make_host
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import a_spec, a_tool, a_write_spec

pytestmark = pytest.mark.anyio
CANARY = "canary-of-the-tool-0123456789"
Execute = Callable[[JsonObject, CallContext], Awaitable[ToolResult]]


async def answers_late(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        pass
    return ToolResult(structured={"id": CANARY})


async def blocks_a_thread(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    await anyio.to_thread.run_sync(threading.Event().wait, 0.3)
    return ToolResult(structured={"id": CANARY})


async def asks_again_late(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        await anyio.sleep_forever()
    raise NotImplementedError


async def crashes_late(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        raise RuntimeError(f"https://user:{CANARY}@tracker.example") from None
    raise NotImplementedError


async def fails_late(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        raise ToolFailed(FailureCode.TOOL_FAILED, f"said {CANARY}", remedy="r", effect=Effect.NONE) from None
    raise NotImplementedError


@pytest.mark.parametrize(
    ("execute", "code", "effect_of_a_write"),
    [
        (answers_late, "timed_out", "unknown"),
        (blocks_a_thread, "timed_out", "unknown"),
        (asks_again_late, "timed_out", "unknown"),
        (crashes_late, "tool_crashed", "unknown"),
        (fails_late, "tool_failed", "none"),
    ],
)
async def test_whatever_comes_after_the_deadline_is_a_typed_failure_without_a_secret(
    execute: Execute, code: str, effect_of_a_write: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryReceipts()
    tools = [
        a_tool(execute, spec=a_spec("read", timeout_seconds=0.05)),
        a_tool(execute, spec=a_write_spec("write", timeout_seconds=0.05)),
    ]
    gateway = make_gateway(tools, host=make_host(receipts=log, secrets=[CANARY]))
    with anyio.fail_after(10):
        answers = [await call(gateway, name, {}) for name in ("read", "write")]
    ends = [(end.outcome.value, end.code and end.code.value, end.effect.value) for end in log.ends]
    assert ends == [("failed", code, "none"), ("failed", code, effect_of_a_write)]
    assert [answer.failure and answer.failure.code.value for answer in answers] == [code, code]
    assert CANARY not in "".join(answer.text() for answer in answers) + caplog.text
