"""What a verifier that cannot look leaves in the log: nothing that an agent could fill it with (R-133)."""

import logging

import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode, ToolFailed, ToolRefused
from tests.support.gateways import call, make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_tool, a_write_spec

pytestmark = pytest.mark.anyio
_GONE = ToolFailed(FailureCode.TOOL_FAILED, "gone", remedy="r", effect=Effect.NONE)
_LINK = ToolRefused(FailureCode.OUTSIDE_WORKSPACE, "a link took its place", remedy="r")


@pytest.mark.parametrize(("raised", "logged"), [(_GONE, 0), (_LINK, 0), (OSError(), 1)])
async def test_a_verifier_that_cannot_look_is_no_crash(
    raised: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def verify(_arguments: JsonObject, _context: CallContext, _result: ToolResult) -> bool:
        raise raised

    log = MemoryReceipts()
    tool = a_tool(Recorder(ToolResult(effect=Effect.REPORTED)), verify, spec=a_write_spec("a"))
    with caplog.at_level(logging.ERROR):
        await call(make_gateway([tool], receipts=log), "a", {})
    assert [(end.code, end.effect) for end in log.ends] == [(FailureCode.EFFECT_UNKNOWN, Effect.UNKNOWN)]
    assert len(caplog.records) == logged
