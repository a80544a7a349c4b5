"""The scripted agent's own process: an MCP client that follows a small script. Runs inside the run's isolation.

    python scripted_client.py CONFIG SCRIPT        both are paths, usually /dev/fd/N

CONFIG is the MCP client configuration that any agent would get; SCRIPT is `[{"tool", "arguments", "expect"?}]`. Standard
output is one JSON object a line: `init`, `call` for each step, `end`. Exit code 0 when every step ended as expected.
`expect` is `ok`, a failure code, or absent (anything goes).
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


def say(event: dict[str, Any]) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
    sys.stdout.flush()


async def follow(config: dict[str, Any], script: list[dict[str, Any]]) -> bool:
    """Run the script against the one server of `config`; True when all went as expected."""
    (server,) = config["mcpServers"].values()
    async with (
        httpx2.AsyncClient(headers=server["headers"], timeout=120.0, trust_env=False) as http,
        Client(streamable_http_client(server["url"], http_client=http)) as client,
    ):
        listed = await client.list_tools()
        say({"type": "init", "tools": sorted(tool.name for tool in listed.tools)})
        good = True
        for step in script:
            outcome, result = await call(client, step)
            expected = step.get("expect", outcome)
            good = good and expected == outcome
            say({"type": "call", "tool": step["tool"], "outcome": outcome, "expected": expected, "result": result})
        return good


async def call(client: Client, step: dict[str, Any]) -> tuple[str, Any]:
    """Return `ok` or the failure code, and what came back."""
    try:
        result = await client.call_tool(step["tool"], step.get("arguments", {}))
    except MCPError as exc:
        return "protocol_error", {"code": exc.error.code, "message": exc.error.message}
    text = "".join(getattr(block, "text", "") for block in result.content)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if result.is_error:
        return (value["failure"]["code"] if isinstance(value, dict) else "error"), value
    return "ok", value


def main(arguments: list[str]) -> int:
    """Read both files, follow the script, and say how it ended."""
    config = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    script = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
    good = asyncio.run(follow(config, script))
    say({"type": "end", "ok": good})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
