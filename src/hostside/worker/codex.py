"""Codex as the agent of a run: its app-server inside the run's isolation, its dynamic tools served by the host (D24)."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from hostside.core.canonical import JsonObject, JsonValue
from hostside.edges.codex import dynamic_tools
from hostside.errors import ConfigError
from hostside.worker.agent import AgentOutcome, AgentTask, EndState
from hostside.worker.codex_calls import Activity, HostCalls
from hostside.worker.codex_events import Recorder, ThreadWatch, outcome_of
from hostside.worker.codex_frames import Notification, Request, Unreadable
from hostside.worker.codex_launch import (
    DEFAULT_COMMAND,
    codex_settings,
    launch_arguments,
    sandbox_mode,
    settings_arguments,
)
from hostside.worker.codex_protocol import AgentGone, AppServer, RequestRejected
from hostside.worker.codex_start import ended, executable_of, explained, failed, outside, recorder_of, start_codex
from hostside.worker.model_provider import OPENAI
from hostside.worker.model_proxy import agent_base_url
from hostside.worker.process import Child, LaunchError
from hostside.worker.run_model import model_upstream, run_model

#: Asked after a completed turn whether the conversation goes on: the next prompt, or None.
NextPrompt = Callable[[AgentOutcome], Awaitable[str | None]]

_REQUEST_SECONDS = 30.0
_INTERRUPT_SECONDS = 1.0
_EXIT_SECONDS = 2.0
_GRACE_SECONDS = 2.0
DRAIN_SECONDS = 10.0
MAX_OPEN_REQUESTS = 256


class CodexRuntime:
    """Drives `codex app-server`. `settings.options["command"]` may hold the launch command (`launch_arguments`).

    With `next_prompt` and `settings.max_turns` above 1 a completed turn may be followed by another in the same thread;
    one that is still wanted after the last allowed turn ends as `max_turns`. `task.resume` names a thread of the same
    home, opened under the same snapshot: a thread keeps the tools it was started with (R-195).

    Events (text redacted and bounded): `agent_started` (the process), `agent_thread`, `agent_turn_started`,
    `agent_turn_completed`, `agent_message`, `agent_native_tool`, `agent_model_retry`, `agent_error`, `agent_warning`,
    `agent_request_declined`, `agent_configuration_removed`, `agent_diagnostics` (its stderr, after a failure),
    `agent_ended`, `call_result_dropped`, `boundary_violation`, `frame_rejected`. Beside the reasons of `AgentOutcome`
    there is `model_unavailable`.
    """

    def __init__(self, edge: str = "codex", *, next_prompt: NextPrompt | None = None) -> None:
        if edge != "codex":
            raise ValueError("the app-server runtime serves dynamic tools only")
        self.edge = edge
        self._next_prompt = next_prompt

    async def run(self, task: AgentTask) -> AgentOutcome:
        """As `AgentRuntime.run`. A failure of the agent is an outcome, never an exception."""
        return ended(task, await self._drive(task))

    async def _drive(self, task: AgentTask) -> AgentOutcome:
        record = recorder_of(task)
        try:
            upstream = model_upstream(task.settings, OPENAI)
            child, address = await _start(task, record)
        except (ConfigError, LaunchError, OSError, ValueError) as error:
            return failed("start_failed", record.text(str(error)))
        async with child, run_model(task, child.listeners[0], address, upstream):
            return await _Conversation(task, child, record, self._next_prompt).run()


async def _start(task: AgentTask, record: Recorder) -> tuple[Child, tuple[str, int]]:
    """Start the app-server; return it, and where its model is inside the run."""
    settings = task.settings
    words = launch_arguments(executable_of(settings), settings.options.get("command", DEFAULT_COMMAND))
    with task.isolation.prepare(listeners=1) as launch:
        configuration = codex_settings(
            model=settings.model,
            base_url=agent_base_url(launch.addresses[0], OPENAI),
            shell=settings.native_tools != "off",
        )
        child = await start_codex(task, record, launch, [*words, *settings_arguments(configuration)])
        return child, launch.addresses[0]


class _Conversation:
    """One app-server, one thread, one or more turns."""

    def __init__(self, task: AgentTask, child: Child, record: Recorder, next_prompt: NextPrompt | None) -> None:
        self._task = task
        self._child = child
        self._record = record
        self._next_prompt = next_prompt
        self._inside = task.isolation.path_inside(task.workspace)
        self._server = AppServer(child)
        self._activity = Activity()
        self._calls = HostCalls(task.gateway, self._server, record, self._activity)
        self._watch = ThreadWatch(record, self._inside, self._calls.item_completed)
        self._reading = anyio.CancelScope(shield=True)
        self._open_requests = 0
        self._turns = 0

    async def run(self) -> AgentOutcome:
        """Converse, and leave nothing behind, however it ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, tasks)
            try:
                outcome = await self._converse()
                if outcome.state is not EndState.SUCCEEDED:
                    await self._stop()
                await self._calls.drain(DRAIN_SECONDS)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._stop()
                self._reading.cancel()
                tasks.cancel_scope.cancel()
        return replace(
            explained(outcome, self._child, self._record),
            agent_session_id=self._watch.thread_id or None,
            exit_code=self._child.exit_code,
            usage=self._watch.usage.as_object(),
            turns=self._turns,
        )

    # -- the stream

    async def _read(self, tasks: TaskGroup) -> None:
        # Read on through a cancellation of the run: the interrupt is answered, and what was dropped is told, on the way.
        with self._reading:
            async for frame in self._server.frames():
                self._activity.touch()
                if isinstance(frame, Notification):
                    self._watch.notice(frame)
                elif isinstance(frame, Unreadable):
                    self._record.event("frame_rejected", reason=frame.reason)
                else:
                    await self._accept(frame, tasks)
            self._watch.news.set()

    async def _accept(self, request: Request, tasks: TaskGroup) -> None:
        if isinstance(request.params, dict) and request.method == "item/commandExecution/requestApproval":
            self._watch.check_folder(request.params.get("cwd"))
        if self._open_requests >= MAX_OPEN_REQUESTS:
            # Only a runaway agent gets here; it is answered before its next line is read.
            await self._server.refuse(request.id, "too many requests are open")
            return
        self._open_requests += 1
        self._calls.opened(request)
        tasks.start_soon(self._serve, request)

    async def _serve(self, request: Request) -> None:
        try:
            await self._calls.serve(request)
        finally:
            self._open_requests -= 1

    # -- the conversation

    async def _converse(self) -> AgentOutcome:
        try:
            with anyio.fail_after(self._task.settings.start_timeout_seconds):
                await self._open_thread()
        except TimeoutError:
            return failed("start_failed", "the agent did not get ready in time")
        except AgentGone as error:
            return failed("start_failed", str(error))
        except RequestRejected as error:
            # D24: without its tools a run does not begin.
            reason = "tools_missing" if "dynamic" in error.message.lower() else "start_failed"
            return failed(reason, self._record.text(str(error)))
        prompt: str | None = self._task.prompt
        outcome = failed("no_result", "no turn was started")
        while prompt is not None:
            self._turns += 1
            outcome = await self._turn(prompt)
            prompt = await self._follow_up(outcome)
            if prompt is not None and self._turns >= self._task.settings.max_turns:
                return replace(outcome, state=EndState.FAILED, reason="max_turns")
        return outcome

    async def _follow_up(self, outcome: AgentOutcome) -> str | None:
        if self._next_prompt is None or self._task.settings.max_turns <= 1 or outcome.state is not EndState.SUCCEEDED:
            return None
        return await self._next_prompt(outcome)

    async def _open_thread(self) -> None:
        client: JsonObject = {"name": "hostside", "title": "Hostside", "version": "0"}
        capabilities: JsonObject = {"experimentalApi": True, "requestAttestation": False}
        about = await self._request("initialize", {"clientInfo": client, "capabilities": capabilities})
        await self._server.notify("initialized")
        if self._task.resume is None:
            opened = await self._request("thread/start", self._thread_parameters())
        else:
            common = self._common_parameters()
            opened = await self._request(
                "thread/resume", {"threadId": self._task.resume, "excludeTurns": True, **common}
            )
        thread = opened.get("thread")
        thread_id = thread.get("id") if isinstance(thread, dict) else None
        if not isinstance(thread_id, str):
            raise RequestRejected("thread/start", "its answer names no thread")
        self._watch.thread_id = thread_id
        self._record.event(
            "agent_thread",
            thread_id=thread_id,
            resumed=self._task.resume is not None,
            user_agent=self._record.text(about.get("userAgent")),
        )

    def _common_parameters(self) -> JsonObject:
        return {
            "cwd": self._inside,
            "sandbox": sandbox_mode(self._task.isolation.level),
            "approvalPolicy": "never",
            "developerInstructions": self._task.gateway.session.instructions(),
        }

    def _thread_parameters(self) -> JsonObject:
        parameters: JsonObject = {**self._common_parameters(), **self._environments()}
        tools = dynamic_tools(self._task.gateway.session)
        if tools is not None:
            listed: list[JsonValue] = [*tools]
            parameters["dynamicTools"] = listed
        return parameters

    def _environments(self) -> JsonObject:
        return {"environments": []} if self._task.settings.native_tools == "off" else {}

    async def _turn(self, prompt: str) -> AgentOutcome:
        self._watch.begin_turn()
        self._activity.touch()
        deadline = anyio.current_time() + self._task.settings.turn_timeout_seconds
        said: list[JsonValue] = [{"type": "text", "text": prompt}]
        parameters: JsonObject = {"threadId": self._watch.thread_id, "input": said, **self._environments()}
        try:
            started = await self._request("turn/start", parameters)
        except RequestRejected as error:
            return failed("agent_error", self._record.text(str(error)))
        except AgentGone:
            return failed("agent_exited", "the agent ended before its turn")
        except TimeoutError:
            return failed("stalled", "the agent did not take its turn")
        self._watch.turn_started(started)
        return await self._turn_over(deadline)

    async def _turn_over(self, deadline: float) -> AgentOutcome:
        watch, settings = self._watch, self._task.settings
        stall = settings.stall_timeout_seconds if settings.stall_timeout_seconds > 0 else math.inf
        while True:
            due = min(deadline, self._activity.last() + stall)
            with anyio.move_on_after(max(0.0, due - anyio.current_time())):
                await watch.news.wait()
            if watch.violation is not None:
                return failed("stopped", outside(watch.violation))
            if watch.end is not None:
                return outcome_of(watch.end, self._record)
            if self._server.gone:
                return failed("agent_exited", "the agent ended in the middle of its turn")
            now = anyio.current_time()
            if now >= deadline:
                return failed("turn_timeout", f"the turn took longer than {settings.turn_timeout_seconds:g} s")
            if now - self._activity.last() >= stall:
                return failed("stalled", f"the agent said nothing for {stall:g} s")

    async def _request(self, method: str, parameters: JsonObject) -> JsonObject:
        return await self._server.request(method, parameters, timeout_seconds=_REQUEST_SECONDS)

    # -- the end

    async def _interrupt(self) -> None:
        if not self._watch.running or self._server.gone:
            return
        ids: JsonObject = {"threadId": self._watch.thread_id, "turnId": self._watch.turn_id}
        with anyio.move_on_after(_INTERRUPT_SECONDS):
            try:
                await self._server.request("turn/interrupt", ids, timeout_seconds=_INTERRUPT_SECONDS)
            except (RequestRejected, AgentGone, TimeoutError):
                return

    async def _stop(self) -> None:
        """Interrupt, end of input, SIGTERM, SIGKILL: each only where the one before it was not enough. Safe to repeat."""
        await self._interrupt()
        self._child.close_stdin()
        with anyio.move_on_after(_EXIT_SECONDS):
            await self._child.ended()
        await self._child.stop(grace_seconds=_GRACE_SECONDS)
