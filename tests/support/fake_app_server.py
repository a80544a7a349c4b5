"""A stand-in for `codex app-server`: JSON lines on stdio. Standard library; may run with `python -I -S`.

The text of a turn is what it does: a JSON list of steps, one key each, which names a method of `Turn`; the rest are its
keyword arguments. What it was started with and every line it reads go to `$HOME/report.jsonl`. `-c fake=WORD` on the
command line changes the start: `deaf` never answers, `toolless` refuses the thread's dynamic tools, `broken` exits,
`stubborn` ignores SIGTERM, the end of its input and interrupts.
"""

import json
import os
import signal
import sys
from typing import Any

JsonObject = dict[str, Any]
THREAD, TURN = "thread-1", "turn-1"
# `pause` in a loop would miss nothing: every signal but SIGKILL is ignored then.
_FOR_EVER = 1_000_000


class Interrupted(Exception):
    """The host interrupted the turn."""


class Fake:
    """The process: its report, its pipes, its handshake."""

    def __init__(self, arguments: list[str]) -> None:
        self._input = sys.stdin.buffer
        self._kept: list[JsonObject] = []
        self.mode = next((word.removeprefix("fake=") for word in arguments if word.startswith("fake=")), "")
        self.note({"argv": arguments, "environment": dict(os.environ), "cwd": os.getcwd()})

    def note(self, entry: JsonObject) -> None:
        with open(os.path.join(os.environ["HOME"], "report.jsonl"), "a", encoding="utf-8") as report:
            report.write(json.dumps(entry) + "\n")

    def send(self, message: JsonObject) -> None:
        self.write(json.dumps(message).encode())

    def write(self, line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    def read(self) -> JsonObject:
        """The next message; the process ends with its input."""
        line = self._input.readline()
        if not line:
            if self.mode == "stubborn":
                self.hang()
            raise SystemExit(0)
        message: JsonObject = json.loads(line)
        self.note({"got": message})
        return message

    def take(self, wanted: dict[str, Any]) -> JsonObject:
        """The next message with these fields; others are kept for later."""
        for message in self._kept:
            if wanted.items() <= message.items():
                self._kept.remove(message)
                return message
        while True:
            message = self.read()
            if message.get("method") == "turn/interrupt" and self.mode != "stubborn":
                self.send({"id": message["id"], "result": {}})
                raise Interrupted
            if wanted.items() <= message.items():
                return message
            self._kept.append(message)

    def hang(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(_FOR_EVER):
            signal.pause()

    def serve(self) -> None:
        """Answer the host's requests until its input ends."""
        while True:
            message = self._kept.pop(0) if self._kept else self.read()
            method, number = message.get("method"), message.get("id")
            if method == "initialize":
                self.send(
                    {"id": number, "result": {"userAgent": "fake/0.171.0", "codexHome": os.environ["CODEX_HOME"]}}
                )
            elif method in ("thread/start", "thread/resume"):
                self._open(message)
            elif method == "turn/start":
                self._turn(message)

    def _open(self, message: JsonObject) -> None:
        if self.mode == "toolless":
            text = "thread/start.dynamicTools requires experimentalApi capability"
            self.send({"id": message["id"], "error": {"code": -32600, "message": text}})
            return
        thread = message["params"].get("threadId", THREAD)
        self.send({"id": message["id"], "result": {"thread": {"id": thread}}})

    def _turn(self, message: JsonObject) -> None:
        self.send({"id": message["id"], "result": {"turn": {"id": TURN, "status": "inProgress"}}})
        turn = Turn(self, message["params"]["threadId"])
        turn.notify("turn/started", turn={"id": TURN})
        try:
            for step in json.loads(message["params"]["input"][0]["text"]):
                (name, facts), *_ = step.items()
                getattr(turn, name)(**facts)
        except Interrupted:
            turn.complete(status="interrupted")


class Turn:
    """The steps."""

    def __init__(self, fake: Fake, thread: str) -> None:
        self._fake = fake
        self._thread = thread
        self._calls: dict[int, str] = {}

    def call(self, id: int, tool: str, arguments: Any = None, call_id: str | None = None, filler: int = 0) -> None:
        """Ask the host for a tool call. `filler`: so many characters of text as the argument `text`."""
        self._calls[id] = call_id or f"call-{id}"
        given = {"text": "x" * filler} if filler else arguments
        ids = {"threadId": self._thread, "turnId": TURN, "callId": self._calls[id], "namespace": None}
        self._fake.send({"id": id, "method": "item/tool/call", "params": {**ids, "tool": tool, "arguments": given}})

    def answer(self, id: int) -> None:
        """Wait for the answer to a request of ours, and say that the call completed."""
        result = self._fake.take({"id": id}).get("result", {})
        status = "completed" if result.get("success") else "failed"
        item = {"type": "dynamicToolCall", "id": self._calls.get(id), "status": status}
        self.notify("item/completed", item={**item, "contentItems": result.get("contentItems")})

    def drop(self, id: int) -> None:
        """Go on without the outcome of a call."""
        item = {"type": "dynamicToolCall", "id": self._calls[id], "status": "failed", "contentItems": []}
        self.notify("item/completed", item=item)

    def ask(self, id: int, method: str, params: Any = None) -> None:
        """Send another request."""
        self._fake.send({"id": id, "method": method, "params": params})

    def notify(self, method: str, **params: Any) -> None:
        self._fake.send({"method": method, "params": {"threadId": self._thread, "turnId": TURN, **params}})

    def raw(self, hex: str) -> None:
        """Write a line of exactly these bytes."""
        self._fake.write(bytes.fromhex(hex))

    def stderr(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def expect(self, method: str) -> None:
        """Wait for something that the host sends."""
        self._fake.take({"method": method})

    def close_input(self) -> None:
        """Read nothing any more, then say so."""
        os.close(0)
        self.notify("warning", message="input closed")

    def hold(self) -> None:
        """Stay alive without reading, until killed."""
        self._fake.hang()

    def exit(self, code: int) -> None:
        os._exit(code)

    def complete(self, status: str = "completed", error: Any = None) -> None:
        self.notify("turn/completed", turn={"id": TURN, "status": status, "error": error, "items": []})


def main() -> None:
    fake = Fake(sys.argv[1:])
    if fake.mode == "broken":
        sys.stderr.write("error: cannot start\n")
        sys.exit(2)
    if fake.mode == "deaf":
        fake.hang()
    if fake.mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fake.serve()


if __name__ == "__main__":
    main()
