"""Claude Code as the agent of a run, its tools over HTTP on a listener that only this run has (D9, D24, R-202)."""

import contextlib
import os
import socket
import uuid
from collections.abc import Sequence

import anyio

from hostside.core.canonical import JsonValue
from hostside.core.gateway import Gateway
from hostside.core.redaction import Redactor
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.claude_command import arguments, mcp_config, native_tools, variables
from hostside.worker.claude_conversation import Clock, Conversation, Stop
from hostside.worker.claude_events import EventReporter
from hostside.worker.claude_outcome import classify
from hostside.worker.isolation import Launch, RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.model_relay import ModelRelay, relayed_base_url
from hostside.worker.process import Child, LaunchError

DEFAULT_UPSTREAM = "https://api.anthropic.com"
_STDERR_BYTES = 4_096


class ClaudeRuntime:
    """Runs `claude -p` once for each task. The run's isolation must show the executable (`claude_command.claude_binds`).

    Events it tells (all text redacted and bounded): `edge_started`, `edge_stopped`, `agent_started` (the process),
    `agent_ready` (its tools are there), `agent_message`, `agent_native_tool`, `agent_permission_denied`,
    `agent_model_retry`, `agent_usage`, `agent_ended`. Beside the reasons of `AgentOutcome` there is `model_unavailable`:
    the provider was not reached or failed, and a later attempt may succeed.
    """

    def __init__(self, edge: str = "run-http") -> None:
        if edge != "run-http":
            raise ValueError(f"this runtime serves the edge run-http, not {edge}")
        self.edge = edge

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Drive one conversation to its end. Raises nothing but cancellation, and then too agent, edge and listeners are
        gone. A failure to start is the outcome `start_failed`."""
        run = _Run(task)
        try:
            outcome = await run.drive()
        except _NotStarted as error:
            outcome = AgentOutcome(state=EndState.FAILED, reason="start_failed", detail=run.redact(str(error)))
        task.event(
            "agent_ended", {"state": outcome.state.value, "reason": outcome.reason, "exit_code": outcome.exit_code}
        )
        return outcome


class _NotStarted(Exception):
    """There was never an agent; the text says why."""


class _Run:
    def __init__(self, task: AgentTask) -> None:
        self._task = task
        secrets = filter(None, (task.token, task.settings.model_key))
        self.redact = Redactor(secrets).text
        self._report = EventReporter(task.event, self.redact)
        self._clock = Clock(task.settings)
        self._upstream = task.settings.model_base_url or DEFAULT_UPSTREAM

    async def drive(self) -> AgentOutcome:
        with self._task.isolation.prepare(listeners=2) as launch:
            async with contextlib.AsyncExitStack() as services:
                # Outside a sandbox the sockets exist already, and are served before there is a child. Those of
                # a sandbox come out of it; they listen before the agent is the agent, so it finds them all the same.
                early = launch.take_listeners()
                if early:
                    await self._serve(services, early, launch.addresses)
                child = await self._spawn(launch)
                try:
                    if not early:
                        await self._serve(services, child.listeners, launch.addresses)
                    return await self._converse(child)
                finally:
                    with anyio.CancelScope(shield=True):
                        await child.aclose()

    async def _spawn(self, launch: Launch) -> Child:
        task = self._task
        try:
            command, extras = self._command(launch)
            child = await task.isolation.spawn(
                command, extras=extras, launch=launch, stderr_limit=_STDERR_BYTES
            )
        except (HostsideError, OSError, ValueError) as error:
            raise _NotStarted(f"the agent could not be started: {error}") from error
        facts: JsonObject = {"pid": child.pid, "pid_started_at": child.pid_started_at}
        task.event("agent_started", {"agent": "claude", "native_tools": list(native_tools(task.settings)), **facts})
        return child

    def _command(self, launch: Launch) -> tuple[list[str], dict[str, str]]:
        task, settings = self._task, self._task.settings
        if settings.executable is None:
            raise ValueError("no executable is configured")
        edge, model = launch.addresses
        config = launch.add_data(mcp_config(_edge_url(edge), task.token, settings))
        command = arguments(
            settings,
            executable=task.isolation.path_inside(settings.executable.resolve(strict=True)),
            config=config,
            session_id=str(uuid.uuid4()),
            resume=task.resume,
        )
        temporary = _temporary_folder(task.isolation)
        return command, variables(
            settings, model_url=relayed_base_url(model, self._upstream), temporary=temporary
        )

    async def _converse(self, child: Child) -> AgentOutcome:
        task = self._task
        listed = tuple(tool.name for tool in task.gateway.session.listing())
        conversation = Conversation(
            child, self._report, self._clock, listed=listed, native=native_tools(task.settings)
        )
        try:
            stop = await conversation.run(task.prompt, lambda: self._ready(listed))
        except BaseException:
            # Mostly the operator's or the deadline's cancellation: the agent may still cancel its own calls.
            with anyio.CancelScope(shield=True):
                await conversation.interrupt()
            raise
        if stop is None:
            exit_code = await conversation.finish()
        else:
            await conversation.interrupt()
            exit_code = child.exit_code
        return classify(
            self._report,
            stop=stop,
            exit_code=exit_code,
            stderr=child.stderr.text(self.redact),
            redact=self.redact,
        )

    def _ready(self, listed: tuple[str, ...]) -> None:
        init = self._report.init
        assert init is not None
        self._task.event(
            "agent_ready",
            {
                "agent_session_id": init.session_id,
                "agent_version": init.version,
                "model": init.model,
                "registry_fingerprint": self._task.gateway.session.registry.fingerprint,
                "tools": list(listed),
            },
        )

