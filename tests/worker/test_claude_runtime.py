"""Claude Code as an agent runtime on either edge, against a stand-in: how it is started, watched and ended (AX-35, A0-07)."""

import json
import os
import socket
import uuid
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from hostside.worker.claude import ClaudeRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support.agent_bench import MODEL_KEY, MODEL_TOKEN, OTHER_TOKEN, TOKEN, Bench, fake_claude_in, settings
from tests.worker.conftest import IsolationFactory, Marked

pytestmark = [pytest.mark.anyio, pytest.mark.system]

INIT = {"do": "init"}
RESULT = {"do": "result"}
HANG = {"do": "hang"}
WAIT = {"do": "call", "tool": "demo_wait"}
POST = {"do": "call", "tool": "demo_post", "arguments": {"body": "hello"}}


OVER_HTTP = pytest.mark.parametrize("edge", ["run-http"], indirect=True)


@pytest.fixture(params=["inband", "run-http"])
def edge(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def bench(isolate: IsolationFactory, folder: Path, edge: str) -> Bench:
    executable = fake_claude_in(folder)
    isolation = isolate(IsolationLevel.HOME)
    return Bench(isolation=isolation, settings=settings("claude", executable), session_edge=edge)


def runtime(bench: Bench) -> ClaudeRuntime:
    return ClaudeRuntime(bench.session_edge)


def configure(bench: Bench, **changes: Any) -> None:
    bench.settings = settings("claude", bench.settings.executable, **changes)


def report(bench: Bench) -> dict[str, Any]:
    """What the agent was started with."""
    text = (bench.isolation.home / "report.json").read_text("utf-8")
    (bench.isolation.home / "report.json").unlink()
    found: dict[str, Any] = json.loads(text)
    return found


def is_running(pid: object) -> bool:
    return Path(f"/proc/{pid}").exists()


def answers(bench: Bench) -> bool:
    """Whether the edge still does."""
    if bench.session_edge == "inband":
        return len(bench.named("edge_started")) != len(bench.named("edge_stopped"))
    with socket.socket() as client:
        return client.connect_ex(bench.edge) == 0


async def ask(bench: Bench, token: str) -> int:
    """The status of a request to the edge with `token`."""
    host, port = bench.edge
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"http://{host}:{port}/mcp",
            headers={"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"},
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "0"},
                },
            },
        )
    return answer.status_code


async def test_the_command_line_is_the_one_that_reads_nothing_but_the_host(bench: Bench) -> None:
    await bench.play(runtime(bench), [INIT, RESULT])
    argv = report(bench)["argv"]
    config = argv[argv.index("--mcp-config") + 1]
    session = argv[argv.index("--session-id") + 1]
    assert argv == [
        str(bench.settings.executable),
        "-p",
        *("--input-format", "stream-json"),
        *("--output-format", "stream-json"),
        "--verbose",
        "--include-partial-messages",
        *("--setting-sources", ""),
        "--strict-mcp-config",
        *("--mcp-config", config),
        *("--permission-mode", "dontAsk"),
        *("--allowedTools", "mcp__hostside,Bash,Edit,Glob,Grep,NotebookEdit,Read,Write"),
        *("--tools", "Bash,Edit,Glob,Grep,NotebookEdit,Read,Write"),
        *("--session-id", session),
    ]
    assert config.startswith("/dev/fd/")
    assert str(uuid.UUID(session)) == session


async def test_settings_become_arguments(bench: Bench) -> None:
    earlier = str(uuid.uuid4())
    configure(bench, native_tools="off", model="claude-x", options={"max_model_turns": "7", "effort": "low"})
    outcome = await bench.play(runtime(bench), [INIT, RESULT], resume=earlier)
    argv = report(bench)["argv"]
    assert argv[argv.index("--allowedTools") :] == [
        *("--allowedTools", "mcp__hostside"),
        *("--tools", ""),
        *("--resume", earlier),
        *("--model", "claude-x"),
        *("--max-turns", "7"),
        *("--effort", "low"),
    ]
    assert (outcome.reason, outcome.agent_session_id) == ("completed", earlier), outcome


@pytest.mark.parametrize("changes", [{"model": "--dangerously-skip-permissions"}, {"options": {"effort": "-x"}}])
async def test_a_value_that_could_be_an_option_is_refused(bench: Bench, changes: dict[str, Any]) -> None:
    configure(bench, **changes)
    assert (await bench.play(runtime(bench), [])).reason == "start_failed"
    configure(bench)
    assert (await bench.play(runtime(bench), [], resume="--mcp-config=/tmp/x")).reason == "start_failed"


@OVER_HTTP
async def test_the_configuration_holds_one_server_with_a_url_and_one_header(bench: Bench) -> None:
    await bench.play(runtime(bench), [INIT, RESULT])
    host, port = bench.edge
    assert host == "127.0.0.1"
    assert json.loads(report(bench)["config"]) == {
        "mcpServers": {
            "hostside": {
                "type": "http",
                "url": f"http://127.0.0.1:{port}/mcp",
                "headers": {"Authorization": f"Bearer {TOKEN}"},
                "alwaysLoad": True,
                "timeout": 60_000,
            }
        }
    }


async def test_the_environment_holds_the_model_token_and_no_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_TOKEN", "LINEAR_API_KEY", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "X_CUSTOM_SECRET"):
        monkeypatch.setenv(name, "canary-value")
    await bench.play(runtime(bench), [INIT, RESULT])
    environment = report(bench)["environment"]
    home = str(bench.isolation.home)
    own = {
        "ANTHROPIC_API_KEY": MODEL_TOKEN,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "NO_PROXY": "127.0.0.1,localhost",
        "TMPDIR": f"{home}/tmp",
    }
    url = environment.pop("ANTHROPIC_BASE_URL")
    # Python itself adds LC_CTYPE to its environment in a C locale.
    environment.pop("LC_CTYPE", None)
    assert environment == bench.isolation.environment(own)
    assert url.startswith("http://127.0.0.1:")
    assert not any(secret in json.dumps(environment) for secret in ("canary-value", MODEL_KEY))


async def test_token_and_prompt_are_in_no_argument_variable_or_file(bench: Bench) -> None:
    await bench.play(runtime(bench), [{"do": "say", "text": "prompt canary"}, INIT, RESULT])
    started = report(bench)
    assert TOKEN not in json.dumps([started["argv"], started["environment"]])
    assert "prompt canary" not in json.dumps([started["argv"], started["environment"]])
    files = [path for root in (bench.isolation.home, bench.isolation.workspace) for path in root.rglob("*")]
    assert [path for path in files if path.is_file()] == []


async def test_the_edge_is_served_before_the_child_and_after_it(bench: Bench) -> None:
    await bench.play(
        runtime(bench), [INIT, POST, {"do": "say", "text": "hi"}, {"do": "native", "tool": "Bash"}, RESULT]
    )
    assert [name for name, _ in bench.events] == [
        *("edge_started", "agent_started", "agent_ready"),
        *("agent_message", "agent_native_tool", "agent_usage"),
        *("edge_stopped", "agent_ended"),
    ]


async def test_a_call_reaches_the_gateway_once_and_has_its_receipt(bench: Bench) -> None:
    outcome = await bench.play(runtime(bench), [INIT, POST, RESULT])
    (started,) = bench.receipts.starts
    assert (outcome.reason, bench.calls(), started.issue_id) == ("completed", [("demo_post", None)], "id-DEMO-1")


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([INIT, RESULT], "completed"),
        ([INIT, {"do": "raw", "line": "no JSON"}, RESULT], "completed"),
        ([INIT, {"do": "result", "is_error": True}], "agent_error"),
        ([INIT, {"do": "result", "terminal_reason": "api_error", "api_error_status": 429}], "rate_limited"),
        ([INIT, {"do": "result", "terminal_reason": "api_error", "api_error_status": 503}], "model_unavailable"),
        ([INIT, {"do": "result", "subtype": "error_max_turns", "is_error": True}], "max_turns"),
        ([INIT, {"do": "leave"}], "no_result"),
        ([INIT, {"do": "leave", "code": 3}], "agent_exited"),
        ([INIT, {"do": "leave", "by_signal": 9}], "agent_exited"),
        ([{"do": "leave", "code": 1}], "start_failed"),
        ([{"do": "init", "without": ["demo_post"]}, HANG], "tools_missing"),
        ([{"do": "init", "extra": ["WebFetch"]}, HANG], "tools_missing"),
    ],
)
async def test_every_end_has_its_reason(bench: Bench, steps: list[dict[str, Any]], reason: str) -> None:
    outcome = await bench.play(runtime(bench), steps)
    assert outcome.reason == reason, outcome
    assert not is_running(bench.named("agent_started")[0]["pid"])
    if reason == "completed":
        assert outcome.exit_code == 0


async def test_an_agent_that_has_not_found_its_server_is_ended(bench: Bench) -> None:
    outcome = await bench.play(runtime(bench), [{"do": "init", "status": "failed"}, HANG])
    reason = "edge_failed" if bench.session_edge == "inband" else "tools_missing"
    assert (outcome.reason, outcome.detail) == (reason, "the MCP server hostside is failed | interrupted")
    assert not is_running(bench.named("agent_started")[0]["pid"])


@pytest.mark.parametrize(
    ("changes", "steps", "reason"),
    [
        ({"start_timeout_seconds": 0.7}, [HANG], "tools_missing"),
        ({"stall_timeout_seconds": 0.3}, [INIT, HANG], "stalled"),
        ({"stall_timeout_seconds": 0.3}, [INIT, {"do": "hang", "stubborn": True}], "stalled"),
        ({"turn_timeout_seconds": 1.5}, [INIT, HANG], "turn_timeout"),
        ({"turn_timeout_seconds": 1.5}, [INIT, {"do": "flood"}], "turn_timeout"),
        ({"turn_timeout_seconds": 1.5, "stall_timeout_seconds": 0.0}, [INIT, WAIT], "turn_timeout"),
    ],
)
async def test_an_agent_that_does_not_go_on_is_ended(
    bench: Bench, marked: Marked, changes: dict[str, Any], steps: list[dict[str, Any]], reason: str
) -> None:
    configure(bench, **changes)
    steps = [{"do": "spawn", "seconds": marked.seconds}, *steps]
    outcome = await bench.play(runtime(bench), steps)
    assert outcome.reason == reason, outcome
    await marked.gone()
    assert not answers(bench)


async def test_an_agent_that_does_not_read_is_ended(bench: Bench) -> None:
    configure(bench, start_timeout_seconds=0.7, model="deaf")
    outcome = await bench.play(runtime(bench), [{"do": "say", "text": "x" * 300_000}])
    assert outcome.reason == ("edge_failed" if bench.session_edge == "inband" else "tools_missing"), outcome
    assert not is_running(bench.named("agent_started")[0]["pid"])
    assert not answers(bench)


async def test_a_tool_call_holds_the_silence_clock(bench: Bench) -> None:
    configure(bench, stall_timeout_seconds=0.5)
    outcome = await bench.play(runtime(bench), [INIT, {"do": "call", "tool": "demo_slow"}, RESULT])
    assert (outcome.reason, bench.calls()) == ("completed", [("demo_slow", "timed_out")])


@pytest.mark.parametrize("number", [9, 15])
async def test_an_agent_killed_in_a_call_leaves_a_receipt_and_nothing_else(
    bench: Bench, marked: Marked, number: int
) -> None:
    async with anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _() -> None:
            await bench.waiting.began.wait()
            os.kill(int(str(bench.named("agent_started")[0]["pid"])), number)

        outcome = await bench.play(runtime(bench), [INIT, {"do": "spawn", "seconds": marked.seconds}, WAIT, RESULT])
    assert (outcome.reason, outcome.exit_code) == ("agent_exited", 128 + number)
    assert bench.calls() == [("demo_wait", "cancelled")]
    await marked.gone()
    assert not answers(bench)


async def test_cancellation_ends_agent_call_and_edge(bench: Bench, marked: Marked) -> None:
    async with anyio.create_task_group() as tasks:
        steps = [INIT, {"do": "spawn", "seconds": marked.seconds}, WAIT, RESULT]
        tasks.start_soon(bench.play, runtime(bench), steps)
        with anyio.fail_after(20):
            await bench.waiting.began.wait()
        tasks.cancel_scope.cancel()
    assert not is_running(bench.named("agent_started")[0]["pid"])
    assert bench.calls() == [("demo_wait", "cancelled")]
    # It was asked before it was ended, so it could say what it had used.
    assert (len(bench.named("agent_usage")), len(bench.named("edge_stopped"))) == (1, 1)
    await marked.gone()
    assert not answers(bench)


async def test_an_interrupted_agent_may_still_say_what_it_used(bench: Bench) -> None:
    configure(bench, turn_timeout_seconds=1.5)
    outcome = await bench.play(runtime(bench), [INIT, HANG])
    assert (outcome.reason, outcome.usage["input_tokens"], outcome.detail) == (
        "turn_timeout",
        11,
        "not done in 1.5 seconds | interrupted",
    )


@OVER_HTTP
async def test_only_the_runs_own_token_opens_its_edge_and_only_while_it_is_good(bench: Bench) -> None:
    seen: list[int] = []
    async with anyio.create_task_group() as tasks:

        @tasks.start_soon
        async def _() -> None:
            await bench.waiting.began.wait()
            seen.append(await ask(bench, TOKEN))
            seen.append(await ask(bench, OTHER_TOKEN))
            seen.append(await ask(bench, "hst_" + "x" * 43))
            own = bench.gateways.pop(TOKEN)
            seen.append(await ask(bench, TOKEN))
            bench.gateways[TOKEN] = own
            bench.waiting.release.set()

        await bench.play(runtime(bench), [INIT, WAIT, RESULT])
    assert seen == [200, 401, 401, 401]
    with pytest.raises(httpx.ConnectError):
        await ask(bench, TOKEN)


async def test_what_it_wrote_to_stderr_is_told_without_secrets_and_bounded(bench: Bench) -> None:
    noise = {"do": "stderr", "text": "n" * 50_000 + f"\nlast words with {TOKEN}, {MODEL_TOKEN} and {MODEL_KEY}\n"}
    outcome = await bench.play(runtime(bench), [INIT, noise, {"do": "leave", "code": 4}])
    assert outcome.detail == "last words with [redacted], [redacted] and [redacted]"


async def test_a_process_that_closes_its_output_and_stays_is_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostside.worker.run_clock.LINGER_SECONDS", 0.3)
    outcome = await bench.play(runtime(bench), [INIT, RESULT, {"do": "linger"}])
    assert (outcome.reason, outcome.exit_code) == ("completed", None)
    assert not is_running(bench.named("agent_started")[0]["pid"])


async def test_after_its_result_it_is_told_that_no_more_comes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # It waits for more until then, and nothing else would end it within the minute that this test has.
    monkeypatch.setattr("hostside.worker.run_clock.LINGER_SECONDS", 3_600.0)
    outcome = await bench.play(runtime(bench), [INIT, RESULT])
    assert (outcome.reason, outcome.exit_code) == ("completed", 0)


@pytest.mark.parametrize("kind", ["absent", "none", "no program", "no URL"])
async def test_an_agent_that_cannot_start_leaves_nothing(bench: Bench, folder: Path, kind: str) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    (folder / "text").write_text("no program", "utf-8")
    executables = {"absent": folder / "nowhere", "none": None, "no program": folder / "text"}
    executable = executables.get(kind, bench.settings.executable)
    url = "ftp://user:password@host/" if kind == "no URL" else "http://127.0.0.1:9"
    bench.settings = settings("claude", executable, model_base_url=url)
    outcome = await bench.play(runtime(bench), [])
    assert (outcome.reason, bench.named("agent_started")) == ("start_failed", [])
    # Where everything but the program itself was in order, there was an edge for a moment.
    events = ["edge_started", "edge_stopped", "agent_ended"] if kind == "no program" else ["agent_ended"]
    assert [name for name, _ in bench.events] == events
    assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_runs_leave_no_descriptor_open(bench: Bench) -> None:
    await bench.play(runtime(bench), [INIT, POST, RESULT])
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        await bench.play(runtime(bench), [INIT, POST, RESULT])
    assert len(os.listdir("/proc/self/fd")) == descriptors
