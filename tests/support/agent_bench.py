"""One agent runtime under test: a task over a real gateway, the events it told, and what is left of it afterwards."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.core.spec import Tool
from hostside.worker.agent import AgentOutcome, AgentRuntime, AgentSettings, AgentTask
from hostside.worker.isolation import RunIsolation
from hostside.worker.model_proxy import ModelAccess
from hostside.worker.model_usage import ModelBudget, ModelMeter
from tests.support import fake_claude
from tests.support.gateways import an_issue, make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import a_post_spec, a_spec, a_tool, schema

TOKEN = "hst_" + "t" * 43
OTHER_TOKEN = "hst_" + "o" * 43
MODEL_KEY = "sk-ant-canary-0123456789abcdef"
MODEL_TOKEN = "hst_" + "m" * 43


class Waiting:
    """An executor that says when it began and goes on when it may, or until it is cancelled."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.release = anyio.Event()

    async def __call__(self, _arguments: JsonObject, _context: CallContext) -> ToolResult:
        """Wait for `release`."""
        self.began.set()
        await self.release.wait()
        return ToolResult(structured={"id": "late"})


class Pair:
    """An executor that answers once two of its calls run at the same time."""

    def __init__(self) -> None:
        self._here = 0
        self._both = anyio.Event()

    async def __call__(self, _arguments: JsonObject, _context: CallContext) -> ToolResult:
        """Wait for the other one."""
        self._here += 1
        if self._here == 2:
            self._both.set()
        await self._both.wait()
        return ToolResult(structured={"id": "both"})


async def echo(arguments: JsonObject, _context: CallContext) -> ToolResult:
    """Answer with the arguments."""
    return ToolResult(structured={"id": str(arguments.get("body", ""))})


def tools(waiting: Waiting) -> tuple[Tool, ...]:
    """`demo_get` and `demo_post` answer at once, `demo_wait` waits, `demo_slow` meets its deadline after 1.2 seconds;
    `demo_pair`, a read, answers once two of them run."""
    body = schema({"body": {"type": "string", "maxLength": 100}}, ("body",))
    return (
        a_tool(echo, spec=a_spec("demo_get", input_schema=body)),
        a_tool(echo, spec=a_post_spec("demo_post", input_schema=body)),
        a_tool(Pair(), spec=a_spec("demo_pair", timeout_seconds=10.0)),
        a_tool(waiting, spec=a_post_spec("demo_wait", input_schema=schema(), timeout_seconds=30.0)),
        a_tool(Waiting(), spec=a_post_spec("demo_slow", input_schema=schema(), timeout_seconds=1.2)),
    )


def fake_claude_in(folder: Path) -> Path:
    """Write the stand-in for Claude Code to `folder`."""
    executable = folder / "claude"
    executable.write_text(f"#!{sys.executable} -I\n{Path(fake_claude.__file__).read_text('utf-8')}", "utf-8")
    executable.chmod(0o755)
    return executable


def settings(kind: str, executable: Path | None, **changes: Any) -> AgentSettings:
    """Settings with short clocks."""
    base = AgentSettings(
        kind=kind,
        executable=executable,
        version=None,
        model=None,
        model_base_url="http://127.0.0.1:9",
        model_key=MODEL_KEY,
        native_tools="workspace",
        turn_timeout_seconds=60.0,
        stall_timeout_seconds=30.0,
        start_timeout_seconds=20.0,
        max_turns=20,
    )
    return replace(base, **changes)


@dataclass(slots=True, kw_only=True)
class Bench:
    """Runs tasks of one session of `session_edge`. `gateways` says which token stands for which gateway at the moment."""

    isolation: RunIsolation
    settings: AgentSettings
    session_edge: str = "run-http"
    waiting: Waiting = field(default_factory=Waiting)
    receipts: MemoryReceipts = field(default_factory=MemoryReceipts)
    events: list[tuple[str, JsonObject]] = field(default_factory=list)
    gateways: dict[str, Gateway] = field(default_factory=dict)
    meter: ModelMeter = field(default_factory=lambda: ModelMeter(ModelBudget()))

    def __post_init__(self) -> None:
        """Open the session, and another one with a token of its own."""
        offered, edge = tools(self.waiting), self.session_edge
        self.gateways[TOKEN] = make_gateway(offered, issue=an_issue(), edge=edge, receipts=self.receipts)
        self.gateways[OTHER_TOKEN] = make_gateway(
            offered, issue=an_issue("DEMO-2"), edge=edge, receipts=self.receipts, session_id="s-2"
        )

    def task(self, prompt: str, *, resume: str | None = None) -> AgentTask:
        """A task with that prompt."""
        return AgentTask(
            gateway=self.gateways[TOKEN],
            isolation=self.isolation,
            workspace=self.isolation.workspace,
            home=self.isolation.home,
            prompt=prompt,
            token=TOKEN,
            resolve_token=self._resolve,
            model=ModelAccess(token=MODEL_TOKEN, authenticate=self._knows_model_token, meter=self.meter),
            settings=self.settings,
            event=lambda name, facts: self.events.append((name, dict(facts))),
            resume=resume,
        )

    async def play(self, runtime: AgentRuntime, steps: Iterable[Mapping[str, Any]], **task: Any) -> AgentOutcome:
        """Run a fake agent whose prompt is a list of steps. Fails after 60 seconds."""
        with anyio.fail_after(60):
            return await runtime.run(self.task(json.dumps(list(steps)), **task))

    def named(self, name: str) -> list[JsonObject]:
        """The facts of every event of that name."""
        return [facts for event, facts in self.events if event == name]

    def calls(self) -> list[tuple[str, str | None]]:
        """Tool and failure code of every receipt, in order of their ends."""
        started = {event.receipt_id: event.tool for event in self.receipts.starts}
        return [(started[end.receipt_id], end.code and end.code.value) for end in self.receipts.ends]

    @property
    def edge(self) -> tuple[str, int]:
        """Where the HTTP edge was."""
        url = urlsplit(str(self.named("edge_started")[0]["url"]))
        return str(url.hostname), int(url.port or 0)

    async def _knows_model_token(self, token: str) -> bool:
        return token == MODEL_TOKEN

    async def _resolve(self, token: str) -> Gateway | None:
        return self.gateways.get(token)
