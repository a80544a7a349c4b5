"""The real `codex exec` as the agent of a run, its tools over HTTP, its model scripted (R-196, A0-04)."""

import asyncio
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from hostside.worker.agent import AgentOutcome
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.codex_exec import CodexExecRuntime
from hostside.worker.codex_launch import codex_binds
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, probe_levels
from hostside.worker.process_identity import children_of
from tests.support.agent_bench import MODEL_KEY, MODEL_TOKEN, TOKEN, Bench, settings
from tests.support.agent_script import Call, Hang, HttpError, Say, Script, ToolAnswer
from tests.support.clients import find_codex
from tests.support.real_clients import CODE_MODE_MODEL, FUNCTION_CALL_MODEL, LISTING_MODEL, SYSTEM_PATH
from tests.support.stub_openai import StubOpenAI
from tests.system.test_codex_real import USAGE

pytestmark = [pytest.mark.anyio, pytest.mark.system]

HELLO = {"body": "hello"}
NAMESPACE = "mcp__hostside"


@pytest.fixture(params=["bwrap", "home"])
def level(request: pytest.FixtureRequest) -> IsolationLevel:
    wanted = IsolationLevel(request.param)
    status = probe_levels().status(wanted)
    if not status.available:
        pytest.skip(f"isolation level {wanted} not available: {status.reason}")
    return wanted


@pytest.fixture
def bench(level: IsolationLevel) -> Iterator[Bench]:
    codex = find_codex()
    with tempfile.TemporaryDirectory(prefix="hostside-test-", ignore_cleanup_errors=True) as name:
        for part in ("workspace", "home"):
            Path(name, part).mkdir(mode=0o700)
        isolation = RunIsolation(
            level=level,
            workspace=Path(name, "workspace"),
            home=Path(name, "home"),
            environment=EnvironmentSource(base={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}),
            ro_binds=codex_binds(codex),
        )
        yield Bench(isolation=isolation, settings=settings("codex", codex))


@asynccontextmanager
async def model_for(
    bench: Bench, script: Script, *, code_mode: bool = False, **changes: Any
) -> AsyncIterator[StubOpenAI]:
    """The scripted model of one run; `changes` are settings of the agent."""
    async with StubOpenAI(script, namespace=NAMESPACE, code_mode=code_mode) as model:
        name = CODE_MODE_MODEL if code_mode else LISTING_MODEL
        made: dict[str, Any] = {"model": name, "model_base_url": model.base_url} | changes
        bench.settings = settings("codex", bench.settings.executable, **made)
        yield model


async def run(bench: Bench, prompt: str = "Do the work.", **task: Any) -> AgentOutcome:
    with anyio.fail_after(90):
        return await CodexExecRuntime().run(bench.task(prompt, **task))


async def is_closed(bench: Bench) -> bool:
    """Whether the edge is gone: nobody answers the run's token where it was."""
    host, port = bench.edge
    async with httpx.AsyncClient(trust_env=False) as client:
        try:
            await client.post(f"http://{host}:{port}/mcp", headers={"authorization": f"Bearer {TOKEN}"})
        except httpx.ConnectError:
            return [facts["edge"] for facts in bench.named("edge_stopped")] == ["run-http"]
    return False


def running_in(bench: Bench) -> list[int]:
    """Processes of this one that work in the run's workspace."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == bench.isolation.workspace:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def failure_code(answer: ToolAnswer) -> str | None:
    code: str | None = answer.json().get("failure", {}).get("code")
    return code


CONVERSATION: Script = [
    [Call("demo_get", {"body": "x" * 101}), Call("demo_get", {"body": 5})],
    [Call("demo_get", {"body": "é|\n“it” \u202e"}), Call("demo_post", HELLO)],
    [Call("demo_post", HELLO)],
    Say("done"),
]


@pytest.mark.parametrize("code_mode", [False, True], ids=["function-calls", "code-mode"])
async def test_every_outcome_reaches_the_model_and_leaves_its_receipt(bench: Bench, code_mode: bool) -> None:
    workspace = bench.isolation.workspace
    (workspace / "AGENTS.md").write_text("MARK-OF-THE-REPOSITORY")
    for folder in (workspace / ".codex", bench.isolation.home / ".codex"):
        folder.mkdir()
        (folder / "config.toml").write_text('developer_instructions = "MARK-OF-THE-REPOSITORY"\n')
    async with model_for(bench, CONVERSATION, code_mode=code_mode) as model:
        outcome = await run(bench)

    assert (outcome.reason, outcome.exit_code, outcome.turns) == ("completed", 0, 1), outcome
    assert (model.requests_beyond_script, model.unexpected) == (0, [])
    answers = model.tool_results()
    assert [(answer.tool, failure_code(answer)) for answer in answers] == [
        ("demo_get", "invalid_arguments"),
        ("demo_get", "invalid_arguments"),
        ("demo_get", None),
        ("demo_post", None),
        ("demo_post", None),
    ]
    assert answers[2].json() == {"id": "é|\n“it” \u202e"}
    assert (answers[3].json(), answers[4].json()) == ({"id": "hello"}, {"id": "hello", "unchanged": True})
    assert bench.calls() == [
        ("demo_get", "invalid_arguments"),
        ("demo_get", "invalid_arguments"),
        ("demo_get", None),
        ("demo_post", None),
        ("demo_post", None),
    ]
    sent = json.dumps(model.requests)
    assert "MARK-OF-THE-REPOSITORY" not in sent
    assert "Tools of Hostside, bound to issue DEMO-1" in json.dumps(model.requests[0])
    assert {received.headers["authorization"] for received in model.received} == {f"Bearer {MODEL_KEY}"}
    assert (TOKEN in sent, MODEL_TOKEN in sent) == (False, False)
    assert bench.named("agent_message") == [{"text": "done"}]
    assert bench.named("agent_configuration_removed") == [{"file": "config.toml"}]
    assert bench.named("call_result_dropped") == []
    (thread,) = bench.named("agent_thread")
    assert outcome.agent_session_id == thread["thread_id"]


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)  # Codex's own sandbox does not start below /tmp
async def test_the_token_is_in_no_file_argument_or_inherited_variable(bench: Bench) -> None:
    probe = "env; tr '\\0' '\\n' < /proc/$PPID/cmdline; pwd; echo made > made.txt"
    script: Script = [[Call("exec_command", {"cmd": probe}, native=True)], [Call("demo_post", HELLO)], Say("done")]
    async with model_for(bench, script) as model:
        outcome = await run(bench)
    assert outcome.reason == "completed", outcome
    told = model.tool_results()[0].text
    assert [secret for secret in (TOKEN, MODEL_TOKEN, MODEL_KEY) if secret in told] == []
    assert str(bench.isolation.workspace) in told
    assert (bench.isolation.workspace / "made.txt").read_text() == "made\n"
    (native,) = bench.named("agent_native_tool")
    assert (native["tool"], native["exit_code"], native["status"]) == ("exec_command", 0, "completed")
    for folder in (bench.isolation.home, bench.isolation.workspace):
        for file in filter(Path.is_file, folder.rglob("*")):
            assert TOKEN.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)
@pytest.mark.parametrize("name", [FUNCTION_CALL_MODEL, LISTING_MODEL, CODE_MODE_MODEL])
async def test_without_native_tools_the_agent_changes_nothing_by_itself(bench: Bench, name: str) -> None:
    code_mode = name == CODE_MODE_MODEL
    patch = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch"
    source = f"try {{ text(await tools.apply_patch({json.dumps(patch)})); }} catch (error) {{ text(String(error)); }}"
    attempt = (
        Call("exec", source, native=True) if code_mode else Call("exec_command", {"cmd": "touch made.txt"}, native=True)
    )
    script: Script = [attempt, [Call("demo_get", HELLO)], Say("done")]
    async with model_for(bench, script, code_mode=code_mode, model=name, native_tools="off") as model:
        outcome = await run(bench)
    assert outcome.reason == "completed", outcome
    assert [answer.text for answer in model.tool_results()][1:] == ['{"id":"hello"}']
    assert list(bench.isolation.workspace.iterdir()) == []
    assert {"exec_command", "view_image", "write_stdin"} & {tool.name for tool in model.offered_tools()} == set()


async def test_a_resumed_thread_keeps_its_history_and_has_the_tools_of_now(bench: Bench) -> None:
    runtime = CodexExecRuntime()
    async with model_for(bench, [Call("demo_get", {"body": "first"}), Say("once")]):
        first = await runtime.run(bench.task("Begin."))
    async with model_for(bench, [Call("demo_get", {"body": "second"}), Say("twice")]) as model:
        second = await runtime.run(bench.task("Go on.", resume=first.agent_session_id))
        assert [answer.text for answer in model.tool_results()] == ['{"id":"first"}', '{"id":"second"}']
    async with model_for(bench, [Say("thrice")]):
        third = await run(bench, "Go on.", resume=first.agent_session_id)

    assert {outcome.agent_session_id for outcome in (first, second, third)} == {first.agent_session_id}
    assert [facts["resumed"] for facts in bench.named("agent_thread")] == [False, True, True]
    # Another host process, or another runtime, does not know what the thread had used before.
    assert (first.usage, second.usage, third.usage) == (USAGE, USAGE, {})


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)
async def test_a_thread_that_is_not_there_does_not_start(bench: Bench) -> None:
    async with model_for(bench, [Say("no")]) as model:
        outcome = await run(bench, resume="01a22d82-d56e-7c41-ad76-c99d2dc432cb")
        assert model.requests == []
    assert (outcome.reason, "no rollout found" in outcome.detail) == ("start_failed", True), outcome


async def test_without_its_tools_no_model_is_asked(bench: Bench) -> None:
    async with model_for(bench, [Say("I work without tools.")]) as model:
        task = bench.task("Do the work.")
        del bench.gateways[TOKEN]
        with anyio.fail_after(60):
            outcome = await CodexExecRuntime().run(task)
        assert model.requests == []
    assert (outcome.state.value, outcome.reason, outcome.turns) == ("failed", "tools_missing", 0), outcome
    assert TOKEN not in repr((outcome, bench.events))


async def test_a_token_revoked_during_the_run_ends_its_calls(bench: Bench) -> None:
    def revoke(_answers: list[ToolAnswer]) -> list[Call]:
        del bench.gateways[TOKEN]
        return [Call("demo_post", {"body": "again"})]

    async with model_for(bench, [Call("demo_post", HELLO), revoke, Say("done")]) as model:
        task = bench.task("Do the work.")
        with anyio.fail_after(60):
            outcome = await CodexExecRuntime().run(task)
        assert model.tool_results()[1].text != model.tool_results()[0].text
    assert (outcome.reason, bench.calls()) == ("completed", [("demo_post", None)]), outcome


async def test_killed_in_a_call_it_leaves_a_receipt_and_no_process(bench: Bench) -> None:
    outcomes = []
    async with model_for(bench, [Call("demo_wait"), Say("done")]), anyio.create_task_group() as tasks:

        async def work() -> None:
            outcomes.append(await run(bench))

        tasks.start_soon(work)
        with anyio.fail_after(30):
            await bench.waiting.began.wait()
        (started,) = bench.named("agent_started")
        for pid in [*children_of(int(str(started["pid"]))), int(str(started["pid"]))]:
            await anyio.run_process(["kill", "-9", str(pid)], check=False)
    (outcome,) = outcomes
    assert (outcome.reason, outcome.exit_code) == ("agent_exited", 137), outcome
    assert bench.calls() == [("demo_wait", "cancelled")]
    assert bench.named("call_result_dropped") == [{"call_id": "item_1", "tool": "demo_wait", "receipt_id": None}]
    assert running_in(bench) == []
    assert await is_closed(bench)


async def test_cancelled_in_a_call_it_leaves_a_receipt_and_no_process(bench: Bench) -> None:
    async with model_for(bench, [Call("demo_wait"), Say("done")]), anyio.create_task_group() as tasks:
        tasks.start_soon(run, bench)
        with anyio.fail_after(30):
            await bench.waiting.began.wait()
        tasks.cancel_scope.cancel()
    assert bench.calls() == [("demo_wait", "cancelled")]
    assert running_in(bench) == []
    assert await is_closed(bench)


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)
async def test_a_model_that_hangs_ends_the_run_as_stalled(bench: Bench) -> None:
    hang = Hang(asyncio.Event(), Say("too late"))
    async with model_for(bench, [[Call("demo_post", HELLO)], hang], stall_timeout_seconds=2.0):
        outcome = await run(bench)
    assert (outcome.reason, bench.calls()) == ("stalled", [("demo_post", None)]), outcome
    assert running_in(bench) == []
    assert await is_closed(bench)


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)
async def test_a_call_longer_than_the_silence_allowed_is_no_silence(bench: Bench) -> None:
    script: Script = [Call("demo_slow"), Say("done")]
    async with model_for(bench, script, stall_timeout_seconds=0.6) as model:
        outcome = await run(bench)
        assert [failure_code(answer) for answer in model.tool_results()] == ["timed_out"]
    assert (outcome.reason, bench.calls()) == ("completed", [("demo_slow", "timed_out")]), outcome


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)
async def test_a_script_that_the_model_does_not_wait_for_loses_its_result_and_the_receipt_says_so(bench: Bench) -> None:
    source = '// @exec: {"yield_time_ms": 500}\ntext(await tools.mcp__hostside__demo_wait({}));'
    script: Script = [Call("exec", source, native=True), Say("done early")]
    async with model_for(bench, script, code_mode=True):
        outcome = await run(bench)
    assert (outcome.reason, bench.calls()) == ("completed", [("demo_wait", "cancelled")]), outcome
    (end,) = bench.receipts.ends
    assert end.effect.value == "unknown"
    assert [facts["tool"] for facts in bench.named("call_result_dropped")] == ["demo_wait"]


@pytest.mark.parametrize("level", ["bwrap"], indirect=True)
async def test_a_script_reads_whole_results_and_failures_of_the_hosts_tools(bench: Bench) -> None:
    source = (
        "const seen = [];\n"
        "for (const body of ['fine', 5]) {\n"
        "  const r = await tools.mcp__hostside__demo_get({body});\n"
        "  seen.push([r.isError ?? false, r.structuredContent ?? JSON.parse(r.content[0].text).failure.code]);\n"
        "}\n"
        "seen.push(ALL_TOOLS.map((tool) => tool.name).filter((name) => name.startsWith('mcp__hostside__')));\n"
        "text(JSON.stringify(seen));"
    )
    async with model_for(bench, [Call("exec", source, native=True), Say("done")], code_mode=True) as model:
        assert (await run(bench)).reason == "completed"
        (answer,) = model.tool_results()
    listed = [f"mcp__hostside__{name}" for name in bench.gateways[TOKEN].session.listed]
    assert answer.json() == [[False, {"id": "fine"}], [True, "invalid_arguments"], listed]


@pytest.mark.parametrize("level", ["home"], indirect=True)
@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "agent_error"), (429, "rate_limited"), (500, "model_unavailable"), (503, "model_unavailable")],
)
async def test_a_provider_that_keeps_failing_ends_the_run_with_its_reason(
    bench: Bench, status: int, reason: str
) -> None:
    async with model_for(bench, itertools.repeat(HttpError(status))) as model:
        outcome = await run(bench)
    assert (outcome.state.value, outcome.reason, outcome.exit_code) == ("failed", reason, 1), outcome
    assert len(model.requests) <= 16
    assert [facts["message"] for facts in bench.named("agent_error")] == [outcome.detail]
