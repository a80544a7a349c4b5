"""What a run's token is to those who do not hold it: in no log, and the port alone opens nothing (AX-36, R-213 to R-223)."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from hostside.app.host import App
from hostside.worker.agent import AgentOutcome
from tests.support.gateways import ok
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world, open_host, status, work_held
from tests.support.host_world import HostWorld
from tests.support.http_edges import ACCEPT, modern_body, modern_headers

pytestmark = [pytest.mark.anyio, pytest.mark.system]


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    return a_held_world(tmp_path)


@pytest.fixture
def app(world: HostWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    with open_host(world, monkeypatch) as opened:
        yield opened


async def without_token(held: Held, **headers: str) -> int:
    """The status of a listing by somebody who knows where the edge is and nothing else."""
    body = modern_body("tools/list")
    names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        url = f"http://{held.host}:{held.port}/mcp"
        return (await client.post(url, json=body, headers={"accept": ACCEPT, **names, **headers})).status_code


async def test_the_tokens_of_a_run_are_in_no_log_no_event_and_no_file(
    app: App, world: HostWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    codes: list[object] = []

    async def work(held: Held) -> AgentOutcome:
        await ok(held.task.gateway, "file_issue_get")
        flipped = held.token[:-1] + ("A" if held.token[-1] != "A" else "B")
        codes.append((await status(held), await status(held, flipped)))
        if len(runtime.seen) == 1:
            return replace(DONE, agent_session_id="conversation-1")
        raise RuntimeError("the agent's runtime has a bug")

    runtime = HeldRuntime(work)
    with pytest.raises(ExceptionGroup, match="unhandled"):
        await work_held(app, "DEMO-1", runtime)
    await app.receipts.flush()
    tokens = [text for held in runtime.seen for text in (held.token, held.task.model.token) if text]
    assert (codes, len(set(tokens)), {len(token) for token in tokens}) == ([(200, 401)] * 2, len(tokens), {47})
    assert len(tokens) >= 2
    said = caplog.text + repr([app.runs.events(run.run_id) for run in app.runs.list()]) + repr(app.sessions.list())
    files = b"".join(path.read_bytes() for path in world.folder.rglob("*") if path.is_file())
    assert caplog.records
    assert [token for token in tokens if token in said or token.encode() in files] == []


async def test_whoever_knows_the_port_alone_is_refused(app: App) -> None:
    codes: list[int] = []

    async def work(held: Held) -> AgentOutcome:
        codes.append(await without_token(held))
        guesses = ("Bearer", "Bearer hst_", f"Bearer {held.port}", f"Basic {held.token}")
        codes.extend([await without_token(held, authorization=guess) for guess in guesses])
        return DONE

    await work_held(app, "DEMO-1", HeldRuntime(work))
    assert codes == [401] * 5
