"""Claude Code with its tools over its own pipes, against a stand-in: no port, no token, a handshake first (D24, A0-06)."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.worker.agent import AgentOutcome
from hostside.worker.claude import ClaudeRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support.agent_bench import TOKEN, Bench, fake_claude_in, settings
from tests.worker.conftest import IsolationFactory, Marked

pytestmark = [pytest.mark.anyio, pytest.mark.system]

INIT = {"do": "init"}
RESULT = {"do": "result"}
POST = {"tool": "demo_post", "arguments": {"body": "hello"}}
WAIT = {"do": "call", "tool": "demo_wait"}


@pytest.fixture
def bench(isolate: IsolationFactory, folder: Path) -> Bench:
    executable = fake_claude_in(folder)
    return Bench(isolation=isolate(IsolationLevel.HOME), settings=settings("claude", executable), session_edge="inband")


def configure(bench: Bench, **changes: Any) -> None:
    bench.settings = settings("claude", bench.settings.executable, **changes)


def report(bench: Bench) -> dict[str, Any]:
    """What the agent was started with."""
    found: dict[str, Any] = json.loads((bench.isolation.home / "report.json").read_text("utf-8"))
    return found


def told(bench: Bench) -> list[dict[str, Any]]:
    """The answers that steps were about."""
    found: list[dict[str, Any]] = json.loads((bench.isolation.home / "answers.json").read_text("utf-8"))
    return found


def listening() -> int:
    """How many TCP sockets of this process listen."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return len(found & inodes)


async def test_the_configuration_names_a_server_and_no_way_to_it(bench: Bench) -> None:
    outcome = await bench.play(ClaudeRuntime(), [INIT, RESULT])
    started = report(bench)
    assert (outcome.reason, outcome.fallback) == ("completed", None), outcome
    assert json.loads(started["config"]) == {
        "mcpServers": {"hostside": {"type": "sdk", "name": "hostside", "alwaysLoad": True, "timeout": 60_000}}
    }
    assert TOKEN not in json.dumps(started)
    assert [facts for name, facts in bench.events if name.startswith("edge_")] == [{"edge": "inband"}] * 2


async def test_while_it_works_only_the_models_listener_is_there(bench: Bench) -> None:
    before, seen = listening(), []
    async with anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _() -> None:
            await bench.waiting.began.wait()
            seen.append(listening() - before)
            bench.waiting.release.set()

        assert (await bench.play(ClaudeRuntime(), [INIT, WAIT, RESULT])).reason == "completed"
    assert (seen, listening()) == ([1], before)


async def test_results_and_refusals_come_back_to_the_calls_that_asked(bench: Bench) -> None:
    many: list[dict[str, Any]] = [
        POST,
        {"tool": "demo_post", "arguments": []},
        {"tool": "demo_gets"},
        {"tool": "demo_get"},
    ]
    outcome = await bench.play(ClaudeRuntime(), [INIT, {"do": "calls", "many": many}, RESULT])
    good, no_object, unknown, invalid = told(bench)
    assert outcome.reason == "completed"
    assert good["result"]["structuredContent"] == {"id": "hello"}
    codes = [json.loads(answer["result"]["content"][0]["text"])["failure"]["code"] for answer in (no_object, invalid)]
    assert (codes, unknown["error"]["code"]) == (["invalid_arguments"] * 2, -32602)
    assert sorted(bench.calls(), key=str) == [
        ("demo_get", "invalid_arguments"),
        ("demo_gets", "unknown_tool"),
        ("demo_post", "invalid_arguments"),
        ("demo_post", None),
    ]
    assert {(event.edge, event.issue_id) for event in bench.receipts.starts} == {("inband", "id-DEMO-1")}


async def test_a_slow_call_holds_up_no_other_and_no_event(bench: Bench) -> None:
    async with anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _() -> None:
            with anyio.fail_after(20):
                while ("demo_get", None) not in bench.calls():
                    await anyio.sleep(0.01)
            bench.waiting.release.set()

        read = {"tool": "demo_get", "arguments": {"body": "quick"}}
        await bench.play(ClaudeRuntime(), [INIT, {"do": "calls", "many": [{"tool": "demo_wait"}, read]}, RESULT])
    assert [answer["result"]["structuredContent"]["id"] for answer in told(bench)] == ["late", "quick"]
    assert bench.calls() == [("demo_get", None), ("demo_wait", None)]


async def test_a_withdrawn_call_ends_with_a_receipt_and_the_next_one_works(bench: Bench) -> None:
    async with anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _() -> None:
            await bench.waiting.began.wait()
            (bench.isolation.home / "began").touch()

        steps: list[dict[str, Any]] = [
            INIT,
            {"do": "withdraw", "tool": "demo_wait", "then": "began"},
            {"do": "calls", "many": [POST]},
            RESULT,
        ]
        await bench.play(ClaudeRuntime(), steps)
    taken, next_one = told(bench)
    assert (taken, next_one["result"]["structuredContent"]) == ({"jsonrpc": "2.0", "result": {}}, {"id": "hello"})
    assert bench.calls() == [("demo_wait", "cancelled"), ("demo_post", None)]


async def test_a_line_that_is_refused_is_answered_told_and_without_effect(bench: Bench) -> None:
    params = '{"name":"demo_post","arguments":{"body":"x","body":"y"}}'
    message = f'{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{params}}}'
    request = f'{{"subtype":"mcp_message","server_name":"hostside","message":{message}}}'
    line = f'{{"type":"control_request","request_id":"twice","request":{request}}}'
    other = '{"type":"control_request","request_id":"hook","request":{"subtype":"hook_callback"}}'
    steps = [{"do": "ask", "line": line, "control": "twice"}, {"do": "ask", "line": other, "control": "hook"}]
    outcome = await bench.play(ClaudeRuntime(), [INIT, *steps, *steps * 10, RESULT])
    errors = [answer["control_error"] for answer in told(bench)[:2]]
    assert (outcome.reason, bench.calls()) == ("completed", [])
    assert errors == [
        "Parse error: duplicate key 'body'",
        "Invalid request: this host answers MCP messages alone",
    ]
    # The first twenty of 22.
    assert [facts["reason"] for facts in bench.named("frame_rejected")] == errors * 10


async def test_a_token_that_is_dead_ends_the_session_from_the_next_call_on(bench: Bench) -> None:
    async with anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _() -> None:
            await bench.waiting.began.wait()
            bench.gateways.pop(TOKEN)
            bench.waiting.release.set()

        task = bench.task(json.dumps([INIT, WAIT, {"do": "calls", "many": [POST]}, RESULT]))
        with anyio.fail_after(60):
            await ClaudeRuntime().run(task)
    (answer,) = told(bench)
    assert json.loads(answer["result"]["content"][0]["text"])["failure"]["code"] == "session_closed"
    assert bench.calls() == [("demo_wait", None), ("demo_post", "session_closed")]


@pytest.mark.parametrize(
    ("behaviour", "detail"),
    [
        ("rejects", "the agent refused the handshake: no such control request"),
        ("mute", "the agent did not answer the handshake: its tools were not there within 0.7 seconds"),
        ("leaves", "the agent ended before it answered the handshake"),
    ],
)
async def test_without_a_handshake_it_is_told_nothing_and_another_edge_may_be_tried(
    bench: Bench, marked: Marked, behaviour: str, detail: str
) -> None:
    configure(bench, model=behaviour, start_timeout_seconds=0.7)
    outcome = await bench.play(ClaudeRuntime(), [{"do": "spawn", "seconds": marked.seconds}, INIT, RESULT])
    assert (outcome.reason, outcome.detail) == ("edge_failed", detail)
    assert isinstance(outcome.fallback, ClaudeRuntime)
    assert outcome.fallback.edge == "run-http"
    heard = bench.isolation.home / "heard.txt"
    assert (behaviour == "leaves" or "interrupt" in heard.read_text(), marked.pids()) == (True, [])
    assert not heard.exists() or marked.seconds not in heard.read_text()
    assert [name for name, _ in bench.events] == ["edge_started", "agent_started", "edge_stopped", "agent_ended"]


async def fallback_after(bench: Bench, runtime: ClaudeRuntime, *steps: dict[str, Any]) -> AgentOutcome:
    outcome = await bench.play(runtime, [*steps, {"do": "init", "status": "failed"}, {"do": "hang"}])
    assert outcome.reason == "edge_failed", outcome
    return outcome


async def test_only_auto_falls_back_and_only_before_a_call(bench: Bench) -> None:
    assert (await fallback_after(bench, ClaudeRuntime())).fallback is not None
    assert (await fallback_after(bench, ClaudeRuntime("auto"))).fallback is not None
    assert (await fallback_after(bench, ClaudeRuntime("inband"))).fallback is None
    worked: list[dict[str, Any]] = [{"do": "connect"}, {"do": "calls", "many": [POST]}]
    assert (await fallback_after(bench, ClaudeRuntime(), *worked)).fallback is None


async def test_the_turns_end_comes_before_the_handshakes(bench: Bench) -> None:
    configure(bench, model="mute", turn_timeout_seconds=0.5)
    outcome = await bench.play(ClaudeRuntime(), [INIT, RESULT])
    assert (outcome.reason, outcome.fallback) == ("turn_timeout", None)


async def test_an_agent_that_asks_and_does_not_read_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.worker.claude_input.MAX_UNREAD_BYTES", 1_000_000)
    outcome = await bench.play(ClaudeRuntime(), [INIT, {"do": "greedy"}])
    assert (outcome.reason, outcome.detail) == ("agent_error", "the agent does not read the answers to what it asks")


async def test_a_session_of_another_edge_is_refused_before_anything_starts(bench: Bench) -> None:
    with pytest.raises(ValueError, match="a session of the edge inband in a runtime that serves run-http"):
        await bench.play(ClaudeRuntime("run-http"), [INIT, RESULT])
    with pytest.raises(ValueError, match="not stdio"):
        ClaudeRuntime("stdio")
    assert bench.events == []
