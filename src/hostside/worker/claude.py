"""Claude Code as the agent of a run, its tools over HTTP on a listener that only this run has (D9, D24, R-202)."""

import contextlib
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from hostside.core.call import ToolCall, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.core.redaction import Redactor
from hostside.errors import HostsideError
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.claude_command import arguments, mcp_config, native_tools, variables
from hostside.worker.claude_conversation import Clock, Conversation
from hostside.worker.claude_events import EventReporter
from hostside.worker.claude_outcome import classify
from hostside.worker.isolation import Launch, RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.model_relay import ModelRelay, relayed_base_url
from hostside.worker.process import Child
from hostside.worker.run_edge import edge_url, run_edge

DEFAULT_UPSTREAM = "https://api.anthropic.com"
EDGE = "run-http"
_STDERR_BYTES = 4_096


class ClaudeRuntime:
    """Runs `claude -p` once for each task. The run's isolation must show the executable (`claude_command.claude_binds`).

    Events it tells (all text redacted and bounded): `edge_started`, `edge_stopped`, `agent_started` (the process),
    `agent_ready` (its tools are there), `agent_message`, `agent_native_tool`, `agent_permission_denied`,
    `agent_model_retry`, `agent_usage`, `agent_ended`. Beside the reasons of `AgentOutcome` there is `model_unavailable`:
    the provider was not reached or failed, and a later attempt may succeed.
    """

    def __init__(self, edge: str = EDGE) -> None:
        if edge != EDGE:
            raise ValueError(f"this runtime serves the edge {EDGE}, not {edge}")
        self.edge = edge

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Drive one conversation to its end. Whatever the agent does is an outcome, also that it does not start.

        When this returns or is cancelled, agent, listeners and edge are gone and every call has its receipt.
        """
        outcome = await _Run(task).drive()
        task.event(
            "agent_ended", {"state": outcome.state.value, "reason": outcome.reason, "exit_code": outcome.exit_code}
        )
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    argv: Sequence[str]
    variables: Mapping[str, str]


class _Run:
    def __init__(self, task: AgentTask) -> None:
        self._task = task
        secrets = filter(None, (task.token, task.settings.model_key))
        self._redact = Redactor(secrets).text
        self._report = EventReporter(task.event, self._redact)
        self._clock = Clock(task.settings)
        self._upstream = task.settings.model_base_url or DEFAULT_UPSTREAM
        self._watched: _WatchedGateway | None = None

    async def drive(self) -> AgentOutcome:
        with self._task.isolation.prepare(listeners=2) as launch:
            try:
                command = self._command(launch)
            except (HostsideError, OSError, ValueError) as error:
                return self._not_started(error)
            async with contextlib.AsyncExitStack() as services:
                # Outside a sandbox the sockets exist already, and are served before there is a child. Those of
                # a sandbox come out of it; they listen before the agent is the agent, so it finds them all the same.
                early = launch.take_listeners()
                if early:
                    await self._serve(services, early, launch.addresses)
                try:
                    child = await self._spawn(command, launch)
                except (HostsideError, OSError, ValueError) as error:
                    return self._not_started(error)
                try:
                    if not early:
                        await self._serve(services, child.listeners, launch.addresses)
                    return await self._converse(child)
                finally:
                    with anyio.CancelScope(shield=True):
                        await child.aclose()

    def _not_started(self, error: Exception) -> AgentOutcome:
        detail = self._redact(f"the agent could not be started: {error}")
        return AgentOutcome(state=EndState.FAILED, reason="start_failed", detail=detail)

    async def _spawn(self, command: _Command, launch: Launch) -> Child:
        task = self._task
        child = await task.isolation.spawn(
            command.argv, extras=command.variables, launch=launch, stderr_limit=_STDERR_BYTES
        )
        facts: JsonObject = {"pid": child.pid, "pid_started_at": child.pid_started_at}
        task.event("agent_started", {"agent": "claude", "native_tools": list(native_tools(task.settings)), **facts})
        return child

    def _command(self, launch: Launch) -> _Command:
        task, settings = self._task, self._task.settings
        if settings.executable is None:
            raise ValueError("no executable is configured")
        edge, model = launch.addresses
        config = launch.add_data(mcp_config(edge_url(edge), task.token, settings))
        argv = arguments(
            settings,
            executable=task.isolation.path_inside(settings.executable.resolve(strict=True)),
            config=config,
            session_id=str(uuid.uuid4()),
            resume=task.resume,
        )
        extras = variables(
            settings,
            model_url=relayed_base_url(model, self._upstream),
            temporary=_temporary_folder(task.isolation),
        )
        if lost := extras.keys() - task.isolation.environment(extras).keys():
            raise ValueError(f"a configured secret keeps {', '.join(sorted(lost))} from the agent")
        return _Command(argv=argv, variables=extras)

    async def _converse(self, child: Child) -> AgentOutcome:
        task = self._task
        listed = task.gateway.session.listed
        conversation = Conversation(child, self._report, self._clock, listed=listed, native=native_tools(task.settings))
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
            stderr=child.stderr.text(self._redact),
            redact=self._redact,
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

    async def _serve(
        self,
        services: contextlib.AsyncExitStack,
        listeners: Sequence[socket.socket],
        addresses: Sequence[tuple[str, int]],
    ) -> None:
        for listener in listeners:
            services.callback(listener.close)
        edge, model = listeners
        # Its own view of the token: only of this session, and with calls that hold the clock.
        task = replace(self._task, resolve_token=self._resolve)
        await services.enter_async_context(run_edge(task, [edge], addresses[0]))
        await services.enter_async_context(ModelRelay(model, self._upstream))

    async def _resolve(self, token: str) -> Gateway | None:
        gateway = await self._task.resolve_token(token)
        # The listener is this run's: another session's token, good as it may be elsewhere, is none here.
        if gateway is None or gateway.session.session_id != self._task.gateway.session.session_id:
            return None
        # One object for one gateway, since the edge keeps by it what it made of the listing.
        if self._watched is None or self._watched.inner is not gateway:
            self._watched = _WatchedGateway(gateway, self._clock)
        return self._watched


class _WatchedGateway(Gateway):
    """The task's gateway, whose calls hold the clock (R-192)."""

    def __init__(self, inner: Gateway, clock: Clock) -> None:
        self.session = inner.session
        self.inner = inner
        self._clock = clock

    async def call(self, call: ToolCall) -> ToolResult:
        with self._clock.calling():
            return await self.inner.call(call)

    def close(self, reason: str) -> None:
        self.inner.close(reason)


def _temporary_folder(isolation: RunIsolation) -> str | None:
    """Make the folder that TMPDIR names; None in a sandbox, which has a /tmp of its own."""
    if isolation.level is IsolationLevel.BWRAP:
        return None
    folder = isolation.home / "tmp"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return str(folder)
    owner = isolation.home.stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    return str(folder)
