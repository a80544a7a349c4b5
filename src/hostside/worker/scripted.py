"""The scripted agent: a real MCP client inside the run's isolation that follows a small script, so that no model is needed."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from hostside.core.canonical import JsonRejected, JsonValue, parse
from hostside.core.redaction import Redactor
from hostside.errors import ConfigError
from hostside.worker import scripted_client
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.isolation import RunIsolation
from hostside.worker.process import Child, LaunchError
from hostside.worker.run_edge import edge_url, run_edge
from hostside.worker.sandbox_args import Bind

STDERR_BYTES = 8_192
SCRIPT_BYTES = 1_000_000
_CLIENT = "/opt/hostside/scripted_client.py"


def scripted_binds() -> tuple[Bind, ...]:
    """Return what a sandbox must show: the client itself, this interpreter and the packages of its environment."""
    folders = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    outside = sorted(folder for folder in folders if not folder.is_relative_to("/usr"))
    # A folder inside another comes with it.
    kept = [
        folder for folder in outside if not any(folder != other and folder.is_relative_to(other) for other in outside)
    ]
    client = Bind(source=Path(scripted_client.__file__).resolve(), target=_CLIENT)
    return (client, *(Bind(source=folder, target=str(folder)) for folder in kept))


def read_script(path: Path) -> bytes:
    """Return the script of a file: `[{"tool", "arguments", "expect"?}]`. Raises ConfigError that names what is wrong."""
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise _bad(f"{path} cannot be read: {exc.strerror}") from None
    return check_script(raw)


def check_script(raw: bytes) -> bytes:
    """Return `raw` when it is a script. Raises ConfigError that names the step and the key."""
    try:
        steps = parse(raw) if len(raw) <= SCRIPT_BYTES else None
    except JsonRejected as exc:
        raise _bad(str(exc)) from None
    if not isinstance(steps, list):
        raise _bad("it is not a JSON array of steps")
    for number, step in enumerate(steps):
        if not isinstance(step, dict) or not isinstance(step.get("tool"), str):
            raise _bad(f"step {number} names no tool")
        unknown = step.keys() - {"tool", "arguments", "expect"}
        if unknown or not isinstance(step.get("expect", ""), str):
            raise _bad(f"step {number} has other keys than tool, arguments and expect")
    return raw


class ScriptedRuntime:
    """Runs one script to its end. Succeeds when every step ended as its `expect` says."""

    edge = "run-http"

    def __init__(self, script: bytes) -> None:
        """`script`: as `check_script` returned it."""
        self._script = script

    async def run(self, task: AgentTask) -> AgentOutcome:
        """As `AgentRuntime.run`; a failure of the client is an outcome, never an exception."""
        try:
            return await self._run(task)
        except (LaunchError, TimeoutError, OSError, ValueError) as error:
            detail = Redactor([task.token]).text(str(error))
            return AgentOutcome(state=EndState.FAILED, reason="start_failed", detail=detail)

    async def _run(self, task: AgentTask) -> AgentOutcome:
        with task.isolation.prepare(listeners=1) as launch:
            address = launch.addresses[0]
            server = {"type": "http", "url": edge_url(address), "headers": {"Authorization": f"Bearer {task.token}"}}
            config = launch.add_data(json.dumps({"mcpServers": {"hostside": server}}).encode())
            script = launch.add_data(self._script)
            child = await task.isolation.spawn(
                [*_interpreter(task.isolation), config, script], launch=launch, stdin=False, stderr_limit=STDERR_BYTES
            )
        async with child:
            task.event("agent_started", {"agent": "scripted", "pid": child.pid, "pid_started_at": child.pid_started_at})
            async with run_edge(task, child.listeners, address):
                return await self._follow(task, child)

    async def _follow(self, task: AgentTask, child: Child) -> AgentOutcome:
        settings = task.settings
        events = _Events(task)
        try:
            with anyio.fail_after(settings.turn_timeout_seconds):
                while True:
                    with anyio.fail_after(settings.start_timeout_seconds if events.tools is None else None):
                        line = await child.receive_line()
                    if line is None:
                        break
                    if not events.take(line):
                        return _failed("tools_missing", f"the agent found {events.tools}")
        except TimeoutError:
            reason = "tools_missing" if events.tools is None else "turn_timeout"
            return _failed(reason, child.stderr.text(Redactor([task.token]).text)[-400:])
        exit_code = await child.wait()
        if events.ended is None:
            detail = child.stderr.text(Redactor([task.token]).text).strip()[-400:]
            return _failed("no_result" if exit_code == 0 else "agent_exited", detail, exit_code)
        if not events.ended:
            return _failed("agent_error", f"a step ended otherwise than expected: {events.surprise}", exit_code)
        return AgentOutcome(state=EndState.SUCCEEDED, reason="completed", exit_code=exit_code, turns=1)


class _Events:
    def __init__(self, task: AgentTask) -> None:
        self._task = task
        self.tools: list[str] | None = None
        self.ended: bool | None = None
        self.surprise = ""

    def take(self, line: bytes) -> bool:
        """Take one line; False when the agent found other tools than the session lists (D24)."""
        try:
            event = parse(line)
        except JsonRejected:
            return True
        if not isinstance(event, dict):
            return True
        if event.get("type") == "init":
            self.tools = _texts(event.get("tools"))
            return self.tools == sorted(self._task.gateway.session.listed)
        if event.get("type") == "end":
            self.ended = event.get("ok") is True
        elif event.get("type") == "call" and event.get("outcome") != event.get("expected") and not self.surprise:
            self.surprise = f"{event.get('tool')}: {event.get('outcome')} instead of {event.get('expected')}"
        return True


def _texts(value: JsonValue) -> list[str]:
    return sorted(str(item) for item in value) if isinstance(value, list) else []


def _interpreter(isolation: RunIsolation) -> Sequence[str]:
    client = Path(scripted_client.__file__).resolve()
    return (isolation.path_inside(Path(sys.executable)), "-I", "-B", isolation.path_inside(client))


def _failed(reason: str, detail: str, exit_code: int | None = None) -> AgentOutcome:
    return AgentOutcome(state=EndState.FAILED, reason=reason, detail=detail, exit_code=exit_code)


def _bad(why: str) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"the agent script cannot be used: {why}.",
        remedy='Write [{"tool": "file_issue_get", "arguments": {}, "expect": "ok"}, ...].',
    )
