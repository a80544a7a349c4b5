"""A stand-in for `codex exec --json`: a prompt on standard input, one MCP server over HTTP, JSON lines out. Standard library.

The prompt is what it does: a JSON list of steps, one key each, which names a method of `Turn`; the rest are its keyword
arguments. A first step `before` says what becomes of its start. What it was started with goes to `$HOME/report.jsonl`,
and the status of each of its requests.
"""

import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.parse
from typing import Any

JsonObject = dict[str, Any]
THREAD = "01a22d82-d56e-7c41-ad76-c99d2dc432cb"
SERVER = "mcp_servers.hostside"
USAGE = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 20, "reasoning_output_tokens": 5}
_PROTOCOL = "2025-06-18"
# `pause` in a loop would miss nothing: every signal but SIGKILL is ignored then.
_FOR_EVER = 1_000_000


def note(entry: JsonObject) -> None:
    """Add a line to the report."""
    with open(os.path.join(os.environ["HOME"], "report.jsonl"), "a", encoding="utf-8") as report:
        report.write(json.dumps(entry) + "\n")


def hang() -> None:
    """Ignore SIGTERM for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(_FOR_EVER):
        signal.pause()


class Server:
    """The MCP server, spoken to as the real client does: a session of 2025, begun anew once when it is not found."""

    def __init__(self, settings: JsonObject) -> None:
        self._url = urllib.parse.urlsplit(settings[f"{SERVER}.url"])
        self._token = os.environ[settings[f"{SERVER}.bearer_token_env_var"]]
        self._number = 0
        self._session = ""

    def connect(self) -> None:
        """Shake hands and list the tools. Raises RuntimeError."""
        self._session = ""
        client = {"name": "codex-mcp-client", "version": "0"}
        params = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
        self._wanted(self._post("initialize", params))
        self._post("notifications/initialized", None)
        self._wanted(self._post("tools/list", {}))

    def call(self, tool: str, arguments: Any) -> JsonObject:
        """The result of a call. Raises RuntimeError."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self._number}}
        status, message = self._post("tools/call", params)
        if status == 404:
            self.connect()
            status, message = self._post("tools/call", params)
        return self._wanted((status, message))

    def close(self) -> None:
        """End the session."""
        if self._session:
            self._exchange("DELETE", None)

    def _wanted(self, answer: tuple[int, JsonObject]) -> JsonObject:
        status, message = answer
        if status != 200 or "result" not in message:
            raise RuntimeError(f"HTTP {status}: {json.dumps(message)}")
        result: JsonObject = message["result"]
        return result

    def _post(self, method: str, params: Any) -> tuple[int, JsonObject]:
        message: JsonObject = {"jsonrpc": "2.0", "method": method, "params": params}
        if params is None:
            del message["params"]
        else:
            self._number += 1
            message["id"] = self._number
        return self._exchange("POST", message)

    def _exchange(self, verb: str, message: JsonObject | None) -> tuple[int, JsonObject]:
        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
        }
        if self._session:
            headers |= {"mcp-session-id": self._session, "mcp-protocol-version": _PROTOCOL}
        connection = http.client.HTTPConnection(str(self._url.hostname), self._url.port, timeout=60)
        try:
            connection.request(verb, self._url.path, None if message is None else json.dumps(message), headers)
            answer = connection.getresponse()
            note({"method": "DELETE" if message is None else message["method"], "status": answer.status})
            self._session = answer.getheader("mcp-session-id") or self._session
            return answer.status, self._read(answer)
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse) -> JsonObject:
        if "event-stream" not in (answer.getheader("content-type") or ""):
            text = answer.read()
            whole: JsonObject = json.loads(text) if text else {}
            return whole
        while line := answer.readline():
            if line.startswith(b"data:") and line[5:].strip():
                event: JsonObject = json.loads(line[5:])
                if event.get("id") == self._number:
                    return event
        raise RuntimeError("the stream ended without an answer")


class Turn:
    """The steps."""

    def __init__(self, settings: JsonObject, resumed: str | None) -> None:
        self._settings = settings
        self._thread = resumed or THREAD
        self._server = Server(settings)
        self._items = 0

    def start(self) -> None:
        """As the real one: no thread without its required server."""
        try:
            self._server.connect()
        except (RuntimeError, OSError) as error:
            if self._settings.get(f"{SERVER}.required") is True:
                sys.stderr.write(f"Error: thread/start: required MCP servers failed to initialize: hostside: {error}\n")
                sys.exit(1)
        self.line(type="thread.started", thread_id=self._thread)
        self.line(type="turn.started")

    def line(self, **event: Any) -> None:
        """Write one event."""
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    def raw(self, text: str = "", filler: int = 0) -> None:
        """Write a line of exactly this text, or of so many characters."""
        sys.stdout.write((text or "x" * filler) + "\n")
        sys.stdout.flush()

    def item(self, event: str = "item.completed", **fields: Any) -> None:
        """Write one item of its own."""
        self._items += 1
        self.line(type=event, item={"id": f"item_{self._items}", **fields})

    def call(self, tool: str, arguments: Any = None) -> None:
        """Call a tool and say so before and after."""
        self._items += 1
        item = {"id": f"item_{self._items}", "type": "mcp_tool_call", "server": "hostside", "tool": tool}
        self.line(type="item.started", item={**item, "result": None, "error": None, "status": "in_progress"})
        result, error = None, None
        try:
            result = self._server.call(tool, arguments or {})
        except (RuntimeError, OSError) as failed:
            error = {"message": f"tool call error: {failed}"}
        status = "failed" if result is None or result.get("isError") else "completed"
        self.line(type="item.completed", item={**item, "result": result, "error": error, "status": status})
        note({"answer": result})

    def sessions(self, count: int) -> None:
        """Open that many more protocol sessions with the same token, as others inside the run could."""
        for _ in range(count):
            Server(self._settings).connect()

    def stderr(self, text: str) -> None:
        """Write diagnostics."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def leave(self, seconds: str) -> None:
        """Leave a process behind that holds the output open."""
        subprocess.Popen(["sleep", seconds], start_new_session=True, stderr=subprocess.DEVNULL)

    def close_output(self) -> None:
        """Say nothing any more, and stay."""
        sys.stdout.flush()
        os.close(1)
        signal.pause()

    def hold(self) -> None:
        """Stay alive and silent, until killed."""
        hang()

    def exit(self, code: int) -> None:
        """End at once."""
        os._exit(code)

    def fail(self, message: str) -> None:
        """End the turn as the real one does when its model fails."""
        self.line(type="error", message=message)
        self.line(type="turn.failed", error={"message": message})
        self._server.close()
        sys.exit(1)

    def complete(self, turns: int = 1, code: int = 0) -> None:
        """End the turn well; the usage is that of a thread of so many turns."""
        self.line(type="turn.completed", usage={name: count * turns for name, count in USAGE.items()})
        self._server.close()
        sys.exit(code)


def main(arguments: list[str]) -> None:
    """Read the prompt and do what it says."""
    note({"argv": arguments, "environment": dict(os.environ), "cwd": os.getcwd()})
    pairs = [word.split("=", 1) for key, word in itertools.pairwise(arguments) if key == "-c"]
    settings = {name: json.loads(value) for name, value in pairs}
    steps = json.loads(sys.stdin.read())
    before = steps[0].get("before", {}) if steps else {}
    if before.get("deaf"):
        hang()
    if "stderr" in before:
        sys.stderr.write(before["stderr"] + "\n")
        sys.exit(1)
    if before.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resumed = arguments[arguments.index("resume") + 1] if "resume" in arguments else None
    turn = Turn(settings, resumed)
    turn.start()
    for step in steps[1:] if before else steps:
        ((name, facts),) = step.items()
        getattr(turn, name)(**facts)


if __name__ == "__main__":
    main(sys.argv[1:])
