"""MCP over stdio and HTTP, and function calling, work the same issue as the agents do: the one recorded expectation of the
twin runs holds on them too (A0-01). Together with the twin runs these are all the edges there are."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from hostside.core.gateway import Gateway
from hostside.edges.descriptors import read_some, write_all
from hostside.edges.mcp_stdio import serve_stdio
from hostside.worker.agent import AgentOutcome
from tests.support.function_wire import DIALECTS, ask, call_item
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world, open_host, work_held
from tests.support.host_world import GREETING, git
from tests.support.http_edges import modern_body
from tests.system.test_twin_runs import EXPECTED, FACTS, script, steady

pytestmark = [pytest.mark.anyio, pytest.mark.system]
#: Calls one tool over an edge and returns the text that a model would read.
Ask = Callable[[str, Any], Awaitable[str]]


class _Answer:
    def __init__(self, text: str) -> None:
        self.text = text

    def json(self) -> Any:
        return json.loads(self.text)


async def play(call: Ask) -> list[str]:
    """Play the agents' own script over an edge."""
    answers: list[Any] = []
    for turn in script():
        steps = turn(answers) if callable(turn) else turn
        if isinstance(steps, list):
            answers += [_Answer(await call(step.tool, dict(step.arguments))) for step in steps]
    return [steady(answer.text) for answer in answers]


async def over_http(held: Held) -> list[str]:
    headers = {"Authorization": f"Bearer {held.token}"}
    url = f"http://{held.host}:{held.port}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):

        async def call(tool: str, arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            return "".join(getattr(block, "text", "") for block in result.content)

        return await play(call)


async def over_stdio(gateway: Gateway) -> list[str]:
    server_in, client_out = os.pipe()
    client_in, server_out = os.pipe()
    rest = b""

    async def call(tool: str, arguments: Any) -> str:
        nonlocal rest
        await write_all(
            client_out, json.dumps(modern_body("tools/call", {"name": tool, "arguments": arguments})).encode() + b"\n"
        )
        while b"\n" not in rest:
            rest += await read_some(client_in)
        line, _, rest = rest.partition(b"\n")
        return str(json.loads(line)["result"]["content"][0]["text"])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_stdio(gateway, stdin_fd=server_in, stdout_fd=server_out))
        answers = await play(call)
        os.close(client_out)
    for fd in (server_in, client_in, server_out):
        os.close(fd)
    return answers


def over_functions(dialect: Any) -> Callable[[Gateway], Awaitable[list[str]]]:
    async def drive(gateway: Gateway) -> list[str]:
        async def call(tool: str, arguments: Any) -> str:
            (answer,) = await ask(gateway, dialect, call_item(dialect, tool, arguments))
            return answer.text

        return await play(call)

    return drive


def on_the_session(edge: str, drive: Callable[[Gateway], Awaitable[list[str]]], texts: list[str]) -> HeldRuntime:
    async def work(held: Held) -> AgentOutcome:
        texts.extend(await drive(held.task.gateway))
        return DONE

    return HeldRuntime(work, edge=edge)


def over_the_wire(texts: list[str]) -> HeldRuntime:
    async def work(held: Held) -> AgentOutcome:
        texts.extend(await over_http(held))
        return DONE

    return HeldRuntime(work)


EDGES = ["run-http", "stdio", *(f"functions-{dialect}" for dialect in DIALECTS)]


async def test_every_other_edge_gives_the_same_results_and_receipts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, tuple[list[str], list[tuple[Any, ...]]]] = {}
    for name in EDGES:
        folder = tmp_path / name
        folder.mkdir()
        world = a_held_world(folder)
        texts: list[str] = []
        if name == "run-http":
            runtime = over_the_wire(texts)
        elif name == "stdio":
            runtime = on_the_session("stdio", over_stdio, texts)
        else:
            runtime = on_the_session("functions", over_functions(name.removeprefix("functions-")), texts)
        with open_host(world, monkeypatch) as app:
            report = await work_held(app, "DEMO-1", runtime)
        assert report.ok, (name, report)
        receipts = world.receipts()
        assert [(row["tool"], row["outcome"], row["code"], row["effect"]) for row in receipts] == EXPECTED, name
        assert git(world.workspace("DEMO-1"), "show", "HEAD:greeting.py") == GREETING.replace("Helo", "Hello")
        told[name] = texts, [tuple(row[fact] for fact in FACTS) for row in receipts]
    first = told.pop("run-http")
    for name, other in told.items():
        assert other == first, name


def test_the_script_is_the_agents_own() -> None:
    assert len(EXPECTED) == sum(1 for turn in script() if isinstance(turn, list) or callable(turn))
