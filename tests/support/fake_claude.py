"""A stand-in for Claude Code: reads its MCP configuration, talks to the one server, prints stream-json. Standard library.

The user's message is what it does: a JSON list of steps (`Fake.STEPS`). It writes what it was started with to
`$HOME/report.json` before anything else, and answers of the host that a step is about to `$HOME/answers.json`.

`--model deaf`: it never reads standard input and hangs. In-band the handshake comes first; `--model rejects`, `mute` and
`leaves` say what becomes of it.
"""

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any, NoReturn

PROTOCOL = "2026-07-28"
LEGACY = "2025-11-25"
META = "io.modelcontextprotocol/"


class Output:
    """Standard output, from more than one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """One whole line."""
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


class InbandServer:
    """The MCP server at the other end of its own pipes, spoken to as the real client does: the era of 2025."""

    def __init__(self, name: str, output: Output) -> None:
        self._name = name
        self._output = output
        self.number = 0
        self._answers: dict[str, queue.Queue[dict[str, Any]]] = {}
        self.notified: list[dict[str, Any]] = []
        """What the host sent without being asked."""

    def connect(self) -> list[str]:
        """Names of all tools."""
        info = {"name": "fake", "version": "0"}
        self.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info})
        self.wait(self.send({"method": "notifications/initialized"}))
        return [tool["name"] for tool in self.request("tools/list", {})["result"]["tools"]]

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The whole JSON-RPC answer, or the control error in its place."""
        return self.wait(self.begin(method, params))

    def begin(self, method: str, params: dict[str, Any]) -> str:
        """Send a request; `wait` has its answer. JSON-RPC ids are 1, 2, 3, …"""
        self.number += 1
        return self.send({"id": self.number, "method": method, "params": params})

    def send(self, message: dict[str, Any]) -> str:
        """One control request around `message`; its id."""
        control = f"control-{len(self._answers)}"
        request = {"subtype": "mcp_message", "server_name": self._name, "message": {"jsonrpc": "2.0", **message}}
        self.expect(control)
        self._output.write(json.dumps({"type": "control_request", "request_id": control, "request": request}))
        return control

    def expect(self, control: str) -> None:
        """An answer to `control` will come."""
        self._answers[control] = queue.Queue()

    def wait(self, control: str) -> dict[str, Any]:
        """The answer to a control request."""
        response = self._answers[control].get(timeout=60)
        if response["subtype"] == "success":
            answer: dict[str, Any] = response["response"]["mcp_response"]
            return answer
        return {"control_error": response["error"]}

    def take(self, message: dict[str, Any]) -> bool:
        """Take a line of standard input; False when it is not for this server."""
        if message.get("type") == "control_response":
            self._answers[message["response"]["request_id"]].put(message["response"])
        elif message.get("type") == "control_request" and message["request"]["subtype"] == "mcp_message":
            self.notified.append(message["request"]["message"])
        else:
            return False
        return True


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
        "connect",
        "calls",
        "withdraw",
        "ask",
        "greedy",
    )

    def __init__(self, server: "Server | InbandServer", session_id: str, output: Output) -> None:
        self._server = server
        self._session_id = session_id
        self._output = output
        self._told: list[dict[str, Any]] = []
        self._uses = 0
        self._stubborn = False
        self._deaf = False

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
        try:
            answer = self._server.request("tools/call", self._use(tool, arguments or {}))
        except (OSError, http.client.HTTPException, RuntimeError):
            # The edge went away in the call: whoever took it away has something to say.
            self.hang()
        self.raw(type="user", message={"role": "user", "content": []}, answer=answer.get("result"))

    def connect(self) -> None:
        """Find the tools, and say nothing of them."""
        self._server.connect()

    def calls(self, many: list[dict[str, Any]]) -> None:
        """Send them all before the first answer, then tell the answers in the order of the calls. In-band."""
        server = self._inband()
        begun = [server.begin("tools/call", self._use(call["tool"], call.get("arguments", {}))) for call in many]
        for control in begun:
            self._tell(server.wait(control))

    def withdraw(self, tool: str, then: str) -> None:
        """Begin a call, wait for the file `then` in the home, withdraw the call, tell what that was answered. In-band."""
        server = self._inband()
        server.begin("tools/call", self._use(tool, {}))
        while not Path(os.environ["HOME"], then).exists():
            time.sleep(0.01)
        params = {"requestId": server.number, "reason": "AbortError"}
        self._tell(server.wait(server.send({"method": "notifications/cancelled", "params": params})))

    def ask(self, line: str, control: str) -> None:
        """Write a line of a control request as it is and tell its answer, which goes to `control`. In-band."""
        server = self._inband()
        server.expect(control)
        self._output.write(line)
        self._tell(server.wait(control))

    def greedy(self) -> None:
        """Ask without end and read no answer. In-band."""
        self._deaf = True
        request = {"type": "control_request", "request_id": "more", "request": {"subtype": "more"}}
        block = json.dumps(request).encode() + b"\n"
        while True:
            os.write(1, block * 500)

    def _inband(self) -> InbandServer:
        if not isinstance(self._server, InbandServer):
            raise SystemExit("this step is for the in-band edge")
        return self._server

    def _use(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._uses += 1
        use = f"toolu_{self._uses}"
        block = {"type": "tool_use", "id": use, "name": f"mcp__hostside__{tool}", "input": arguments}
        self.raw(type="assistant", message={"role": "assistant", "content": [block]})
        meta = {"claudecode/toolUseId": use, "progressToken": self._uses}
        return {"name": tool, "arguments": arguments, "_meta": meta}

    def _tell(self, answer: dict[str, Any]) -> None:
        self._told.append(answer)
        Path(os.environ["HOME"], "answers.json").write_text(json.dumps(self._told), "utf-8")

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
        self._output.write(json.dumps(event) if line is None else line)

    def stderr(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def hang(self, stubborn: bool = False) -> NoReturn:
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
            if self._deaf:
                threading.Event().wait()
            message = json.loads(line)
            if isinstance(self._server, InbandServer) and self._server.take(message):
                continue
            if message.get("type") == "control_request" and not self._stubborn:
                self.result(subtype="error_during_execution", is_error=True, result="interrupted")
                os._exit(0)


def option(name: str) -> str | None:
    """The value after `name` on the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def shake_hands(output: Output) -> None:
    """Answer the host's handshake, as `--model` says."""
    request = json.loads(sys.stdin.readline())
    if request["request"] != {"subtype": "initialize"}:
        raise SystemExit(f"no handshake: {request}")
    behaviour = option("--model")
    if behaviour == "leaves":
        os._exit(3)
    answer = {"subtype": "success", "request_id": request["request_id"], "response": {"commands": []}}
    if behaviour == "rejects":
        answer = {"subtype": "error", "request_id": request["request_id"], "error": "no such control request"}
    if behaviour != "mute":
        output.write(json.dumps({"type": "control_response", "response": answer}))
    if behaviour in ("rejects", "mute"):
        # What it is told all the same.
        Path(os.environ["HOME"], "heard.txt").write_text(sys.stdin.read(), "utf-8")
        os._exit(0)


def main() -> None:
    """Do what the user's message says, then wait for the end of standard input."""
    source = str(option("--mcp-config"))
    text = Path(source).read_text("utf-8")
    report = {"argv": sys.argv, "environment": dict(os.environ), "config": text, "cwd": os.getcwd()}
    Path(os.environ["HOME"], "report.json").write_text(json.dumps(report), "utf-8")
    output = Output()
    ((name, entry),) = json.loads(text)["mcpServers"].items()
    server = InbandServer(name, output) if entry["type"] == "sdk" else Server(entry)
    fake = Fake(server, str(option("--resume") or option("--session-id")), output)
    if option("--model") == "deaf":
        fake.hang()
    if isinstance(server, InbandServer):
        shake_hands(output)
    first = sys.stdin.readline()
    steps = json.loads(json.loads(first)["message"]["content"]) if first else []
    watching = threading.Thread(target=fake.watch, daemon=True)
    watching.start()
    for step in steps:
        step_name = step.pop("do")
        if step_name not in Fake.STEPS:
            raise SystemExit(f"no such step: {step_name}")
        getattr(fake, step_name)(**step)
    watching.join()


if __name__ == "__main__":
    main()
