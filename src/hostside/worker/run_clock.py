"""The deadlines of one agent's turn, and why the host ends it (R-192)."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import anyio

from hostside.worker.agent import AgentSettings

LINGER_SECONDS = 10.0
"""How long an agent that has given its result may take to exit."""


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
            return Stop(reason="tools_missing", detail=f"its tools were not there within {limit:g} seconds")
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
