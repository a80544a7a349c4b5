"""One started Claude Code process: its prompt goes in, its events come out, bounded by three clocks.

In-band its tool calls come out too, and the answers go in. The prompt waits then until the agent has answered a
handshake, so that an agent which does not know the protocol has not begun to work.
"""

import contextlib
from collections.abc import Callable, Iterable

import anyio
import anyio.lowlevel

from hostside.edges.mcp_inband import InbandEdge
from hostside.worker import run_clock
from hostside.worker.claude_command import HANDSHAKE, handshake_request, interrupt_request, user_message
from hostside.worker.claude_events import EventReporter, Init, Message, short
from hostside.worker.claude_input import AgentInput
from hostside.worker.process import Child
from hostside.worker.process_streams import LineTooLong
from hostside.worker.run_clock import Clock, Stop

MAX_EVENT_BYTES = 16 * 1024 * 1024
INTERRUPT_SECONDS = 3.0
TERMINATE_SECONDS = 2.0
DRAIN_SECONDS = 2.0


class Conversation:
    """Drives `child`, whose input `given` writes. `listed` are the session's tools, `native` the client's own that it may
    have. `inband`: the edge that its control requests go to; None when its tools are elsewhere."""

    def __init__(
        self,
        child: Child,
        given: AgentInput,
        report: EventReporter,
        clock: Clock,
        *,
        listed: Iterable[str],
        native: Iterable[str],
        inband: InbandEdge | None = None,
    ) -> None:
        self._child = child
        self._given = given
        self._report = report
        self._clock = clock
        self._listed = tuple(listed)
        self._native = tuple(native)
        self._inband = inband
        self._prompt = ""
        self._prompted = False

    async def run(self, prompt: str, on_ready: Callable[[], None]) -> Stop | None:
        """Until the agent ends by itself (None) or has to be ended. `on_ready`: its tools are found to be there."""
        self._prompt = prompt
        if self._inband is None:
            self._say_prompt()
        else:
            self._given.put(handshake_request())
        stop = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, tasks.cancel_scope)
            stop = await self._read(on_ready)
            tasks.cancel_scope.cancel()
        return stop if self._prompted else _without_handshake(stop)

    async def interrupt(self) -> None:
        """End the turn and the process: ask, as Ctrl-C does, then SIGTERM, then SIGKILL. Within 15 seconds.

        The request goes through stdin, since a signal would meet the sandbox first. Events are still read meanwhile.
        """
        try:
            # An agent that has not read what it was given would not read this either.
            if not self._given.unread:
                with anyio.move_on_after(INTERRUPT_SECONDS):
                    self._given.put(interrupt_request())
                    await self._given.flushed()
                    self._child.close_stdin()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._drain)
                        await self._child.ended()
                        # Its last words are in the pipe by now; only a stranger could still hold it open.
                        tasks.cancel_scope.deadline = anyio.current_time() + DRAIN_SECONDS
        finally:
            await self._child.stop(TERMINATE_SECONDS)

    async def finish(self) -> int | None:
        """Wait for the end of a process that has said its last word; None when it had to be ended."""
        self._child.close_stdin()
        with anyio.move_on_after(run_clock.LINGER_SECONDS):
            return await self._child.ended()
        await self._child.stop(TERMINATE_SECONDS)
        return None

    def _say_prompt(self) -> None:
        self._given.put(user_message(self._prompt))
        self._prompted = True

    async def _drain(self) -> None:
        with contextlib.suppress(LineTooLong):
            while (line := await self._next_line()) is not None:
                self._control(self._report.take(line), line)

    async def _watch(self, conversation: anyio.CancelScope) -> None:
        # What the agent started may hold its output open: the end of the process is the end of the conversation.
        with contextlib.suppress(TimeoutError):
            await self._child.ended()
        await anyio.sleep(DRAIN_SECONDS)
        conversation.cancel()

    async def _read(self, on_ready: Callable[[], None]) -> Stop | None:
        while True:
            with anyio.move_on_after(self._clock.seconds_left()) as waiting:
                try:
                    line = await self._next_line()
                except LineTooLong as error:
                    return Stop(reason="agent_error", detail=f"the agent wrote {error}")
            if waiting.cancelled_caught:
                stop = self._clock.expired()
                if stop is not None:
                    return None if self._clock.has_ended else stop
                continue
            if line is None:
                return None
            self._clock.touch()
            if (stop := self._take(line, on_ready)) is not None:
                return stop

    async def _next_line(self) -> bytes | None:
        # Lines that are there already are read without a pause: a flood of them must not hold up the host's clocks.
        await anyio.lowlevel.checkpoint()
        return await self._child.receive_line(MAX_EVENT_BYTES)

    def _take(self, line: bytes, on_ready: Callable[[], None]) -> Stop | None:
        known = self._report.init
        stop = self._control(self._report.take(line), line)
        init = self._report.init
        if stop is None and init is not None and known is None:
            stop = self._check(init, on_ready)
        if self._report.result is not None:
            self._clock.ended()
            # It waits for more to do until it sees the end of its input. Not before: it would drop its calls.
            self._child.close_stdin()
        return stop

    def _check(self, init: Init, on_ready: Callable[[], None]) -> Stop | None:
        problem = init.problem(listed=self._listed, native=self._native)
        if problem is not None:
            unconnected = self._inband is not None and not init.connected
            return Stop(reason="edge_failed" if unconnected else "tools_missing", detail=problem)
        self._clock.started()
        on_ready()
        return None

    def _control(self, message: Message | None, line: bytes) -> Stop | None:
        if self._inband is None or message is None:
            return None
        kind = message.get("type")
        if kind == "control_request":
            self._inband.take(line)
        elif kind == "control_response" and not self._prompted:
            return self._handshake(message.get("response"))
        if self._given.overflowed:
            return Stop(reason="agent_error", detail="the agent does not read the answers to what it asks")
        return None

    def _handshake(self, response: object) -> Stop | None:
        if not isinstance(response, dict) or response.get("request_id") != HANDSHAKE:
            return None
        if response.get("subtype") != "success":
            return Stop(reason="edge_failed", detail=f"the agent refused the handshake: {short(response.get('error'))}")
        self._say_prompt()
        return None


def _without_handshake(stop: Stop | None) -> Stop:
    """The agent was never told what to do, so another way may be tried: unless the run's own time is over."""
    if stop is None:
        return Stop(reason="edge_failed", detail="the agent ended before it answered the handshake")
    if stop.reason == "tools_missing":
        return Stop(reason="edge_failed", detail=f"the agent did not answer the handshake: {stop.detail}")
    return stop
