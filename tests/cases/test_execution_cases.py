"""C-21 and C-28 at the boundary: no secret in a receipt or an answer, no write sent twice."""

import base64
import json
from urllib.parse import quote

import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.errors import Effect, FailureCode, ToolFailed
from tests.cases.rows import rows
from tests.support.gateways import call, make_gateway, make_host
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_post_spec, a_tool, a_write_spec, an_issue_named, schema

pytestmark = pytest.mark.anyio
CANARY = 'CANARY/"7f3k"=9x2m'


def everything(log: MemoryReceipts) -> str:
    return repr(log.starts) + repr(log.ends) + json.dumps(log.outcomes)


async def test_c_21_b_a_known_secret_is_masked_under_any_key() -> None:
    (row,) = rows("C-21.b")
    arguments = json.loads(json.dumps(row.input["arguments"]).replace("CANARY", "known-canary-1"))
    log = MemoryReceipts()
    anything: dict[str, object] = {"type": "object", "additionalProperties": True}
    properties: dict[str, object] = {"headers": anything, "nested": {"type": "array"}, "note": {"type": "string"}}
    spec = a_write_spec(input_schema=schema(properties))
    host = make_host(receipts=log, secrets=["known-canary-1"])
    await call(make_gateway([a_tool(Recorder(), spec=spec)], host=host), "demo_write", arguments)
    await call(make_gateway([a_tool(Recorder(), spec=spec)], host=host), "demo_write", {**arguments, "wrong": 1})
    assert "known-canary-1" not in everything(log)
    assert len(log.ends) == 2


@pytest.mark.parametrize(
    "form",
    [CANARY, base64.b64encode(f"x:{CANARY}".encode()).decode(), quote(CANARY, safe=""), json.dumps(CANARY)[1:-1]],
    ids=["plain", "basic", "url", "json"],
)
async def test_c_21_c_and_d_no_form_of_a_secret_is_told_on(form: str) -> None:
    async def fail(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        raise ToolFailed(
            FailureCode.TRACKER_RESPONSE,
            f"upstream said: {form}",
            remedy=form,
            effect=Effect.NONE,
            details=[{form: form}],
        )

    log = MemoryReceipts()
    host = make_host(receipts=log, secrets=[CANARY])
    tools = [
        a_tool(fail, spec=a_write_spec("fails")),
        a_tool(Recorder(ToolResult(structured={"t": form})), name="answers"),
    ]
    gateway = make_gateway(tools, host=host)
    texts = [(await call(gateway, name, {})).text() for name in ("fails", "answers")]
    for text in (*(str(json.loads(text)) for text in texts), everything(log)):
        assert form not in text
        assert CANARY not in text


async def test_c_28_b_a_wanted_second_post_uses_a_new_key() -> None:
    (row,) = rows("C-28.b")
    execute = Recorder(ToolResult(structured={"id": "1"}, effect=Effect.REPORTED))
    gateway = make_gateway([a_tool(execute, spec=a_post_spec())], issue=an_issue_named("I-1"))
    for item in row.input["calls"]:
        assert (await call(gateway, "demo_post", {"body": item["body"]}, key=item["key"])).ok
    assert len(execute.arguments) == row.expect["comments_upstream"]


async def test_c_28_c_and_d_a_write_with_an_unknown_end_is_sent_once_and_says_so() -> None:
    (row,) = rows("C-28.c")
    sends = []

    async def times_out(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        sends.append(1)
        raise ToolFailed(
            FailureCode.EFFECT_UNKNOWN, "It may have happened.", remedy="Look before repeating.", effect=Effect.UNKNOWN
        )

    log = MemoryReceipts()
    gateway = make_gateway([a_tool(times_out, spec=a_post_spec())], issue=an_issue_named("I-1"), receipts=log)
    for _ in range(3):
        result = await call(gateway, "demo_post", {"body": "x"})
        assert result.failure is not None
        assert result.failure.effect is Effect.UNKNOWN
    assert len(sends) == row.expect["sends"]
    assert [end.effect.value for end in log.ends] == ["unknown"] * 3
