"""Codex as the agent of a run without its app-server: `codex exec`, its tools over HTTP on a listener of the run (R-196)."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import anyio
import anyio.lowlevel

from hostside.errors import ConfigError
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.codex_events import Recorder, ThreadWatch, outcome_of
from hostside.worker.codex_exec_events import Counts, ExecEvents
from hostside.worker.codex_exec_launch import EDGE_TOKEN_VARIABLE, exec_settings, exec_words
from hostside.worker.codex_start import ended, explained, failed, outside, recorder_of, start_codex
from hostside.worker.model_provider import OPENAI
from hostside.worker.model_proxy import agent_base_url
from hostside.worker.process import Child, LaunchError
from hostside.worker.process_streams import LineTooLong
from hostside.worker.run_clock import Clock, Stop
from hostside.worker.run_edge import edge_url, run_edge
from hostside.worker.run_gateway import WatchedGateway
from hostside.worker.run_model import model_upstream, run_model

HTTP = "run-http"
MAX_EVENT_BYTES = 16 * 1024 * 1024
_EXIT_SECONDS = 10.0
_GRACE_SECONDS = 2.0
_DRAIN_SECONDS = 2.0
_NO_SERVER = "required MCP servers failed to initialize"


class CodexExecRuntime:
    """Drives `codex exec`, one process and one turn for each task; `task.resume` names a thread of the same home.

    The run's tools are those of each task, also in a resumed thread. Events as those of `CodexRuntime`, with
    `edge_started` and `edge_stopped`, and without what this stream does not tell: `agent_request_declined`, turn ids, the
    folder of a command (so no `boundary_violation` either), and the receipt of a dropped result.

    `usage` counts what this task used. For a thread that another host process began it is empty: only the sum is told.
    """

    def __init__(self, edge: str = HTTP) -> None:
        if edge != HTTP:
            raise ValueError(f"this runtime serves the edge {HTTP}, not {edge}")
        self.edge = edge
        self._used: dict[str, Counts] = {}

    async def run(self, task: AgentTask) -> AgentOutcome:
        """As `AgentRuntime.run`. A failure of the agent is an outcome, never an exception."""
        if task.gateway.session.edge != self.edge:
            raise ValueError(f"a session of the edge {task.gateway.session.edge} in a runtime that serves {self.edge}")
        return ended(task, await self._drive(task))

    async def _drive(self, task: AgentTask) -> AgentOutcome:
        record = recorder_of(task)
        try:
            upstream = model_upstream(task.settings, OPENAI)
            child = await _start(task, record)
        except (ConfigError, LaunchError, OSError, ValueError) as error:
            return failed("start_failed", record.text(str(error)))
        clock = Clock(task.settings)
        # Its own view of the token: only of this session, and with calls that hold the clock.
        own = replace(task, resolve_token=WatchedGateway(task, clock).resolve)
        (edge_listener, model_listener), (edge, model) = child.listeners, child.listener_addresses
        async with child, run_edge(own, (edge_listener,), edge), run_model(task, model_listener, model, upstream):
            turn = _Turn(task, child, record, clock, self._used)
            outcome = await turn.run()
        self._remember(outcome, turn.total)
        return outcome

    def _remember(self, outcome: AgentOutcome, total: Counts | None) -> None:
        if outcome.agent_session_id is None:
            return
        if total is None:
            # Nobody said what was used: what a later turn says of all is not to be told apart.
            self._used.pop(outcome.agent_session_id, None)
        else:
            self._used[outcome.agent_session_id] = total


async def _start(task: AgentTask, record: Recorder) -> Child:
    with task.isolation.prepare(listeners=2) as launch:
        settings = exec_settings(
            task.settings,
            level=task.isolation.level,
            edge_url=edge_url(launch.addresses[0]),
            model_url=agent_base_url(launch.addresses[1], OPENAI),
        )
        words = exec_words(settings, resume=task.resume)
        return await start_codex(task, record, launch, words, {EDGE_TOKEN_VARIABLE: task.token})


class _Turn:
    """One process: its prompt goes in, its lines come out, bounded by the run's clocks."""

    def __init__(
        self, task: AgentTask, child: Child, record: Recorder, clock: Clock, used: Mapping[str, Counts]
    ) -> None:
        self._task = task
        self._child = child
        self._record = record
        self._clock = clock
        self._watch = ThreadWatch(record, task.isolation.path_inside(task.workspace), _no_dynamic_call)
        self._watch.begin_turn()
        self._events = ExecEvents(record, self._watch, resumed=task.resume, before=used)
        self._started = anyio.Event()
        self._unreadable = ""

    @property
    def total(self) -> Counts | None:
        """What the thread has used, where its turn ended well."""
        return self._events.total

    async def run(self) -> AgentOutcome:
        """Follow the turn to its end, and leave nothing behind, however it ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._say)
            tasks.start_soon(self._read)
            try:
                stop = await self._over()
                if stop is None:
                    await self._exit()
            finally:
                with anyio.CancelScope(shield=True):
                    exited = self._child.exit_code is not None
                    await self._child.stop(_GRACE_SECONDS)
                self._events.end()
                tasks.cancel_scope.cancel()
        outcome = self._ended(stop, self._child.exit_code if exited else None)
        return replace(
            explained(outcome, self._child, self._record),
            agent_session_id=self._watch.thread_id or None,
            exit_code=self._child.exit_code,
            usage=self._watch.usage.as_object(),
            turns=self._events.turns,
        )

    async def _say(self) -> None:
        # One that ends at once does not read it.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._child.send(self._task.prompt.encode())
        self._child.close_stdin()

    async def _read(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_with_process, tasks.cancel_scope)
                while (line := await self._next_line()) is not None:
                    self._clock.touch()
                    self._events.take(line)
                    if self._events.started and not self._started.is_set():
                        self._clock.started()
                        self._started.set()
                tasks.cancel_scope.cancel()
        except* LineTooLong as group:
            self._unreadable = f"the agent wrote {group.exceptions[0]}"
        finally:
            self._started.set()
            self._watch.news.set()

    async def _next_line(self) -> bytes | None:
        # Lines that are there already are read without a pause: a flood of them must not hold up the host's clocks.
        await anyio.lowlevel.checkpoint()
        return await self._child.receive_line(MAX_EVENT_BYTES)

    async def _end_with_process(self, reading: anyio.CancelScope) -> None:
        # What the agent started may hold its output open: the end of the process is the end of what it says.
        await self._child.ended()
        await anyio.sleep(_DRAIN_SECONDS)
        reading.cancel()

    async def _over(self) -> Stop | None:
        """Until the turn or the process has ended (None) or has to be ended."""
        stop = await self._until(self._started) or await self._until(self._watch.news)
        if stop is None and self._watch.violation is not None:
            return Stop(reason="stopped", detail=outside(self._watch.violation))
        if stop is None and self._unreadable:
            return Stop(reason="agent_error", detail=self._unreadable)
        return stop

    async def _until(self, event: anyio.Event) -> Stop | None:
        while not event.is_set():
            with anyio.move_on_after(self._clock.seconds_left()):
                await event.wait()
            if not event.is_set() and (stop := self._clock.expired()) is not None:
                return stop
        return None

    async def _exit(self) -> None:
        with anyio.move_on_after(_EXIT_SECONDS):
            await self._child.ended()

    def _ended(self, stop: Stop | None, exit_code: int | None) -> AgentOutcome:
        if stop is not None and not self._events.started and stop.reason != "turn_timeout":
            return failed("start_failed", "the agent did not get ready in time")
        if stop is not None:
            return failed(stop.reason, stop.detail)
        if self._watch.end is not None:
            outcome = outcome_of(self._watch.end, self._record)
            if outcome.state is EndState.SUCCEEDED and exit_code not in (0, None):
                return failed("agent_exited", "the agent failed after its turn")
            return outcome
        if not self._events.started:
            # D24: without its tools a run does not begin.
            missing = _NO_SERVER in self._child.stderr.text()
            return failed("tools_missing" if missing else "start_failed", "the agent ended before its turn")
        if self._child.exit_code == 0:
            return failed("no_result", "the agent ended without an end of its turn")
        return failed("agent_exited", "the agent ended in the middle of its turn")


def _no_dynamic_call(_item: object) -> None:
    """This agent has no dynamic tools."""
