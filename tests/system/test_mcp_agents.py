"""The real agents against the MCP edges: what Claude Code and Codex are offered, call, and read back (C-05, D21, D22)."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hostside.errors import FailureCode
from tests.support.agent_script import Call, Say, Turn
from tests.support.clients import ROOT, find_claude, find_codex
from tests.support.http_edges import TOKEN_1, Endpoint, endpoint
from tests.support.real_clients import (
    LISTING_MODEL,
    claude_arguments,
    claude_environment,
    codex_arguments,
    codex_environment,
    run_client,
)
from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_openai import StubOpenAI

pytestmark = [pytest.mark.anyio, pytest.mark.system]

TOKEN_VARIABLE = "HOSTSIDE_TEST_TOKEN"


SCRIPT: list[Turn] = [
    Call("echo", {"text": "hello"}),
    Call("demo_get", {"issue": "seven"}),
    Call("demo_noarg", {}),
    Say("done"),
]


async def run_claude(model: StubAnthropic, server: dict[str, Any], folder: Path) -> list[str]:
    """Run Claude Code with one MCP server; return the texts of the tool results that its model got."""
    home = folder / "home"
    home.mkdir()
    config = json.dumps({"mcpServers": {"hostside": {**server, "alwaysLoad": True}}})
    done = await run_client(
        [str(find_claude()), *claude_arguments("go", allowed=["mcp__hostside"], mcp_config=config)],
        environment=claude_environment(model, home),
        cwd=folder,
    )
    assert done.exit_code == 0, done.stderr
    return [answer.text for answer in model.tool_results()]


def agreed(texts: list[str]) -> None:
    echoed, refused, done = texts
    assert "hello" in echoed
    assert "invalid_arguments" in refused
    assert "/issue" in refused
    assert "done" in done


async def test_claude_code_calls_over_http(tmp_path: Path) -> None:
    async with endpoint() as door, StubAnthropic(SCRIPT) as model:
        server = {"type": "http", "url": door.url, "headers": {"Authorization": f"Bearer {TOKEN_1}"}}
        agreed(await run_claude(model, server, tmp_path))
        assert set(door.one.gateway.session.listed) <= {tool.name for tool in model.offered_tools()}
        recorded(door)
        assert [start.call_key is None for start in door.one.receipts.starts] == [True] * 3


async def test_claude_code_calls_over_stdio(tmp_path: Path) -> None:
    async with StubAnthropic(SCRIPT) as model:
        server = {
            "command": sys.executable,
            "args": ["-m", "tests.support.stdio_server"],
            "env": {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        }
        agreed(await run_claude(model, server, tmp_path))


async def test_codex_calls_over_http(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with endpoint() as door, StubOpenAI(SCRIPT, namespace="mcp__hostside") as model:
        settings = {
            "mcp_servers.hostside.url": f'"{door.url}"',
            "mcp_servers.hostside.bearer_token_env_var": f'"{TOKEN_VARIABLE}"',
            "mcp_servers.hostside.required": "true",
        }
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        done = await run_client(
            [
                str(find_codex()),
                "exec",
                "--skip-git-repo-check",
                "--json",
                *codex_arguments(model, name=LISTING_MODEL),
                *words,
                "go",
            ],
            environment={**codex_environment(home), TOKEN_VARIABLE: TOKEN_1},
            cwd=tmp_path,
        )
        assert done.exit_code == 0, done.stderr
        agreed([answer.text for answer in model.tool_results()])
        recorded(door)


def recorded(door: Endpoint) -> None:
    """The boundary saw each call as it was sent, and nobody else's run saw any."""
    ends = door.one.receipts.ends
    assert [end.code for end in ends] == [None, FailureCode.INVALID_ARGUMENTS, None]
    assert door.one.tools.calls == [("echo", {"text": "hello"}), ("done", {})]
    assert door.two.receipts.ends == []
