"""One started Claude Code process: its prompt goes in, its events come out, bounded by three clocks."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from hostside.worker.agent import AgentSettings
from hostside.worker.claude_command import interrupt_request, user_message
from hostside.worker.claude_events import EventReporter
from hostside.worker.process import Child
from hostside.worker.process_streams import LineTooLong

MAX_EVENT_BYTES = 16 * 1024 * 1024
INTERRUPT_SECONDS = 3.0
TERMINATE_SECONDS = 2.0
LINGER_SECONDS = 10.0
DRAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why the host ends the agent: a reason of `AgentOutcome`, and a sentence for people."""

    reason: str
    detail: str


class Clock:
    """The deadlines of a run: the whole turn, the start, and the silence since the last sign of life (R-192)."""

    def __init__(self, settings: AgentSettings, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._settings = settings
        begun = now()
        self._turn_ends = begun + settings.turn_timeout_seconds
        self._start_ends = begun + settings.start_timeout_seconds
        self._last_sign = begun
        self._calls = 0
        self._phase = "starting"

    def touch(self) -> None:
        """The agent gave a sign of life."""
        self._last_sign = self._now()

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """While a tool call of it runs, the agent waits and is not silent."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self.touch()

    def started(self) -> None:
        """It has found its tools; from now on silence counts."""
        self._phase = "working"
        self.touch()

    def ended(self) -> None:
        """It has given its result and only has to exit."""
        self._phase = "ended"

    def seconds_left(self) -> float:
        """Until the next deadline; never negative."""
        return max(0.0, self._deadline() - self._now())

    def expired(self) -> Stop | None:
        """What ran out, if anything did."""
        now = self._now()
        if now < self._deadline():
            return None
        if now >= self._turn_ends:
            return Stop(reason="turn_timeout", detail=f"not done in {self._settings.turn_timeout_seconds:g} seconds")
        if self._phase == "starting":
            limit = self._settings.start_timeout_seconds
            return Stop(reason="tools_missing", detail=f"no init event within {limit:g} seconds")
        return Stop(reason="stalled", detail=f"silent for {self._settings.stall_timeout_seconds:g} seconds")

    @property
    def has_ended(self) -> bool:
        return self._phase == "ended"

    def _deadline(self) -> float:
        if self._phase == "starting":
            return min(self._turn_ends, self._start_ends)
        if self._phase == "ended":
            return self._last_sign + LINGER_SECONDS
        stall = self._settings.stall_timeout_seconds
        if stall <= 0:
            return self._turn_ends
        return min(self._turn_ends, (self._now() if self._calls else self._last_sign) + stall)


class Conversation:
    """Drives `child`. `listed` are the session's tools, `native` the client's own that it may have."""

    def __init__(
        self, child: Child, report: EventReporter, clock: Clock, *, listed: Iterable[str], native: Iterable[str]
    ) -> None:
        self._child = child
        self._report = report
        self._clock = clock
        self._listed = tuple(listed)
        self._native = tuple(native)
        self._prompted = False

    async def run(self, prompt: str, on_ready: Callable[[], None]) -> Stop | None:
        """Until the agent ends by itself (None) or has to be ended. `on_ready`: its tools are found to be there."""
        stop = None
        async with anyio.create_task_group() as tasks:
            # Beside the reading: an agent that does not read must meet its deadline all the same.
            tasks.start_soon(self._send, prompt)
            tasks.start_soon(self._watch, tasks.cancel_scope)
            stop = await self._read(on_ready)
            tasks.cancel_scope.cancel()
        return stop

    async def interrupt(self) -> None:
        """End the turn and the process: ask, as Ctrl-C does, then SIGTERM, then SIGKILL. Within 15 seconds.

        The request goes through stdin, since a signal would meet the sandbox first. Events are still read meanwhile.
        """
        try:
            # Half a prompt in the pipe would make this line a part of it.
            if self._prompted:
                with anyio.move_on_after(INTERRUPT_SECONDS):
                    await self._child.send(interrupt_request())
                    self._child.close_stdin()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._drain)
                        await self._child.ended()
                        # Its last words are in the pipe by now; only a stranger could still hold it open.
                        tasks.cancel_scope.deadline = anyio.current_time() + DRAIN_SECONDS
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            await self._child.stop(TERMINATE_SECONDS)

    async def finish(self) -> int | None:
        """Wait for the end of a process that has said its last word; None when it had to be ended."""
        self._child.close_stdin()
        with anyio.move_on_after(LINGER_SECONDS):
            return await self._child.ended()
        await self._child.stop(TERMINATE_SECONDS)
        return None

    async def _send(self, prompt: str) -> None:
        try:
            await self._child.send(user_message(prompt))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # It does not read or is gone: its end of the conversation says how it went on.
            return
        self._prompted = True

    async def _drain(self) -> None:
        with contextlib.suppress(LineTooLong):
            while (line := await self._next_line()) is not None:
                self._report.take(line)

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
        self._report.take(line)
        init = self._report.init
        if init is not None and known is None:
            problem = init.problem(listed=self._listed, native=self._native)
            if problem is not None:
                return Stop(reason="tools_missing", detail=problem)
            self._clock.started()
            on_ready()
        if self._report.result is not None:
            self._clock.ended()
            # It waits for more to do until it sees the end of its input.
            self._child.close_stdin()
        return None
