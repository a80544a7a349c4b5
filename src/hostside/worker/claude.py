"""Claude Code as the agent of a run: its tools in-band over its own pipes, or over HTTP on a listener that only this run
has (D9, D24, R-202)."""

import abc
import contextlib
import os
import socket
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from hostside.core.canonical import JsonObject
from hostside.core.redaction import Redactor
from hostside.edges.mcp_inband import InbandEdge
from hostside.errors import HostsideError
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.claude_command import arguments, http_config, inband_config, native_tools, variables
from hostside.worker.claude_conversation import Conversation
from hostside.worker.claude_events import EventReporter
from hostside.worker.claude_input import AgentInput
from hostside.worker.claude_outcome import classify
from hostside.worker.isolation import Launch, RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.model_provider import ANTHROPIC
from hostside.worker.model_proxy import agent_base_url
from hostside.worker.process import Child
from hostside.worker.run_clock import Clock
from hostside.worker.run_edge import edge_url, run_edge
from hostside.worker.run_gateway import TokenlessGateway, WatchedGateway
from hostside.worker.run_model import model_upstream, run_model

INBAND = "inband"
HTTP = "run-http"
AUTO = "auto"
_STDERR_BYTES = 4_096
_REFUSALS_TOLD = 20


class ClaudeRuntime:
    """Runs `claude -p` once for each task. The run's isolation must show the executable (`claude_command.claude_binds`).

    `edge`: `inband` (no port, no token in the agent's hands), `run-http`, or `auto`: in-band, and an outcome
    `edge_failed` brings the HTTP runtime as its `fallback`. The task's session must be of the edge `self.edge`.

    Events it tells (all text redacted and bounded): `edge_started`, `edge_stopped`, `agent_started` (the process),
    `agent_ready` (its tools are there), `agent_message`, `agent_native_tool`, `agent_permission_denied`,
    `agent_model_retry`, `agent_usage`, `agent_ended`, `frame_rejected` (in-band, the first 20). Beside the reasons of
    `AgentOutcome` there is `model_unavailable`: the provider was not reached or failed, and a later attempt may succeed.
    """

    def __init__(self, edge: str = AUTO) -> None:
        if edge not in (INBAND, HTTP, AUTO):
            raise ValueError(f"this runtime serves the edges {INBAND} and {HTTP}, not {edge}")
        self.edge = INBAND if edge == AUTO else edge
        self._falls_back = edge == AUTO

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Drive one conversation to its end. Whatever the agent does is an outcome, also that it does not start.

        When this returns or is cancelled, agent, listeners and edge are gone and every call has its receipt.
        """
        if task.gateway.session.edge != self.edge:
            raise ValueError(f"a session of the edge {task.gateway.session.edge} in a runtime that serves {self.edge}")
        run = _Inband(task) if self.edge == INBAND else _OverHttp(task)
        outcome = await run.drive()
        task.event(
            "agent_ended", {"state": outcome.state.value, "reason": outcome.reason, "exit_code": outcome.exit_code}
        )
        if self._falls_back and outcome.reason == "edge_failed" and not run.called:
            return replace(outcome, fallback=ClaudeRuntime(HTTP))
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    argv: Sequence[str]
    variables: Mapping[str, str]


class _Run(abc.ABC):
    """One conversation. What differs between the edges is below."""

    listeners: int
    """Sockets of its own that the agent is given; the last is the model's."""

    def __init__(self, task: AgentTask) -> None:
        self._task = task
        secrets = filter(None, (task.token, task.model.token, task.settings.model_key))
        self._redact = Redactor(secrets).text
        self._report = EventReporter(task.event, self._redact)
        self._clock = Clock(task.settings)
        self._given = AgentInput()
        self._gateway = WatchedGateway(task, self._clock)
        self._inband: InbandEdge | None = None

    @property
    def called(self) -> bool:
        """A tool call came."""
        return self._gateway.called

    async def drive(self) -> AgentOutcome:
        with self._task.isolation.prepare(listeners=self.listeners) as launch:
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
        model_upstream(settings, ANTHROPIC)  # what is wrong with it stops the run before anything is started
        argv = arguments(
            settings,
            executable=task.isolation.path_inside(settings.executable.resolve(strict=True)),
            config=launch.add_data(self._config(launch)),
            session_id=str(uuid.uuid4()),
            resume=task.resume,
        )
        extras = variables(
            settings,
            model_url=agent_base_url(launch.addresses[-1], ANTHROPIC),
            model_token=task.model.token,
            temporary=_temporary_folder(task.isolation),
        )
        if lost := extras.keys() - task.isolation.environment(extras).keys():
            raise ValueError(f"a configured secret keeps {', '.join(sorted(lost))} from the agent")
        return _Command(argv=argv, variables=extras)

    async def _converse(self, child: Child) -> AgentOutcome:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._given.write_to, child)
            try:
                outcome = await self._talk(child)
            finally:
                self._given.close()
        return outcome

    async def _talk(self, child: Child) -> AgentOutcome:
        task = self._task
        listed = task.gateway.session.listed
        conversation = Conversation(
            child,
            self._given,
            self._report,
            self._clock,
            listed=listed,
            native=native_tools(task.settings),
            inband=self._inband,
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
        await services.enter_async_context(self._edge(listeners, addresses))
        upstream = model_upstream(self._task.settings, ANTHROPIC)
        await services.enter_async_context(run_model(self._task, listeners[-1], addresses[-1], upstream))

    @abc.abstractmethod
    def _config(self, launch: Launch) -> bytes:
        """The MCP configuration of the agent."""

    @abc.abstractmethod
    def _edge(
        self, listeners: Sequence[socket.socket], addresses: Sequence[tuple[str, int]]
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Serve the tools while the block runs."""


class _OverHttp(_Run):
    listeners = 2

    def _config(self, launch: Launch) -> bytes:
        return http_config(edge_url(launch.addresses[0]), self._task.token, self._task.settings)

    def _edge(
        self, listeners: Sequence[socket.socket], addresses: Sequence[tuple[str, int]]
    ) -> contextlib.AbstractAsyncContextManager[None]:
        # Its own view of the token: only of this session, and with calls that hold the clock.
        return run_edge(replace(self._task, resolve_token=self._gateway.resolve), listeners[:1], addresses[0])


class _Inband(_Run):
    listeners = 1

    def __init__(self, task: AgentTask) -> None:
        super().__init__(task)
        self._refusals = 0
        self._gateway = TokenlessGateway(task, self._clock)
        self._inband = InbandEdge(self._gateway, self._given.put, refused=self._refused)

    def _config(self, launch: Launch) -> bytes:
        return inband_config(self._task.settings)

    @contextlib.asynccontextmanager
    async def _edge(
        self, listeners: Sequence[socket.socket], addresses: Sequence[tuple[str, int]]
    ) -> AsyncIterator[None]:
        assert self._inband is not None
        async with anyio.create_task_group() as group:
            group.start_soon(self._inband.serve)
            self._task.event("edge_started", {"edge": INBAND})
            try:
                yield
            finally:
                self._task.event("edge_stopped", {"edge": INBAND})
                group.cancel_scope.cancel()

    def _refused(self, reason: str) -> None:
        # Each event is a row, and the agent chooses how many lines it writes.
        self._refusals += 1
        if self._refusals <= _REFUSALS_TOLD:
            self._task.event("frame_rejected", {"reason": self._redact(reason)[:200]})


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
