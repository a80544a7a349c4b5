"""The scripted models against the real clients: what the tests build on must itself hold."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.support.agent_script import (
    SPENT,
    Call,
    Cut,
    Hang,
    HttpError,
    JsonObject,
    OfferedTool,
    Say,
    Script,
    Slow,
    ToolAnswer,
    Turn,
)
from tests.support.clients import find_claude, find_codex
from tests.support.codex_wire import CodexWire, codex_app_server
from tests.support.real_clients import (
    ANTHROPIC_KEY,
    LISTING_MODEL,
    OPENAI_KEY,
    claude_arguments,
    claude_environment,
    codex_arguments,
    codex_environment,
    run_client,
)
from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_openai import StubOpenAI

pytestmark = pytest.mark.anyio

LOOKUP: JsonObject = {
    "type": "function",
    "name": "lookup",
    "description": "Look a part up.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
}


@pytest.fixture(scope="module")
def claude() -> str:
    return str(find_claude())


@pytest.fixture(scope="module")
def codex() -> str:
    return str(find_codex())


async def run_claude(
    claude: str, model: StubAnthropic, folder: Path, *, retries: int = 0
) -> tuple[int, Mapping[str, Any]]:
    """One `claude -p` run in `folder`, with the tool `Read`; its exit code and its last event."""
    home = folder / "home"
    home.mkdir()
    done = await run_client(
        [claude, *claude_arguments("go", tools=["Read"], allowed=["Read"])],
        environment=claude_environment(model, home, retries=retries),
        cwd=folder,
    )
    last: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return done.exit_code, last


@asynccontextmanager
async def codex_thread(
    codex: str, model: StubOpenAI, folder: Path, *, name: str | None = None
) -> AsyncIterator[tuple[CodexWire, str]]:
    """An app-server and a thread with the dynamic tool `lookup`, which answers with what it was asked."""

    async def look_up(params: JsonObject) -> JsonObject:
        text = f"found {params['arguments']['id']}"
        return {"success": True, "contentItems": [{"type": "inputText", "text": text}]}

    home = folder / "home"
    home.mkdir()
    async with codex_app_server(
        [codex, "app-server", *codex_arguments(model, name=name)],
        environment=codex_environment(home),
        cwd=folder,
        answers={"item/tool/call": look_up},
    ) as wire:
        settings = {"cwd": str(folder), "sandbox": "read-only", "approvalPolicy": "never", "dynamicTools": [LOOKUP]}
        thread = await wire.request("thread/start", settings)
        yield wire, thread["thread"]["id"]


@pytest.mark.system
async def test_claude_ends_with_the_scripted_text(claude: str, tmp_path: Path) -> None:
    async with StubAnthropic([Say("all is well")]) as model:
        exit_code, last = await run_claude(claude, model, tmp_path)

    assert (exit_code, last["result"], model.requests_beyond_script, model.unexpected) == (0, "all is well", 0, [])
    assert [received.headers["x-api-key"] for received in model.received] == [ANTHROPIC_KEY]


@pytest.mark.system
async def test_claude_runs_a_scripted_call_and_the_next_turn_reads_its_answer(claude: str, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("seven spanners")

    async with StubAnthropic(
        [
            [Say("let me look"), Call("Read", {"file_path": str(note)}, native=True)],
            lambda answers: Say(f"I read: {answers[0].text}"),
        ]
    ) as model:
        exit_code, last = await run_claude(claude, model, tmp_path)

    answer = ToolAnswer("Read", "1\tseven spanners", False)
    assert (exit_code, last["result"], model.tool_results()) == (0, f"I read: {answer.text}", [answer])
    assert "Read" in {tool.name for tool in model.offered_tools()}


@pytest.mark.system
async def test_claude_repeats_a_failed_request_which_takes_the_next_turn(claude: str, tmp_path: Path) -> None:
    async with StubAnthropic([HttpError(500), Say("second time lucky")]) as model:
        exit_code, last = await run_claude(claude, model, tmp_path, retries=1)

    assert (exit_code, last["result"], len(model.requests)) == (0, "second time lucky", 2)


@pytest.mark.system
@pytest.mark.parametrize("status", [401, 429, 500])
async def test_claude_reports_the_scripted_status(claude: str, tmp_path: Path, status: int) -> None:
    async with StubAnthropic([HttpError(status, "scripted words")]) as model:
        exit_code, last = await run_claude(claude, model, tmp_path)

    assert (exit_code, last["is_error"], len(model.requests)) == (1, True, 1)
    assert str(status) in last["result"]
    assert "scripted words" in last["result"]


@pytest.mark.system
async def test_claude_asks_again_without_streaming_after_a_cut_stream(claude: str, tmp_path: Path) -> None:
    async with StubAnthropic([Cut(Say("never seen"), events=3), Say("whole")]) as model:
        exit_code, last = await run_claude(claude, model, tmp_path)

    assert (exit_code, last["result"]) == (0, "whole")
    assert [body.get("stream", False) for body in model.requests] == [True, False]


@pytest.mark.system
@pytest.mark.parametrize(
    ("code_mode", "name"),
    [(False, None), (False, LISTING_MODEL), (True, None)],
    ids=["function-calls", "unknown-model", "code-mode"],
)
async def test_codex_runs_dynamic_tools_and_the_next_turn_reads_their_answers(
    codex: str, tmp_path: Path, code_mode: bool, name: str | None
) -> None:
    script: Script = [
        [Call("lookup", {"id": "A1"}), Call("lookup", {"id": "B2"})],
        lambda answers: Say(" and ".join(answer.text for answer in answers)),
    ]
    async with (
        StubOpenAI(script, code_mode=code_mode) as model,
        codex_thread(codex, model, tmp_path, name=name) as (wire, thread),
    ):
        turn = await wire.turn(thread, "go")
        asked = sorted((request["params"]["tool"], request["params"]["arguments"]["id"]) for request in wire.asked)

    assert (turn["status"], turn["error"]) == ("completed", None)
    assert turn["items"][-1]["text"] == "found A1 and found B2"
    assert model.tool_results() == [("lookup", "found A1", None), ("lookup", "found B2", None)]
    assert asked == [("lookup", "A1"), ("lookup", "B2")]
    kind = "custom_tool_call" if code_mode else "function_call"
    assert {item["type"] for item in model.requests[1]["input"] if "call_id" in item} == {kind, f"{kind}_output"}
    assert [received.headers["authorization"] for received in model.received] == [f"Bearer {OPENAI_KEY}"] * 2
    assert (model.requests_beyond_script, model.unexpected) == (0, [])


@pytest.mark.system
async def test_codex_offers_a_dynamic_tool_as_a_function(codex: str, tmp_path: Path) -> None:
    async with StubOpenAI([Say("hello")]) as model, codex_thread(codex, model, tmp_path) as (wire, thread):
        await wire.turn(thread, "go")

    lookup = OfferedTool("lookup", LOOKUP["description"], LOOKUP["inputSchema"])
    assert [tool for tool in model.offered_tools() if tool.name == "lookup"] == [lookup]


@pytest.mark.system
async def test_codex_in_code_mode_declares_a_dynamic_tool_to_its_script_tool(codex: str, tmp_path: Path) -> None:
    async with (
        StubOpenAI([Say("hello")], code_mode=True) as model,
        codex_thread(codex, model, tmp_path) as (wire, thread),
    ):
        await wire.turn(thread, "go")

    offered = {tool.name: tool.description for tool in model.offered_tools()}
    assert "lookup" not in offered
    assert "lookup(args: { id: string; }): Promise<unknown>" in offered["exec"]


@pytest.mark.system
async def test_codex_in_code_mode_hands_over_the_output_of_a_slow_script_when_the_model_waits(
    codex: str, tmp_path: Path
) -> None:
    source = """// @exec: {"yield_time_ms": 100}
        await new Promise((resolve) => setTimeout(resolve, 500)); text(await tools.lookup({"id": "A1"}));"""

    def wait(answers: list[ToolAnswer]) -> Turn:
        running = re.search(r"Script running with cell ID (\w+)", answers[0].text)
        assert running is not None
        return [Call("wait", {"cell_id": running[1]}, native=True)]

    async with (
        StubOpenAI([[Call("exec", source, native=True)], wait, Say("done")], code_mode=True) as model,
        codex_thread(codex, model, tmp_path) as (wire, thread),
    ):
        await wire.turn(thread, "go")

    assert model.tool_results()[-1] == ("wait", "found A1", None)


@pytest.mark.system
@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (HttpError(401), {"httpConnectionFailed": {"httpStatusCode": 401}}),
        (HttpError(429), {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}),
        (HttpError(500), "internalServerError"),
        (Cut(Say("never seen"), events=3), "other"),
        (Hang(asyncio.Event(), Say("never seen"), at_most=0.1), "other"),
    ],
    ids=["401", "429", "500", "cut", "never-released"],
)
async def test_codex_reports_the_scripted_fault(codex: str, tmp_path: Path, fault: Turn, reported: object) -> None:
    async with StubOpenAI([fault]) as model, codex_thread(codex, model, tmp_path) as (wire, thread):
        turn = await wire.turn(thread, "go")

    assert (turn["status"], turn["error"]["codexErrorInfo"]) == ("failed", reported)


@pytest.mark.system
async def test_codex_waits_for_a_hanging_model_until_it_is_released(codex: str, tmp_path: Path) -> None:
    release = asyncio.Event()
    async with (
        StubOpenAI([Hang(release, Slow(Say("at last"), 0.1))]) as model,
        codex_thread(codex, model, tmp_path) as (wire, thread),
        asyncio.TaskGroup() as tasks,
    ):
        turn = tasks.create_task(wire.turn(thread, "go"))
        await model.arrival(1)
        assert not turn.done()
        release.set()

    assert turn.result()["items"][-1]["text"] == "at last"


def user_turn(text: str = "go") -> JsonObject:
    tools = [{"name": "Read", "description": "", "input_schema": {"type": "object"}}]
    return {"model": "m", "tools": tools, "messages": [{"role": "user", "content": text}]}


async def test_a_model_serves_on_the_listener_it_is_given() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async with StubAnthropic([Say("hello")], listener=listener) as model, httpx.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}/v1/messages", json=user_turn())

    assert model.base_url == f"http://127.0.0.1:{port}"
    assert answer.json()["content"] == [{"type": "text", "text": "hello"}]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_an_unexpected_path_gets_404_and_is_recorded_without_taking_a_turn() -> None:
    async with StubOpenAI([Say("hello")]) as model, httpx.AsyncClient() as client:
        answers = [
            await client.get(f"{model.base_url}/models"),
            await client.post(f"{model.base_url}/embeddings", json={}),
        ]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert (model.unexpected, model.requests) == (["GET /v1/models", "POST /v1/embeddings"], [])


async def test_a_client_that_asks_beyond_the_script_is_told_so_and_counted() -> None:
    async with StubAnthropic([]) as model, httpx.AsyncClient() as client:
        answer = await client.post(f"{model.base_url}/v1/messages", json=user_turn())

    assert (answer.json()["content"][0]["text"], model.requests_beyond_script) == (SPENT, 1)


async def test_an_exception_in_a_turn_reaches_the_test() -> None:
    def fails(_: list[ToolAnswer]) -> Turn:
        raise AssertionError("the model read something else")

    async def ask_twice() -> list[int]:
        async with StubAnthropic([fails, Say("unreachable")]) as model, httpx.AsyncClient() as client:
            answers = [await client.post(f"{model.base_url}/v1/messages", json=user_turn()) for _ in range(2)]
            statuses.extend(answer.status_code for answer in answers)
        return statuses

    statuses: list[int] = []
    with pytest.raises(AssertionError, match="the model read something else"):
        await ask_twice()
    assert statuses == [400, 400]


async def test_a_model_that_is_closed_lets_go_of_a_hanging_request() -> None:
    async with httpx.AsyncClient() as client:
        async with StubAnthropic([Hang(asyncio.Event(), Say("never"))]) as model:
            request = asyncio.create_task(client.post(f"{model.base_url}/v1/messages", json=user_turn(), timeout=30))
            await model.arrival(1)
        with anyio.fail_after(5):
            (outcome,) = await asyncio.gather(request, return_exceptions=True)

    assert isinstance(outcome, httpx.RemoteProtocolError)
