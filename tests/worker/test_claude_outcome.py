"""What is made of Claude Code's event stream: the check of its first event, the run's events, the end (R-212)."""

import json
from typing import Any

import pytest

from hostside.core.canonical import JsonObject
from hostside.core.redaction import Redactor
from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.claude_events import MESSAGE_CHARACTERS, EventReporter, Init, Result
from hostside.worker.claude_outcome import classify
from hostside.worker.run_clock import Stop

INIT = {
    "type": "system",
    "subtype": "init",
    "session_id": "s",
    "model": "m",
    "claude_code_version": "1",
    "mcp_servers": [{"name": "hostside", "status": "connected"}],
    "tools": ["Read", "mcp__hostside__demo_get"],
}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 3,
    "terminal_reason": "completed",
    "result": "done",
    "usage": {"input_tokens": 11, "output_tokens": 7, "service_tier": "standard"},
    "total_cost_usd": 0.25,
}
SECRET = "hst_" + "s" * 40


class Seen:
    """A reporter and the events that it told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JsonObject]] = []
        self.report = EventReporter(
            lambda name, facts: self.events.append((name, dict(facts))), Redactor([SECRET]).text
        )

    def take(self, *messages: Any) -> "Seen":
        for message in messages:
            self.report.take(message if isinstance(message, bytes) else json.dumps(message).encode())
        return self


def end(*messages: Any, exit_code: int | None = 0, stop: Stop | None = None, stderr: str = "") -> AgentOutcome:
    report = Seen().take(*messages).report
    return classify(report, stop=stop, exit_code=exit_code, stderr=stderr, redact=Redactor([SECRET]).text)


def failed_by_provider(status: int | None) -> dict[str, Any]:
    changes = {"is_error": True, "terminal_reason": "api_error", "api_error_status": status, "result": "API Error"}
    return {**RESULT, **changes}


@pytest.mark.parametrize(
    ("messages", "exit_code", "expected"),
    [
        ([INIT, RESULT], 0, "completed"),
        ([INIT, RESULT], None, "completed"),
        ([INIT, RESULT], 137, "agent_exited"),
        ([INIT], 0, "no_result"),
        ([INIT], 137, "agent_exited"),
        ([], 1, "start_failed"),
        ([], 0, "start_failed"),
        ([INIT, {**RESULT, "is_error": True}], 1, "agent_error"),
        ([INIT, {key: value for key, value in RESULT.items() if key != "is_error"}], 0, "agent_error"),
        ([INIT, {**RESULT, "subtype": "error_during_execution"}], 1, "agent_error"),
        ([{**RESULT, "subtype": "error_during_execution", "is_error": True}], 1, "agent_error"),
        ([INIT, {**RESULT, "subtype": "error_max_turns", "is_error": True}], 1, "max_turns"),
        ([INIT, failed_by_provider(429)], 1, "rate_limited"),
        ([INIT, failed_by_provider(529)], 1, "rate_limited"),
        ([INIT, failed_by_provider(500)], 1, "model_unavailable"),
        ([INIT, failed_by_provider(None)], 1, "model_unavailable"),
        ([INIT, failed_by_provider(401)], 1, "agent_error"),
        ([INIT, {**RESULT, "result": "429 rate limit exceeded, overloaded, error"}], 0, "completed"),
        ([INIT, {**RESULT, "subtype": "error_max_turns"}, RESULT], 0, "completed"),
    ],
)
def test_the_end_is_told_from_typed_fields_and_the_exit_code_alone(
    messages: list[Any], exit_code: int | None, expected: str
) -> None:
    outcome = end(*messages, exit_code=exit_code)
    state = EndState.SUCCEEDED if expected == "completed" else EndState.FAILED
    assert (outcome.reason, outcome.state) == (expected, state)


def test_an_outcome_carries_what_the_agent_reported() -> None:
    assert end(INIT, RESULT) == AgentOutcome(
        state=EndState.SUCCEEDED,
        reason="completed",
        agent_session_id="s",
        exit_code=0,
        usage={"input_tokens": 11, "output_tokens": 7, "model_turns": 3, "cost_usd": 0.25},
        turns=1,
    )


def test_why_the_host_stopped_the_agent_wins_over_what_the_agent_says() -> None:
    outcome = end(INIT, RESULT, stop=Stop(reason="stalled", detail="silent"), exit_code=143, stderr=" last words\n")
    assert (outcome.reason, outcome.detail, outcome.exit_code) == ("stalled", "silent | done | last words", 143)


def test_the_detail_is_redacted_and_bounded() -> None:
    outcome = end(INIT, {**RESULT, "is_error": True, "result": SECRET + "x" * 9_000}, stderr="y" * 9_000)
    assert SECRET not in outcome.detail
    assert len(outcome.detail) < 2_100


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"mcp_servers": []}, "the MCP server hostside is absent"),
        ({"mcp_servers": [{"name": "hostside", "status": "failed"}]}, "the MCP server hostside is failed"),
        ({"mcp_servers": "nonsense"}, "the MCP server hostside is absent"),
        ({"tools": ["Read"]}, "the agent does not offer mcp__hostside__demo_get"),
        ({"tools": None}, "the agent does not offer mcp__hostside__demo_get"),
        (
            {"tools": ["mcp__hostside__demo_get", "WebFetch"]},
            "the agent offers tools that the run does not allow: WebFetch",
        ),
        (
            {"tools": ["mcp__hostside__demo_get", "mcp__hostside__other"]},
            "the agent offers tools that the run does not allow: mcp__hostside__other",
        ),
        (
            {"mcp_servers": [*INIT["mcp_servers"], {"name": "x", "status": "failed"}]},
            "the agent is connected to other MCP servers: x",
        ),
    ],
)
def test_the_first_event_must_show_exactly_the_tools_of_the_run(changes: dict[str, Any], problem: str | None) -> None:
    init = Init.of({**INIT, **changes})
    assert init.problem(listed=["demo_get"], native=["Read", "Bash"]) == problem


def test_the_stream_becomes_events_of_the_run() -> None:
    content = [
        {"type": "text", "text": f"my key is {SECRET} " + "z" * 500},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "secret"}},
        {"type": "tool_use", "id": "t2", "name": "mcp__hostside__demo_get", "input": {}},
        "nonsense",
    ]
    denial = {"tool_name": "Bash", "tool_use_id": "t1"}
    seen = Seen().take(
        INIT,
        {"type": "assistant", "message": {"content": content}},
        {"type": "system", "subtype": "permission_denied", **denial},
        {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 2, "error_status": 529},
        {**RESULT, "permission_denials": [denial]},
    )
    shown = f"my key is [redacted] {'z' * 500}"[: MESSAGE_CHARACTERS - 1] + "…"
    assert seen.events == [
        ("agent_message", {"text": shown}),
        ("agent_native_tool", {"tool": "Bash", "tool_use_id": "t1"}),
        ("agent_permission_denied", {"tool": "Bash", "tool_use_id": "t1"}),
        ("agent_model_retry", {"attempt": 1, "max_retries": 2, "error_status": 529}),
        ("agent_usage", {"input_tokens": 11, "output_tokens": 7, "model_turns": 3, "cost_usd": 0.25}),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[1]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":"assistant","message":[1]}',
        b'{"type":"assistant","message":{"content":[{"type":"text","text":7}]}}',
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"\\ud800"}]}}',
        b'{"type":"system","subtype":"init","session_id":7,"mcp_servers":[{"name":[]}],"tools":[7]}',
        b'{"type":"system","subtype":"api_retry","attempt":NaN}',
        b'{"type":"result","subtype":7,"num_turns":true,"usage":[],"errors":"x","permission_denials":{}}',
        b'{"type":{"a":1}}',
    ],
)
def test_no_line_of_the_agent_breaks_the_reader(line: bytes) -> None:
    json.dumps(Seen().take(line).events, allow_nan=False).encode()


def test_a_result_that_does_not_say_so_is_no_success() -> None:
    assert Result.of({"type": "result"}).is_error
