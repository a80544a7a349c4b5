"""A tool that needs a credential of the host works for an agent that holds none of it (A0-13, R-054, R-332).

The provider is a real server of this test that answers only with the credential; the agent's side is searched from inside
while the call works: environment, arguments, descriptors, home, workspace, everything that was generated.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from hostside.app.host import App
from hostside.app.planning import RunWishes, plan_run, services_of
from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.worker.agent import AgentOutcome
from hostside.worker.isolation_level import IsolationLevel, probe_levels
from hostside.worker.run import RunWorker
from tests.support.gateways import ok
from tests.support.held_runs import DONE, Held, HeldRuntime, a_held_world
from tests.support.tools import a_spec, a_tool

pytestmark = [pytest.mark.anyio, pytest.mark.system]
CREDENTIAL = "canary-provider-credential-0123456789"
VARIABLE = "THE_PROVIDERS_CREDENTIAL"
#: Everything that a process of the run can read of itself, of others and of files.
LOOK = (
    "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; ls -l /proc/*/fd 2>/dev/null; "
    "for fd in /proc/self/fd/*; do timeout 1 head -c 100000 $fd 2>/dev/null </dev/null; done; "
    "find ~ . /tmp /run -xdev -type f -size -256k -exec cat {} + 2>/dev/null; echo looked"
)


@asynccontextmanager
async def provider() -> AsyncIterator[tuple[str, int]]:
    """A server that answers `granted` to the credential and `denied` to everything else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.readline()
        writer.write(b"granted\n" if said == f"Bearer {CREDENTIAL}\n".encode() else b"denied\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield host, port


async def test_the_call_works_and_the_agents_side_holds_nothing_of_the_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = probe_levels().status(IsolationLevel.BWRAP)
    if not found.available:
        pytest.skip(f"isolation level bwrap not available: {found.reason}")
    world = a_held_world(tmp_path)
    world.configure(f'[code]\nkind = "github"\nrepository = "a/b"\ntoken = "env:{VARIABLE}"\n')
    (world.folder / "home" / ".netrc").write_text(f"machine provider password {CREDENTIAL}\n", encoding="utf-8")
    looked: list[bytes] = []
    answers: list[object] = []

    async def work(held: Held) -> AgentOutcome:
        answers.append(await ok(held.task.gateway, "provider_get"))
        done = await held.task.isolation.run(["sh", "-c", LOOK], timeout_seconds=30.0, output_limit_bytes=8_000_000)
        looked.append(done.stdout + done.stderr)
        return DONE

    monkeypatch.setattr("hostside.app.host.make_undumpable", lambda: None)
    async with provider() as (host, port):
        with App.open(environment=world.environment({VARIABLE: CREDENTIAL})) as app:

            async def get(_arguments: JsonObject, _context: CallContext) -> ToolResult:
                (credential,) = app.secrets.values.values()
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(f"Bearer {credential}\n".encode())
                said = (await reader.readline()).decode().strip()
                writer.close()
                await writer.wait_closed()
                return ToolResult(structured={"said": said, "sent": f"Bearer {credential}"})

            with anyio.fail_after(60):
                wishes = RunWishes(identifier="DEMO-1", agent="scripted", isolation="bwrap")
                plan = await plan_run(app, wishes)
                tool = a_tool(get, spec=a_spec("provider_get", credentialed=True))
                plan = replace(plan, runtime=HeldRuntime(work), workspace_tools=lambda _git: (tool,))
                report = await RunWorker(plan, services_of(app, lambda _name, _facts: None), app.hub).work()
    assert (report.state, answers) == ("succeeded", [{"said": "granted", "sent": "Bearer [redacted]"}])
    (dump,) = looked
    assert b"HOSTSIDE_ISSUE_IDENTIFIER=DEMO-1" in dump
    assert dump.endswith(b"looked\n")
    assert [text for text in (CREDENTIAL, VARIABLE) if text.encode() in dump] == []
    kept = [path for folder in (world.state, tmp_path / "workspaces") for path in folder.rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if CREDENTIAL.encode() in path.read_bytes()] == []
