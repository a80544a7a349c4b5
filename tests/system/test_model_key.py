"""The real agents work with a token of their run; the key of their model never leaves the host (D10, D24, R-333)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_script import Call, Say, Script, Turn
from tests.support.clients import find_claude, find_codex
from tests.support.host_world import Finished, HostWorld, make_world
from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_openai import StubOpenAI

pytestmark = [pytest.mark.anyio, pytest.mark.system]
KEY = "sk-real-model-key-0123456789abcdef"
AGENTS = pytest.mark.parametrize("agent", ["claude", "codex"])
VARIABLE = {"claude": "ANTHROPIC_API_KEY", "codex": "HOSTSIDE_MODEL_TOKEN"}
DONE: list[Turn] = [[Call("file_issue_get")], [Call("file_issue_move", {"target_state": "Done"})], Say("done")]
# The agent's shell has what the agent has (D24), and asks the model's port by itself: for another path, with another
# token, and for what it may have.
PROBE = """
token=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sed -n 's/^NAME=//p' | sort -u)
base=$(cat /proc/net/tcp | awk '$4 == "0A" {print $2}' | cut -d: -f2)
ask() {
    for port in $base; do
        exec 3<>/dev/tcp/127.0.0.1/$((16#$port)) || continue
        printf '%s %s HTTP/1.1\\r\\nhost: 127.0.0.1:%d\\r\\nauthorization: Bearer %s\\r\\ncontent-length: 2\\r\\n' \\
            "$1" "$2" $((16#$port)) "$3" >&3
        printf 'connection: close\\r\\n\\r\\n{}' >&3
        head -1 <&3 | tr -d '\\r' | sed "s,^,$4 $2 ,"
    done
}
case $token in hst_*) echo 'a token of the run';; *) echo 'something else';; esac
ask POST /v1/files "$token" own
ask GET /v1/models "$token" own
ask GET /v1/models hst_0000000000000000000000000000000000000000000 other
"""


async def work(
    agent: str, folder: Path, play: Script, settings: str = 'key = "env:THE_KEY"\n', variable: str = "THE_KEY"
) -> tuple[HostWorld, Finished, StubAnthropic | StubOpenAI]:
    """Run the agent on an issue with this script as its model; the workflow lets it use its own shell."""
    world = make_world(folder)
    executable = find_claude() if agent == "claude" else find_codex()
    model: StubAnthropic | StubOpenAI = StubAnthropic(play) if agent == "claude" else StubOpenAI(play)
    async with model:
        world.configure(
            f'[agent]\nkind = "{agent}"\nexecutable = "{executable}"\nbase_url = "{model.base_url}"\n{settings}'
            + ('model = "gpt-5.5"\n' if agent == "codex" else "")
        )
        finished = await world.run_async("run", "DEMO-1", "--json", "--isolation", "bwrap", extra={variable: KEY})
    return world, finished, model


def presented(model: StubAnthropic | StubOpenAI) -> set[tuple[str | None, str | None]]:
    """The credentials that came with the requests: `x-api-key` and `authorization`."""
    return {(one.headers.get("x-api-key"), one.headers.get("authorization")) for one in model.received}


def shell(agent: str, command: str) -> Call:
    """A call of the agent's own shell."""
    if agent == "claude":
        return Call("Bash", {"command": command}, native=True)
    return Call("exec_command", {"cmd": command, "yield_time_ms": 30_000}, native=True)


@AGENTS
async def test_the_provider_gets_the_key_and_the_agent_a_token(agent: str, tmp_path: Path) -> None:
    command = f"cat > ask.sh <<'END'\n{PROBE.replace('NAME', VARIABLE[agent])}END\nbash ask.sh 2>&1"
    _, finished, model = await work(agent, tmp_path, [DONE[0], [shell(agent, command)], *DONE[1:]])
    assert finished.exit_code == 0, finished.err + finished.out
    assert presented(model) == {(KEY, None) if agent == "claude" else (None, f"Bearer {KEY}")}
    assert "hst_" not in repr([one.headers for one in model.received])
    answer = next(answer for answer in model.tool_results() if "/v1/files" in answer.text)
    told = [line for line in answer.text.splitlines() if line.startswith(("own", "other", "a token", "something"))]
    assert [line for line in told if "/v1/" not in line] == ["a token of the run"], answer.text
    # What else listens inside is the run's edge, which knows neither the path nor the token.
    assert "own /v1/files HTTP/1.1 404 Not Found" in told
    assert "other /v1/models HTTP/1.1 401 Unauthorized" in told
    assert model.unexpected == ["GET /v1/models"]  # the one that was allowed went on, with the host's key
    assert KEY not in answer.text + json.dumps(model.requests) + finished.out + finished.err
    assert_counted(finished.json()["usage"]["model"], agent, requests=len(model.received) + 1)


def assert_counted(counted: dict[str, Any], agent: str, *, requests: int) -> None:
    """Every answer of the scripted models costs the same."""
    answers = requests - 1
    each = {"claude": (11, 0, 7), "codex": (100, 40, 20)}[agent]
    assert counted == {
        "requests": requests,
        "estimated_requests": 0,
        "input_tokens": each[0] * answers,
        "cached_input_tokens": each[1] * answers,
        "cache_write_input_tokens": 0,
        "output_tokens": each[2] * answers,
    }


@AGENTS
@pytest.mark.parametrize(
    ("setting", "limit"),
    [("max_requests = 2\n", "agent.max_requests = 2"), ("max_tokens = 5\n", "agent.max_tokens = 5")],
)
async def test_a_budget_ends_the_run_and_says_so(agent: str, setting: str, limit: str, tmp_path: Path) -> None:
    _, finished, model = await work(agent, tmp_path, DONE, f'key = "env:THE_KEY"\n{setting}')
    report = finished.json()
    assert (finished.exit_code, report["reason"]) == (1, "budget_exhausted"), finished.out
    assert limit in report["detail"]
    assert len(model.received) == (2 if "requests" in setting else 1)
    assert report["usage"]["model"]["exhausted"] == limit.split(" ")[0]


async def test_a_login_stays_with_the_host_as_a_key_does(tmp_path: Path) -> None:
    settings = 'key = "env:CLAUDE_CODE_OAUTH_TOKEN"\nkey_kind = "login"\n'
    _, finished, model = await work("claude", tmp_path, DONE, settings, "CLAUDE_CODE_OAUTH_TOKEN")
    assert finished.exit_code == 0, finished.err + finished.out
    assert presented(model) == {(None, f"Bearer {KEY}")}
    # The client asks as one that is logged in.
    assert all("oauth" in one.headers["anthropic-beta"] for one in model.received)


async def test_the_key_may_come_from_the_variable_that_the_agent_reads(tmp_path: Path) -> None:
    settings = 'key = "env:ANTHROPIC_API_KEY"\n'
    world, finished, model = await work("claude", tmp_path, DONE, settings, "ANTHROPIC_API_KEY")
    assert finished.exit_code == 0, finished.err + finished.out
    assert presented(model) == {(KEY, None)}
    files = [path for path in world.state.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


@AGENTS
async def test_a_model_that_needs_no_key_gets_none_and_no_token(agent: str, tmp_path: Path) -> None:
    _, finished, model = await work(agent, tmp_path, DONE, "")
    assert finished.exit_code == 0, finished.err + finished.out
    assert presented(model) == {(None, None)}


async def test_a_key_without_a_value_stops_before_anything_is_started(tmp_path: Path) -> None:
    _, finished, model = await work("claude", tmp_path, DONE, 'key = "env:NO_SUCH_KEY"\n')
    assert (finished.exit_code, model.received) == (2, [])
    assert "agent.key" in finished.err + finished.out
