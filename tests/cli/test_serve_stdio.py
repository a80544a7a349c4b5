"""`hostside serve --stdio`: the caller's own disk, no credential, and nothing but frames on standard output (D6, R-171)."""

from pathlib import Path

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult

from tests.cli.conftest import CommandLine
from tests.support.host_world import GREETING

pytestmark = [pytest.mark.anyio, pytest.mark.system]


async def _ask(
    hostside: CommandLine, *words: str, tool: str, arguments: dict[str, str]
) -> tuple[list[str], CallToolResult]:
    command, *rest = hostside.world.command("serve", "--stdio", *words)
    server = StdioServerParameters(command=command, args=rest, env=hostside.world.environment(), cwd=hostside.project)
    with anyio.fail_after(60), (hostside.world.folder / "errors").open("w") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            names = [item.name for item in (await client.list_tools()).tools]
            return names, await client.call_tool(tool, arguments)


async def test_a_client_reads_its_own_folder_and_is_offered_no_tracker_and_no_write(hostside: CommandLine) -> None:
    names, answer = await _ask(hostside, tool="read_file", arguments={"path": "greeting.py"})

    assert names == ["find_files", "git_diff", "git_status", "list_dir", "read_file", "search_files"]
    assert answer.structured_content is not None
    assert answer.structured_content["text"] == GREETING


async def test_the_server_resolves_no_secret_at_all(hostside: CommandLine, tmp_path: Path) -> None:
    marker = tmp_path / "resolved"
    hostside.world.configure(
        f'[agent]\nkey = \'command:["/usr/bin/touch", "{marker}"]\'\n'
        f'[trackers.l]\nkind = "linear"\ntoken = \'command:["/usr/bin/touch", "{marker}"]\'\nproject = "p"\n'
    )

    await _ask(hostside, tool="list_dir", arguments={})

    assert not marker.exists()


async def test_a_wider_profile_is_the_operators_choice_and_git_works(hostside: CommandLine) -> None:
    (hostside.project / "new.txt").write_text("x", encoding="utf-8")

    names, answer = await _ask(hostside, "--profile", "workspace", tool="git_add", arguments={"paths": ["new.txt"]})  # type: ignore[dict-item]

    assert "write_file" in names
    assert (answer.is_error, (answer.structured_content or {}).get("count")) == (False, 1)


async def test_each_call_has_its_receipt_and_the_session_is_over_when_the_client_leaves(hostside: CommandLine) -> None:
    await _ask(hostside, tool="read_file", arguments={"path": "../x"})

    with hostside.opened() as app:
        (session,) = app.sessions.list()
    assert [(item["edge"], item["tool"], item["code"]) for item in hostside.world.receipts()] == [
        ("stdio", "read_file", "outside_workspace")
    ]
    assert (session["edge"], session["profile"], session["revoked_at"] is None) == ("stdio", "readonly", False)


async def test_a_folder_with_the_hosts_own_state_is_not_served(hostside: CommandLine) -> None:
    process = await anyio.run_process(
        hostside.world.command("serve", "--stdio"),
        env=hostside.world.environment(),
        cwd=hostside.world.folder,
        check=False,
    )

    said = process.stderr.decode().splitlines()
    assert (process.returncode, process.stdout) == (2, b"")
    assert said[0].endswith("it cannot be a workspace.")
    assert said[1] == "  try: Change to the folder of a project."
