"""C-26: what the agent's processes can see. C-27: after a run its token is dead, and only that one.

C-26.d is the real clients' (`tests/system/test_claude_real.py`, `tests/system/test_codex_real.py`), C-27.c is in
`tests/worker/test_runs_apart.py`. What a run's own processes see is asked of a trusted hook, which lives in the run's
isolation like everything else (D9).
"""

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from hostside.app.host import App
from hostside.core.gateway import Gateway
from hostside.edges.http_server import serve_on
from hostside.edges.mcp_http import http_app
from hostside.worker.agent import AgentOutcome
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.claude import ClaudeRuntime
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, probe_levels
from tests.cases.rows import rows
from tests.support.agent_bench import MODEL_KEY, TOKEN, Bench, fake_claude_in, settings
from tests.support.edge_tools import EdgeTools
from tests.support.gateways import make_gateway
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world, open_host, status, work_held
from tests.support.host_world import HostWorld
from tests.support.http_edges import ACCEPT, TOKEN_1, TOKEN_2, modern_body, modern_headers

pytestmark = [pytest.mark.anyio, pytest.mark.system]
CANARY = "CANARY-0123456789abcdef"
HOOK = "---\nhooks:\n  before_run: '{script}'\n---\nWork.\n"


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    return a_held_world(tmp_path)


@pytest.fixture
def app(world: HostWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    with open_host(world, monkeypatch) as opened:
        yield opened


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A run of the stand-in for Claude Code without a sandbox."""
    for name in ("workspace", "home"):
        (tmp_path / name).mkdir(mode=0o700)
    isolation = RunIsolation(
        level=IsolationLevel.HOME,
        workspace=tmp_path / "workspace",
        home=tmp_path / "home",
        environment=EnvironmentSource(base={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}),
    )
    return Bench(isolation=isolation, settings=settings("claude", fake_claude_in(tmp_path)))


async def play_and_look(bench: Bench, look: Callable[[], None]) -> None:
    """Play a run with one call in flight, and look around while it is."""
    async with anyio.create_task_group() as tasks:

        async def during() -> None:
            await bench.waiting.began.wait()
            look()
            bench.waiting.release.set()

        tasks.start_soon(during)
        outcome = await bench.play(
            ClaudeRuntime("run-http"), [{"do": "init"}, {"do": "call", "tool": "demo_wait"}, {"do": "result"}]
        )
    assert outcome.reason == "completed"


@pytest.fixture(params=["bwrap", "home"])
def level(request: pytest.FixtureRequest) -> str:
    found = probe_levels().status(IsolationLevel(request.param))
    if not found.available:
        pytest.skip(f"isolation level {request.param} not available: {found.reason}")
    return str(request.param)


def run_with_hook(world: HostWorld, script: str, level: str, environment: dict[str, str]) -> Path:
    """Run an issue whose trusted `before_run` is `script`, and return its workspace."""
    workflow = world.folder / "WORKFLOW.md"
    workflow.write_text(HOOK.format(script=script), encoding="utf-8")
    assert world.run("workflow", "trust", str(workflow)).exit_code == 0
    ended = world.run("run", "DEMO-1", "--workflow", str(workflow), "--isolation", level, "--json", extra=environment)
    assert ended.exit_code == 0, ended.err + ended.out
    return world.workspace("DEMO-1")


def test_c_26_a_no_secret_of_the_host_is_in_the_environment_of_a_runs_process(world: HostWorld, level: str) -> None:
    (row,) = rows("C-26.a")
    workspace = run_with_hook(world, "env > seen.txt", level, dict.fromkeys(row.input["host_env"], CANARY))
    seen = (workspace / "seen.txt").read_text(encoding="utf-8")
    names = {line.partition("=")[0] for line in seen.splitlines()}
    assert "HOSTSIDE_ISSUE_IDENTIFIER=DEMO-1" in seen
    assert (names & set(row.input["host_env"]), CANARY in seen) == (set(), not row.expect["child_env_contains_none"])


async def test_c_26_b_no_process_of_the_machine_has_token_or_key_in_its_arguments(bench: Bench) -> None:
    (row,) = rows("C-26.b")
    assert row.input["during"] == "run"
    seen: list[bytes] = []
    await play_and_look(bench, lambda: seen.extend(command_lines()))
    assert any(str(bench.settings.executable).encode() in line for line in seen)
    secrets = [secret.encode() for secret in (TOKEN, MODEL_KEY)]
    found = [line for line in seen if any(secret in line for secret in secrets)]
    assert found == row.expect["argv_of_any_process_contains"]


def command_lines() -> Iterator[bytes]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "cmdline").read_bytes()
            except OSError:
                continue


def test_c_26_c_git_has_no_credential_for_the_tracker_inside(world: HostWorld, level: str) -> None:
    (row,) = rows("C-26.c")
    home = world.folder / "home"
    contents = {
        ".netrc": f"machine tracker.example login x password {CANARY}\n",
        ".git-credentials": f"https://x:{CANARY}@tracker.example\n",
        ".config/gh/hosts.yml": f"tracker.example:\n  oauth_token: {CANARY}\n",
        ".ssh/id_test": f"{CANARY}\n",
    }
    assert set(contents) == set(row.input["host_home"])
    for name, text in {**contents, ".gitconfig": "[credential]\n\thelper = store\n"}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    script = 'printf "protocol=https\\nhost=tracker.example\\n\\n" | git credential fill > seen.txt 2> said.txt; true'
    workspace = run_with_hook(world, script, level, {})
    assert (workspace / "seen.txt").read_text() == ""
    assert "terminal prompts disabled" in (workspace / "said.txt").read_text()
    assert row.expect["child_gets_credential"] is False


async def test_c_26_e_the_configuration_is_no_file_anywhere_and_holds_no_secret_but_the_token(
    bench: Bench, tmp_path: Path
) -> None:
    (row,) = rows("C-26.e")
    holding: list[Path] = []

    def look() -> None:
        # What the stand-in wrote down itself is its own report, and the only exception.
        found = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "report.json"]
        holding.extend(path for path in found if TOKEN.encode() in path.read_bytes())

    await play_and_look(bench, look)
    report = json.loads((bench.isolation.home / "report.json").read_text(encoding="utf-8"))
    config = report["argv"][report["argv"].index("--mcp-config") + 1]
    assert (holding, config.startswith("/dev/fd/"), TOKEN in report["config"]) == ([], True, True)
    assert (MODEL_KEY in report["config"]) is row.expect["contains_host_secret"]


async def test_c_27_a_after_the_end_the_token_is_refused_within_a_second(app: App) -> None:
    (row,) = rows("C-27.a")

    async def at_once(held: Held) -> AgentOutcome:
        assert await status(held) == 200
        return DONE

    first = HeldRuntime(at_once)
    await work_held(app, "DEMO-1", first)
    (old,) = first.seen
    with anyio.fail_after(row.expect["within_ms"] / 1_000):
        assert await status(old) is None  # nobody is there any more
    answers: list[int | None] = []

    async def ask(_held: Held) -> AgentOutcome:
        answers.append(await status(old))
        return DONE

    await work_held(app, "DEMO-2", HeldRuntime(ask, port=old.port))
    assert answers == row.expect["http_status"]


async def test_c_27_b_an_open_stream_and_a_call_in_flight_end_with_their_run(app: App, world: HostWorld) -> None:
    (row,) = rows("C-27.b")
    tools, streamed = EdgeTools(), []

    async def call(held: Held) -> None:
        body = modern_body("tools/call", {"name": "steady", "arguments": {}, "_meta": {"progressToken": 1}})
        names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
        headers = {"authorization": f"Bearer {held.token}", "accept": ACCEPT, **names}
        url = f"http://127.0.0.1:{held.port}/mcp"
        async with (
            httpx.AsyncClient(trust_env=False, timeout=20.0) as client,
            client.stream("POST", url, json=body, headers=headers) as answer,
        ):
            with contextlib.suppress(httpx.HTTPError):
                async for piece in answer.aiter_text():
                    streamed.append(piece)
                    flowing.set()

    async def leave_a_call_behind(held: Held) -> AgentOutcome:
        left.start_soon(call, held)
        await flowing.wait()
        return DONE

    flowing = anyio.Event()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as left:
            await work_held(app, "DEMO-1", HeldRuntime(leave_a_call_behind), workspace_tools=lambda _git: tools.all())
    await app.receipts.flush()
    (receipt,) = world.receipts()
    assert (tools.cancelled, "notifications/progress" in "".join(streamed)) == (["steady"], row.expect["stream_closed"])
    assert '"result"' not in "".join(streamed)
    assert (receipt["outcome"], receipt["code"], receipt["effect"]) == ("failed", "cancelled", "none")


@asynccontextmanager
async def gateway_on(listener: socket.socket, token: str, gateway: Gateway) -> AsyncIterator[None]:
    """Serve one gateway behind one token on a listener, and let the listener go with it."""

    async def resolve(text: str) -> Gateway | None:
        return gateway if text == token else None

    address = f"127.0.0.1:{listener.getsockname()[1]}"
    edge, ready = http_app(resolve, allowed_hosts={address}), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve_on([listener], edge, ready=ready, before_stop=edge.close))
        await ready.wait()
        yield
        tasks.cancel_scope.cancel()


async def test_c_27_d_another_server_on_the_port_refuses_the_token_of_the_first() -> None:
    (row,) = rows("C-27.d")
    body = modern_body("tools/call", {"name": "demo_noarg", "arguments": {}})
    names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
    headers = {"authorization": f"Bearer {TOKEN_1}", "accept": ACCEPT, **names}
    tools, statuses = [EdgeTools(), EdgeTools()], []
    first = socket.create_server(("127.0.0.1", 0))
    port = first.getsockname()[1]
    with anyio.fail_after(20):
        for number, token in enumerate((TOKEN_1, TOKEN_2)):
            listener = first if number == 0 else socket.create_server(("127.0.0.1", port))
            gateway = make_gateway(tools[number].all(), edge="http", session_id=f"s-{number}")
            async with gateway_on(listener, token, gateway), httpx.AsyncClient(trust_env=False) as client:
                answer = await client.post(f"http://127.0.0.1:{port}/mcp", json=body, headers=headers)
                statuses.append(answer.status_code)
    assert statuses == [200, *row.expect["http_status"]]
    assert ([len(one.calls) for one in tools], row.expect["handler_called"]) == ([1, 0], False)
