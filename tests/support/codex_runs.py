"""One run of the Codex runtime in a test: the task, its gateway and receipts, and the events that it wrote."""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hostside.core.canonical import JsonValue
from hostside.core.gateway import Gateway
from hostside.core.spec import Tool
from hostside.worker.agent import AgentSettings, AgentTask
from hostside.worker.isolation import RunIsolation
from hostside.worker.model_proxy import ModelAccess
from hostside.worker.model_usage import ModelBudget, ModelMeter
from tests.support.gateways import an_issue, make_gateway
from tests.support.memory_receipts import MemoryReceipts

TOKEN = "hst_token-of-this-run-0123456789"
MODEL_KEY = "model-key-0123456789"
MODEL_TOKEN = "hst_model-token-of-this-run-0123456789"
_FAKE = Path(__file__).with_name("fake_app_server.py")


class CodexRun:
    """`task` goes to `CodexRuntime.run`. `events` and `receipts` fill while it runs."""

    def __init__(
        self,
        isolation: RunIsolation,
        executable: Path,
        tools: Iterable[Tool],
        prompt: str,
        *,
        resume: str | None = None,
        **settings: Any,
    ) -> None:
        self.receipts = MemoryReceipts()
        self.gateway = make_gateway(tools, edge="codex", issue=an_issue(), receipts=self.receipts)
        self.events: list[tuple[str, Mapping[str, JsonValue]]] = []
        self.isolation = isolation
        self.meter = ModelMeter(settings.get("model_budget", ModelBudget()))
        defaults: dict[str, Any] = {
            "kind": "codex",
            "executable": executable,
            "version": None,
            "model": None,
            "model_base_url": "http://127.0.0.1:9/v1",
            "model_key": MODEL_KEY,
            "native_tools": "workspace",
            "turn_timeout_seconds": 60.0,
            "stall_timeout_seconds": 30.0,
            "start_timeout_seconds": 30.0,
            "max_turns": 1,
        }
        self.task = AgentTask(
            gateway=self.gateway,
            isolation=isolation,
            workspace=isolation.workspace,
            home=isolation.home,
            prompt=prompt,
            token=TOKEN,
            resolve_token=self._nobody,
            model=ModelAccess(token=MODEL_TOKEN, authenticate=self._knows_model_token, meter=self.meter),
            settings=AgentSettings(**(defaults | settings)),
            event=lambda name, facts: self.events.append((name, facts)),
            resume=resume,
        )

    def facts(self, name: str) -> list[Mapping[str, JsonValue]]:
        """The facts of every event of that name, in order."""
        return [facts for event, facts in self.events if event == name]

    def report(self) -> list[dict[str, Any]]:
        """What the fake wrote down: its start, then each line that it read."""
        return [json.loads(line) for line in (self.isolation.home / "report.jsonl").read_text().splitlines()]

    def requests(self, method: str) -> list[dict[str, Any]]:
        """The params of each message of that method that the fake read."""
        got = [entry["got"] for entry in self.report() if "got" in entry]
        return [message.get("params") for message in got if message.get("method") == method]

    def answers(self) -> dict[int, dict[str, Any]]:
        """What the host answered, by the fake's own request ids."""
        got = [entry["got"] for entry in self.report() if "got" in entry]
        return {message["id"]: message for message in got if "method" not in message}

    def read_answer(self, number: int) -> tuple[bool, Any]:
        """The success flag of a tool call's answer, and its text as JSON."""
        result = self.answers()[number]["result"]
        (item,) = result["contentItems"]
        return result["success"], json.loads(item["text"])

    def codes(self) -> list[tuple[str, str | None, str]]:
        """Tool, failure code and effect of each finished receipt, in order of their ends."""
        names = {start.receipt_id: start.tool for start in self.receipts.starts}
        return [(names[end.receipt_id], end.code and end.code.value, end.effect.value) for end in self.receipts.ends]

    async def _knows_model_token(self, token: str) -> bool:
        return token == MODEL_TOKEN

    async def _nobody(self, _token: str) -> Gateway | None:
        return None


def fake_codex(folder: Path) -> Path:
    """An executable named `codex` that is the fake."""
    program = folder / "codex"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(_FAKE))} "$@"\n')
    program.chmod(0o755)
    return program


def steps(*parts: dict[str, Any]) -> str:
    """The prompt that makes the fake do this."""
    return json.dumps(parts)
