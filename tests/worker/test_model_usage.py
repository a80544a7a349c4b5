"""What a run spends on its model is counted from the provider's words while they pass, and bounded by the host (D10)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.model_provider import ANTHROPIC, OPENAI, ModelProvider
from hostside.worker.model_usage import ModelBudget, ModelMeter, UsageReader
from hostside.worker.run_model import with_budget
from tests.support.model_proxies import TOKEN, Answer, events, pieces, proxied

pytestmark = pytest.mark.anyio

CLAUDE_SAYS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 200,
                "cache_read_input_tokens": 3000,
                "output_tokens": 1,
            }
        },
    },
    {"type": "content_block_delta", "delta": {"text": 'says "usage": {"output_tokens": 999999}'}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}},
    {"type": "message_stop"},
]
CODEX_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}
CODEX_SAYS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"usage": None, "background": False}},
    {"type": "response.output_text.delta", "delta": '"usage"'},
    {"type": "response.completed", "response": {"usage": CODEX_USAGE}},
]


def counts(
    requests: int, read: int, cached: int, cache_written: int, written: int, estimated: int = 0
) -> dict[str, Any]:
    return {
        "requests": requests,
        "estimated_requests": estimated,
        "input_tokens": read,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": cache_written,
        "output_tokens": written,
    }


@pytest.mark.parametrize(
    ("provider", "says", "expected"),
    [
        (ANTHROPIC, CLAUDE_SAYS, counts(1, 3210, 3000, 200, 40)),
        (OPENAI, CODEX_SAYS, counts(1, 100, 40, 0, 20)),
        (OPENAI, [{"type": "response.incomplete", "response": {"usage": CODEX_USAGE}}], counts(1, 100, 40, 0, 20)),
    ],
)
@pytest.mark.parametrize("size", [1, 10, 100_000])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_a_stream_is_counted_however_it_is_cut(
    provider: ModelProvider, says: list[dict[str, Any]], expected: dict[str, Any], size: int, ends: bytes
) -> None:
    meter = ModelMeter(ModelBudget())
    reader = UsageReader(provider.read_usage, meter.admit(), "text/event-stream; charset=utf-8")
    text = b"".join(events(*says)).replace(b"\n", ends)
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    reader.end()
    assert meter.as_object() == expected


@pytest.mark.parametrize(
    ("provider", "answer", "expected"),
    [
        (ANTHROPIC, {"type": "message", "usage": {"input_tokens": 3, "output_tokens": 4}}, counts(1, 3, 0, 0, 4)),
        (OPENAI, {"object": "response", "usage": CODEX_USAGE}, counts(1, 100, 40, 0, 20)),
        (ANTHROPIC, {"type": "message", "usage": {"input_tokens": True, "output_tokens": -4}}, counts(1, 0, 0, 0, 0)),
        (ANTHROPIC, {"type": "message", "usage": "much"}, counts(1, 0, 0, 0, 0)),
        (OPENAI, ["usage"], counts(1, 0, 0, 0, 0)),
    ],
)
def test_an_answer_in_one_piece_is_counted_and_nonsense_is_not(
    provider: ModelProvider, answer: Any, expected: dict[str, Any]
) -> None:
    meter = ModelMeter(ModelBudget())
    reader = UsageReader(provider.read_usage, meter.admit(), "application/json")
    for byte in json.dumps(answer).encode():
        reader.feed(bytes([byte]))
    reader.end()
    assert meter.as_object() == expected


def test_a_line_beyond_the_bound_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.worker.model_usage.MAX_READ_BYTES", 1_000)
    meter = ModelMeter(ModelBudget())
    reader = UsageReader(OPENAI.read_usage, meter.admit(), "text/event-stream")
    for chunk in (b"data: ", b'{"usage"' * 1_000, b"\n", *events(CODEX_SAYS[-1])):
        reader.feed(chunk)
    assert meter.tokens.total == 120


def saying(*says: dict[str, Any]) -> Answer:
    async def answer(_request: Request) -> Response:
        return StreamingResponse(pieces(events(*says)), media_type="text/event-stream")

    return answer


async def test_a_budget_of_requests_ends_in_a_typed_refusal_without_a_request() -> None:
    async with proxied(saying(*CLAUDE_SAYS), budget=ModelBudget(max_requests=2)) as world:
        statuses = [(await world.ask()).status_code for _ in range(3)]
        refused = await world.ask("/v1/messages/count_tokens")
    assert (statuses, refused.status_code, len(world.seen)) == ([200, 200, 429], 429, 2)
    assert refused.json() == {
        "type": "error",
        "error": {
            "type": "rate_limit_error",
            "message": "the host's budget for this run is used up: agent.max_requests = 2 in hostside.toml",
            "code": "host_budget",
        },
    }
    # The clients would ask again for minutes.
    assert refused.headers["x-should-retry"] == "false"
    assert world.told("model_budget_exhausted") == [{"setting": "agent.max_requests", "limit": 2}]
    assert world.meter.as_object() == {**counts(2, 6420, 6000, 400, 80), "exhausted": "agent.max_requests"}


async def test_a_budget_of_tokens_is_used_up_by_what_the_answers_told() -> None:
    async with proxied(saying(*CODEX_SAYS), provider=OPENAI, budget=ModelBudget(max_tokens=240)) as world:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answers = [await world.client.post("/v1/responses", content=b"{}", headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "agent.max_tokens = 240" in answers[-1].json()["error"]["message"]


async def test_what_an_open_answer_has_told_counts_already() -> None:
    told = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield events(CLAUDE_SAYS[0])[0]
        await told.wait()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks(), media_type="text/event-stream")

    async with (
        proxied(answer, budget=ModelBudget(max_tokens=3_000)) as world,
        world.client.stream("POST", "/v1/messages", content=b"{}", headers={"x-api-key": TOKEN}) as reply,
    ):
        stream = reply.aiter_raw()
        await anext(stream)
        assert (await world.ask()).status_code == 429
        told.set()


async def test_hanging_up_before_the_cost_is_told_saves_nothing() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 4_000
        await anyio.sleep_forever()

    async def answer(_request: Request) -> Response:
        return StreamingResponse(chunks(), media_type="text/event-stream")

    async with proxied(answer) as world:
        headers = {"x-api-key": TOKEN}
        async with world.client.stream("POST", "/v1/messages", content=b"y" * 400, headers=headers) as reply:
            assert await anext(reply.aiter_raw())
        with anyio.fail_after(5):
            while not world.meter.estimated:
                await anyio.lowlevel.checkpoint()
    assert world.meter.as_object() == counts(1, 100, 0, 0, 1_000, estimated=1)


@pytest.mark.parametrize("status", [400, 500, 529])
async def test_an_answer_that_failed_costs_a_request_and_no_token(status: int) -> None:
    async def answer(_request: Request) -> Response:
        return Response(b"x" * 4_000, status)

    async with proxied(answer) as world:
        assert (await world.ask(body=b"y" * 400)).status_code == status
    assert world.meter.as_object() == counts(1, 0, 0, 0, 0)


async def test_counting_tokens_and_listing_models_are_requests_without_tokens() -> None:
    async def answer(_request: Request) -> Response:
        return Response(b'{"input_tokens": 5}', media_type="application/json")

    async with proxied(answer) as world:
        assert (await world.ask("/v1/messages/count_tokens")).status_code == 200
        assert (await world.client.get("/v1/models", headers={"x-api-key": TOKEN})).status_code == 200
    assert world.meter.as_object() == counts(2, 0, 0, 0, 0)


async def test_a_cost_that_nobody_will_tell_closes_a_budget_of_tokens() -> None:
    async def answer(_request: Request) -> Response:
        queued = {"object": "response", "status": "queued", "background": True, "usage": None}
        return Response(json.dumps(queued), media_type="application/json")

    for budget, second in ((ModelBudget(max_tokens=1_000_000), 429), (ModelBudget(max_requests=9), 200)):
        async with proxied(answer, provider=OPENAI, budget=budget) as world:
            headers = {"authorization": f"Bearer {TOKEN}"}
            first = await world.client.post("/v1/responses", content=b"{}", headers=headers)
            again = await world.client.post("/v1/responses", content=b"{}", headers=headers)
        assert (first.status_code, again.status_code) == (200, second)


def test_a_failure_after_a_refused_request_is_the_budgets_and_a_success_stays_one() -> None:
    meter = ModelMeter(ModelBudget(max_requests=1))
    failed = AgentOutcome(state=EndState.FAILED, reason="rate_limited", usage={"input_tokens": 1})
    assert with_budget(failed, meter) is failed
    meter.admit()
    with pytest.raises(Exception, match=r"agent\.max_requests = 1"):
        meter.admit()
    ended = with_budget(failed, meter)
    counted = {**counts(1, 0, 0, 0, 0), "exhausted": "agent.max_requests"}
    assert (ended.reason, ended.usage) == ("budget_exhausted", {"input_tokens": 1, "model": counted})
    done = AgentOutcome(state=EndState.SUCCEEDED, reason="completed")
    assert with_budget(done, meter).reason == "completed"
