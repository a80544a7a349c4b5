"""A stand-in for Claude Code: reads its MCP configuration, talks to the one server, prints stream-json. Standard library.

The user's message is what it does: a JSON list of steps (`Fake.STEPS`). It writes what it was started with to
`$HOME/report.json` before anything else. `--model deaf`: it never reads standard input and hangs.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path
from typing import Any

PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol/"


class Server:
    """The MCP server of the configuration, spoken to as the real client does: no session, each request by itself."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self._url = urllib.parse.urlsplit(entry["url"])
        self._headers = {
            **entry["headers"],
            "mcp-protocol-version": PROTOCOL,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        self._number = 0

    def connect(self) -> list[str]:
        """Names of all tools."""
        self.request("server/discover", {})
        return [tool["name"] for tool in self.request("tools/list", {})["result"]["tools"]]

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The whole JSON-RPC answer."""
        self._number += 1
        envelope = {
            f"{META}protocolVersion": PROTOCOL,
            f"{META}clientInfo": {"name": "fake", "version": "0"},
            f"{META}clientCapabilities": {},
        }
        params = {**params, "_meta": {**envelope, **params.get("_meta", {})}}
        body = json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        headers = {**self._headers, "mcp-method": method, **({"mcp-name": params["name"]} if "name" in params else {})}
        connection = http.client.HTTPConnection(str(self._url.hostname), self._url.port, timeout=60)
        try:
            connection.request("POST", self._url.path, body, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"HTTP {answer.status}: {answer.read(500)!r}")
            return self._message(answer)
        finally:
            connection.close()

    def _message(self, answer: http.client.HTTPResponse) -> dict[str, Any]:
        if "event-stream" not in (answer.getheader("content-type") or ""):
            message: dict[str, Any] = json.loads(answer.read())
            return message
        while line := answer.readline():
            if line.startswith(b"data:") and line[5:].strip():
                event: dict[str, Any] = json.loads(line[5:])
                if event.get("id") == self._number:
                    return event
        raise RuntimeError("the stream ended without an answer")


class Fake:
    """One run. Each step is `{"do": NAME, ...}`; the other members are the method's arguments."""

    STEPS = (
        "init",
        "call",
        "say",
        "native",
        "denied",
        "result",
        "raw",
        "stderr",
        "hang",
        "linger",
        "spawn",
        "leave",
        "flood",
    )

    def __init__(self, config: dict[str, Any], session_id: str) -> None:
        (self._server,) = (Server(entry) for entry in config["mcpServers"].values())
        self._session_id = session_id
        self._uses = 0
        self._stubborn = False

    def init(self, status: str = "connected", without: list[str] | None = None, extra: list[str] | None = None) -> None:
        names = self._server.connect() if status == "connected" else []
        tools = [f"mcp__hostside__{name}" for name in names if name not in (without or [])]
        self.raw(
            type="system",
            subtype="init",
            session_id=self._session_id,
            model="fake-model",
            claude_code_version="0.0.0",
            mcp_servers=[{"name": "hostside", "status": status}],
            tools=[*tools, *(extra or [])],
        )

    def call(self, tool: str, arguments: dict[str, Any] | None = None) -> None:
        self._uses += 1
        use = f"toolu_{self._uses}"
        block = {"type": "tool_use", "id": use, "name": f"mcp__hostside__{tool}", "input": arguments or {}}
        self.raw(type="assistant", message={"role": "assistant", "content": [block]})
        meta = {"claudecode/toolUseId": use}
        answer = self._server.request("tools/call", {"name": tool, "arguments": arguments or {}, "_meta": meta})
        self.raw(type="user", message={"role": "user", "content": []}, answer=answer.get("result"))

    def say(self, text: str) -> None:
        self.raw(type="assistant", message={"role": "assistant", "content": [{"type": "text", "text": text}]})

    def native(self, tool: str) -> None:
        block = {"type": "tool_use", "id": "toolu_native", "name": tool, "input": {}}
        self.raw(type="assistant", message={"role": "assistant", "content": [block]})

    def denied(self, tool: str) -> None:
        self.raw(type="system", subtype="permission_denied", tool_name=tool, tool_use_id="toolu_denied")

    def result(self, **changes: Any) -> None:
        usage = {"input_tokens": 11, "output_tokens": 7}
        event = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1}
        self.raw(**{**event, "usage": usage, "total_cost_usd": 0.5, "session_id": self._session_id, **changes})

    def raw(self, line: str | None = None, **event: Any) -> None:
        sys.stdout.write((json.dumps(event) if line is None else line) + "\n")
        sys.stdout.flush()

    def stderr(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def hang(self, stubborn: bool = False) -> None:
        """Wait for an interrupt; stubborn: ignore it, and the request to terminate."""
        self._stubborn = stubborn
        if stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()

    def linger(self) -> None:
        """Close the output and stay."""
        os.close(1)
        self.hang()

    def spawn(self, seconds: str) -> None:
        """Start a process that lives on."""
        subprocess.Popen(["sleep", seconds])

    def leave(self, code: int = 0, by_signal: int | None = None) -> None:
        """End at once, without another word."""
        if by_signal is not None:
            os.kill(os.getpid(), by_signal)
        os._exit(code)

    def flood(self) -> None:
        """Write without end, faster than anybody reads."""
        block = json.dumps({"type": "stream_event"}).encode() + b"\n"
        while True:
            os.write(1, block * 3_000)

    def watch(self) -> None:
        """Read the rest of standard input: an interrupt ends the run."""
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("type") == "control_request" and not self._stubborn:
                self.result(subtype="error_during_execution", is_error=True, result="interrupted")
                os._exit(0)


def option(name: str) -> str | None:
    """The value after `name` on the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def main() -> None:
    """Do what the user's message says, then wait for the end of standard input."""
    source = str(option("--mcp-config"))
    text = Path(source).read_text("utf-8")
    report = {"argv": sys.argv, "environment": dict(os.environ), "config": text, "cwd": os.getcwd()}
    Path(os.environ["HOME"], "report.json").write_text(json.dumps(report), "utf-8")
    fake = Fake(json.loads(text), str(option("--resume") or option("--session-id")))
    if option("--model") == "deaf":
        fake.hang()
    first = sys.stdin.readline()
    steps = json.loads(json.loads(first)["message"]["content"]) if first else []
    watching = threading.Thread(target=fake.watch, daemon=True)
    watching.start()
    for step in steps:
        name = step.pop("do")
        if name not in Fake.STEPS:
            raise SystemExit(f"no such step: {name}")
        getattr(fake, name)(**step)
    watching.join()


if __name__ == "__main__":
    main()
