"""`codex exec` as the agent of a run, against a fake of it: how it is started, what is told, how it ends (R-196, D24)."""

import json
import shlex
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.core.canonical import JsonObject
from hostside.edges.legacy_sessions import MAX_PER_OWNER
from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.codex import CodexRuntime
from hostside.worker.codex_exec import CodexExecRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support import fake_codex_exec
from tests.support.agent_bench import MODEL_KEY, MODEL_TOKEN, OTHER_TOKEN, TOKEN, Bench, settings
from tests.support.codex_runs import CodexRun, fake_codex, steps
from tests.support.fake_codex_exec import THREAD
from tests.support.gateways import make_gateway
from tests.worker.conftest import IsolationFactory, Marked

pytestmark = [pytest.mark.anyio, pytest.mark.system]

Step = dict[str, Any]
DONE: Step = {"complete": {}}
USED: JsonObject = {
    "input_tokens": 100,
    "cached_input_tokens": 40,
    "cache_write_input_tokens": 0,
    "output_tokens": 20,
    "reasoning_output_tokens": 5,
    "total_tokens": 120,
}


@pytest.fixture
def bench(isolate: IsolationFactory, folder: Path) -> Bench:
    """A session without a sandbox; its agent is the fake."""
    program = folder / "codex"
    words = [sys.executable, "-I", "-S", str(Path(fake_codex_exec.__file__))]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return Bench(isolation=isolate(IsolationLevel.HOME), settings=settings("codex", program))


def change(bench: Bench, **changes: Any) -> None:
    """Change settings of the agent."""
    bench.settings = settings("codex", bench.settings.executable, **changes)


async def play(bench: Bench, *parts: Step, **task: Any) -> AgentOutcome:
    return await bench.play(CodexExecRuntime(), parts, **task)


def ending(outcome: AgentOutcome) -> tuple[str, str]:
    return outcome.state.value, outcome.reason


def report(bench: Bench) -> list[Step]:
    return [json.loads(line) for line in (bench.isolation.home / "report.jsonl").read_text().splitlines()]


def answers(bench: Bench) -> list[Any]:
    """What the agent read of each call: its structured result, or its failure's code."""
    read = [entry["answer"] for entry in report(bench) if "answer" in entry]
    return [
        answer and (answer.get("structuredContent") or json.loads(answer["content"][0]["text"])["failure"]["code"])
        for answer in read
    ]


# -- the start


async def test_it_is_given_one_required_server_and_no_secret_in_an_argument(bench: Bench) -> None:
    outcome = await play(bench, {"call": {"tool": "demo_post", "arguments": {"body": "hello"}}}, DONE)

    assert outcome == AgentOutcome(
        state=EndState.SUCCEEDED, reason="completed", agent_session_id=THREAD, exit_code=0, usage=USED, turns=1
    )
    start = report(bench)[0]
    words = start["argv"]
    assert (words[0], words[-1], start["cwd"]) == ("exec", "-", str(bench.isolation.workspace))
    flags = {"--json", "--skip-git-repo-check", "--ignore-user-config", "--ignore-rules", "--strict-config"}
    assert flags == {word for word in words[1:-1] if word.startswith("--")}
    told = tomllib.loads("\n".join(word for key, word in pairwise(words) if key == "-c"))
    host, port = bench.edge
    assert told["mcp_servers"] == {
        "hostside": {
            "url": f"http://{host}:{port}/mcp",
            "bearer_token_env_var": "HOSTSIDE_EDGE_TOKEN",
            "required": True,
            "default_tools_approval_mode": "approve",
            "startup_timeout_sec": 16,
            "tool_timeout_sec": 60,
        }
    }
    assert (told["sandbox_mode"], told["approval_policy"], told["web_search"]) == (
        "workspace-write",
        "never",
        "disabled",
    )
    assert told["shell_environment_policy"] == {"inherit": "core", "ignore_default_excludes": False}
    assert (told["features"], told["analytics"]) == ({"plugins": False}, {"enabled": False})
    assert start["environment"]["HOSTSIDE_EDGE_TOKEN"] == TOKEN
    assert start["environment"]["HOSTSIDE_MODEL_TOKEN"] == MODEL_TOKEN
    arguments = json.dumps(words)
    assert [text for text in (TOKEN, MODEL_TOKEN, MODEL_KEY, "demo_post") if text in arguments] == []
    assert MODEL_KEY not in json.dumps(start["environment"])


async def test_without_native_tools_it_has_no_shell_and_its_editor_writes_nothing(bench: Bench) -> None:
    change(bench, native_tools="off")
    await play(bench, DONE)
    words = set(report(bench)[0]["argv"])
    assert {"features.shell_tool=false", "features.unified_exec=false", 'sandbox_mode="read-only"'} <= words


@pytest.mark.parametrize(
    ("before", "reason", "detail"),
    [
        ({"deaf": True}, "start_failed", "the agent did not get ready in time"),
        (
            {"stderr": "Error: unknown configuration field `x`"},
            "start_failed",
            "the agent ended before its turn: Error: unknown configuration field `x`",
        ),
    ],
)
async def test_a_start_that_fails_says_why(bench: Bench, before: Step, reason: str, detail: str) -> None:
    change(bench, start_timeout_seconds=1.0 if "deaf" in before else 20.0)
    outcome = await play(bench, {"before": before})
    assert (outcome.state, outcome.reason, outcome.detail, outcome.turns) == (EndState.FAILED, reason, detail, 0)
    assert outcome.agent_session_id is None


async def test_without_its_tools_it_does_not_begin(bench: Bench) -> None:
    task = bench.task(json.dumps([DONE]))
    del bench.gateways[TOKEN]
    with anyio.fail_after(30):
        outcome = await CodexExecRuntime().run(task)
    assert (ending(outcome), outcome.turns) == (("failed", "tools_missing"), 0)
    assert "required MCP servers failed to initialize: hostside: HTTP 401" in outcome.detail
    assert bench.named("agent_thread") == []


async def test_what_cannot_be_started_is_an_outcome(bench: Bench, folder: Path) -> None:
    change(bench, model_base_url="ftp://model")
    wrong_url = await play(bench, DONE)
    bench.settings = settings("codex", None)
    no_program = await play(bench, DONE)
    bench.settings = settings("codex", folder / "missing")
    missing = await play(bench, DONE)
    assert [ending(outcome) for outcome in (wrong_url, no_program, missing)] == [("failed", "start_failed")] * 3
    assert bench.named("agent_started") == []


async def test_it_serves_sessions_of_its_own_edge_alone(bench: Bench) -> None:
    bench.gateways[TOKEN] = make_gateway((), edge="codex")
    with pytest.raises(ValueError, match="a session of the edge codex"):
        await play(bench, DONE)
    with pytest.raises(ValueError, match="serves the edge run-http"):
        CodexExecRuntime("codex")


async def test_the_token_of_another_run_is_no_way_in(bench: Bench) -> None:
    bench.gateways[TOKEN], own = bench.gateways[OTHER_TOKEN], bench.gateways[TOKEN]
    task = bench.task(json.dumps([DONE]))
    bench.gateways[TOKEN] = own
    with anyio.fail_after(30):
        assert (await CodexExecRuntime().run(task)).reason == "tools_missing"


# -- a thread that goes on


async def test_a_thread_is_resumed_and_its_usage_is_that_of_the_new_turn(bench: Bench) -> None:
    runtime = CodexExecRuntime()
    first = await bench.play(runtime, [DONE])
    second = await bench.play(runtime, [{"complete": {"turns": 3}}], resume=first.agent_session_id)
    unknown = await bench.play(CodexExecRuntime(), [{"complete": {"turns": 4}}], resume=first.agent_session_id)
    assert [outcome.agent_session_id for outcome in (first, second, unknown)] == [THREAD] * 3
    words = [entry["argv"][-3:] for entry in report(bench) if "argv" in entry]
    assert words[1:] == [["resume", THREAD, "-"]] * 2
    assert [facts["resumed"] for facts in bench.named("agent_thread")] == [False, True, True]
    twice = {name: 2 * count for name, count in USED.items() if isinstance(count, int)}
    assert (first.usage, second.usage, unknown.usage) == (USED, twice, {})


@pytest.mark.parametrize("thread", ["--last", "-", "", "a name", THREAD.upper(), f"{THREAD}\n"])
async def test_what_is_no_thread_id_is_not_resumed(bench: Bench, thread: str) -> None:
    outcome = await play(bench, DONE, resume=thread)
    assert (ending(outcome), outcome.detail) == (
        ("failed", "start_failed"),
        "the thread to resume is no thread id",
    )
    assert bench.named("agent_started") == []


# -- what is told


async def test_both_ways_of_running_it_tell_the_same_events(bench: Bench, folder: Path) -> None:
    workspace = str(bench.isolation.workspace)
    command = {"id": "item_2", "command": "ls", "cwd": workspace, "status": "completed"}
    change_of = [{"path": "a.py", "kind": "add"}]
    await play(
        bench,
        {"item": {"type": "error", "message": "be warned"}},
        {"item": {"type": "command_execution", **command, "exit_code": 0, "aggregated_output": "secret"}},
        {"line": {"type": "error", "message": "Reconnecting... 1/3"}},
        {"item": {"type": "file_change", "changes": change_of, "status": "completed"}},
        {"item": {"type": "agent_message", "text": f"it said {TOKEN}"}},
        {"line": {"type": "tomorrow"}},
        {"raw": {"text": "no JSON"}},
        {"fail": {"message": "exceeded retry limit, last status: 429 Too Many Requests"}},
    )
    error = {"message": "exceeded retry limit, last status: 429 Too Many Requests"}
    server_folder = folder / "server"
    server_folder.mkdir()

    def item(**fields: Any) -> Step:
        return {"notify": {"method": "item/completed", "item": fields}}

    run = CodexRun(
        bench.isolation,
        fake_codex(server_folder),
        (),
        steps(
            {"notify": {"method": "warning", "message": "be warned"}},
            item(type="commandExecution", **command, exitCode=0),
            {"notify": {"method": "error", "error": {"message": "Reconnecting... 1/3"}, "willRetry": True}},
            item(type="fileChange", id="item_3", changes=change_of, status="completed"),
            item(type="agentMessage", text="it said hst_token-of-this-run-0123456789"),
            {"raw": {"hex": b"no JSON".hex()}},
            {"notify": {"method": "error", "error": error, "willRetry": False}},
            {"complete": {"status": "failed", "error": error}},
        ),
    )
    with anyio.fail_after(30):
        await CodexRuntime().run(run.task)

    def story(events: Any) -> list[tuple[str, Any]]:
        # The start differs, and whoever waits for the answer to `turn/start` tells of it after what came meanwhile.
        skipped = ("agent_started", "edge_started", "edge_stopped", "agent_ended", "agent_thread", "agent_turn_started")
        return [
            (name, {key: value for key, value in facts.items() if key not in ("thread_id", "turn_id")})
            for name, facts in events
            if name not in (*skipped, "frame_rejected")
        ]

    assert story(bench.events) == story(run.events)
    assert [name for name, _ in story(bench.events)] == [
        "agent_warning",
        "agent_native_tool",
        "agent_model_retry",
        "agent_native_tool",
        "agent_message",
        "agent_error",
        "agent_turn_completed",
    ]
    assert bench.named("frame_rejected") == [{"reason": "not a JSON object"}]
    assert TOKEN not in repr(bench.events)


async def test_a_call_that_comes_back_without_a_result_is_told_as_dropped(bench: Bench) -> None:
    call = {"type": "mcp_tool_call", "server": "hostside", "tool": "demo_post", "result": None}
    other = call | {"server": "another"}
    outcome = await play(bench, {"item": call}, {"item": other}, {"item": {"event": "item.started", **call}}, DONE)
    assert outcome.reason == "completed"
    dropped = {"tool": "demo_post", "receipt_id": None}
    assert bench.named("call_result_dropped") == [{"call_id": "item_1", **dropped}, {"call_id": "item_3", **dropped}]


async def test_results_and_refusals_reach_it_and_leave_receipts(bench: Bench) -> None:
    outcome = await play(
        bench,
        {"call": {"tool": "demo_get", "arguments": {"body": "fine"}}},
        {"call": {"tool": "demo_get", "arguments": {"body": 5}}},
        {"call": {"tool": "demo_gett", "arguments": {}}},
        DONE,
    )
    assert outcome.reason == "completed"
    assert answers(bench) == [{"id": "fine"}, "invalid_arguments", None]
    assert bench.calls() == [("demo_get", None), ("demo_get", "invalid_arguments"), ("demo_gett", "unknown_tool")]


# -- calls sent twice


async def test_a_call_that_finds_no_session_is_sent_again_and_done_once(bench: Bench) -> None:
    outcome = await play(
        bench,
        {"call": {"tool": "demo_post", "arguments": {"body": "before"}}},
        {"sessions": {"count": MAX_PER_OWNER}},  # so many that its own is ended
        {"call": {"tool": "demo_post", "arguments": {"body": "after"}}},
        DONE,
    )
    assert outcome.reason == "completed"
    calls = [entry["status"] for entry in report(bench) if entry.get("method") == "tools/call"]
    assert calls == [200, 404, 200]
    assert answers(bench) == [{"id": "before"}, {"id": "after"}]
    assert bench.calls() == [("demo_post", None)] * 2


# -- the end


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
        ("unexpected status 401 Unauthorized: no, url: http://127.0.0.1:1/v1/responses", "agent_error"),
        ("unexpected status 503 Service Unavailable: no", "model_unavailable"),
        ("We\u2019re currently experiencing high demand, which may cause temporary errors.", "model_unavailable"),
        ('{"error":{"message":"a bad request with a 429 in it"}}', "agent_error"),
        ("a word of tomorrow", "agent_error"),
    ],
)
async def test_a_failed_turn_has_a_stable_reason(bench: Bench, message: str, expected: str) -> None:
    outcome = await play(bench, {"fail": {"message": f"{message} {MODEL_TOKEN}"}})
    assert (ending(outcome), outcome.exit_code, outcome.usage) == (("failed", expected), 1, {})
    assert outcome.detail == f"{message} [redacted]"
    assert bench.named("agent_model_retry") == []


@pytest.mark.parametrize(
    ("parts", "reason", "detail"),
    [
        ([{"exit": {"code": 0}}], "no_result", "the agent ended without an end of its turn"),
        (
            [{"stderr": {"text": f"panicked with {TOKEN}"}}, {"exit": {"code": 7}}],
            "agent_exited",
            "the agent ended in the middle of its turn: panicked with [redacted]",
        ),
        ([{"close_output": {}}], "agent_exited", "the agent ended in the middle of its turn"),
        ([{"complete": {"code": 3}}], "agent_exited", "the agent failed after its turn"),
        ([{"raw": {"filler": 70_000}}], "agent_error", "the agent wrote a line of more than 65536 bytes"),
    ],
)
async def test_every_other_end_is_a_failure_with_its_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, parts: list[Step], reason: str, detail: str
) -> None:
    monkeypatch.setattr("hostside.worker.codex_exec.MAX_EVENT_BYTES", 65_536)
    monkeypatch.setattr("hostside.worker.codex_exec._EXIT_SECONDS", 0.5)
    outcome = await play(bench, *parts)
    assert (ending(outcome), outcome.detail) == (("failed", reason), detail)


async def test_a_process_that_it_leaves_behind_holds_nothing_up(bench: Bench, marked: Marked) -> None:
    outcome = await play(bench, {"leave": {"seconds": marked.seconds}}, {"exit": {"code": 0}})
    assert outcome.reason == "no_result"
    # Without a sandbox whoever left the group is out of reach; the test ends it.
    for pid in marked.pids():
        await anyio.run_process(["kill", "-9", str(pid)], check=False)


async def test_one_that_does_not_exit_after_its_turn_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.worker.codex_exec._EXIT_SECONDS", 0.2)
    outcome = await play(bench, {"line": {"type": "turn.completed", "usage": {}}}, {"hold": {}})
    assert (ending(outcome), outcome.exit_code) == (("succeeded", "completed"), 137)


async def test_a_call_in_flight_is_no_silence_but_silence_is_a_stall(bench: Bench) -> None:
    change(bench, stall_timeout_seconds=0.6)
    outcome = await play(bench, {"call": {"tool": "demo_slow"}}, {"hold": {}})
    assert (ending(outcome), outcome.detail) == (("failed", "stalled"), "silent for 0.6 seconds")
    assert answers(bench) == ["timed_out"]


async def test_a_turn_is_bounded_even_while_a_call_runs(bench: Bench) -> None:
    change(bench, turn_timeout_seconds=2.0)
    outcome = await play(bench, {"call": {"tool": "demo_wait"}}, DONE)
    assert (ending(outcome), outcome.detail) == (("failed", "turn_timeout"), "not done in 2 seconds")
    assert bench.calls() == [("demo_wait", "cancelled")]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_cancelled_run_leaves_no_process_no_edge_and_closed_receipts(bench: Bench, stubborn: bool) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            parts: list[Step] = [{"before": {"stubborn": stubborn}}, {"call": {"tool": "demo_wait"}}, DONE]
            tasks.start_soon(lambda: play(bench, *parts))
            await bench.waiting.began.wait()
            tasks.cancel_scope.cancel()
    assert bench.calls() == [("demo_wait", "cancelled")]
    (started,) = bench.named("agent_started")
    assert not Path(f"/proc/{started['pid']}").exists()
    assert len(bench.named("edge_stopped")) == 1
    with pytest.raises(OSError, match="connection"):
        await anyio.connect_tcp(*bench.edge)
