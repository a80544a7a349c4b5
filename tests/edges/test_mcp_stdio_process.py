"""AX-30: the stdio server as a process of its own: the official client of both eras, and what is left when it ends."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import anyio
import pytest
from mcp.client.client import Client, ConnectMode
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.clients import ROOT
from tests.support.http_edges import initialize_body, modern_body
from tests.support.stdio_channel import Channel

pytestmark = [pytest.mark.anyio, pytest.mark.system]

COMMAND = [sys.executable, "-m", "tests.support.stdio_server"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_official_client_lists_and_calls_beside_a_noisy_tool(era: ConnectMode, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w+") as errors:
        await use_client(era, errors)
        errors.seek(0)
        said = errors.read()
    assert "hello from a handler" in said
    assert "receipt ok None none" in said


async def use_client(era: ConnectMode, errors: TextIO) -> None:
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=ENVIRONMENT, cwd=ROOT)
    with anyio.fail_after(30):
        async with Client(stdio_client(server, errlog=errors), mode=era) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == sorted(names)
            assert (await client.call_tool("noisy", {})).structured_content == {"done": True}
            assert (await client.call_tool("echo", {"text": "\u2028"})).structured_content == {"text": "\u2028"}
            refused = await client.call_tool("demo_get", {})
            assert (refused.is_error, refused.structured_content) == (True, None)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_end_of_input_ends_the_process_and_its_children(era: str) -> None:
    server_in, client_out = os.pipe()
    client_in, server_out = os.pipe()
    server = subprocess.Popen(
        COMMAND, stdin=server_in, stdout=server_out, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT, text=True
    )
    os.close(server_in)
    os.close(server_out)
    client = Channel(client_out, client_in)
    try:
        if era == "legacy":
            await client.say(initialize_body())
            assert (await client.next())["id"] == 0
        body: dict[str, Any] = modern_body("tools/call", {"name": "child"})
        if era == "legacy":
            del body["params"]["_meta"]
        await client.say(body)
        assert server.stderr is not None
        child = await anyio.to_thread.run_sync(started_child, server.stderr)
        assert Path(f"/proc/{child}").exists()
        client.hang_up()
        said = await anyio.to_thread.run_sync(lambda: server.communicate(timeout=10)[1])
        assert server.returncode == 0
        assert "receipt failed cancelled none" in said
        assert not Path(f"/proc/{child}").exists()
    finally:
        server.kill()
        server.wait()
        client.hang_up()
        client.stop_reading()


def started_child(errors: Any) -> int:
    for line in errors:
        if line.startswith("child "):
            return int(line.split()[1])
    raise AssertionError("the tool started no child")
