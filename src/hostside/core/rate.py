"""The host's own limit on the calls of one session (R-166)."""

from collections.abc import Callable

from hostside.core.failures import host_rate


class CallRate:
    """A token bucket: `per_minute` calls at once, refilled evenly; 0 means no limit."""

    def __init__(self, per_minute: int, monotonic: Callable[[], float]) -> None:
        self._limit = per_minute
        self._monotonic = monotonic
        self._left = float(per_minute)
        self._at = monotonic()

    def take(self) -> None:
        """Take one call, or raise ToolRefused(rate_limited) with the milliseconds until the next is free."""
        if self._limit <= 0:
            return
        now = self._monotonic()
        self._left = min(float(self._limit), self._left + (now - self._at) * self._limit / 60)
        self._at = now
        if self._left < 1:
            raise host_rate(self._limit, int((1 - self._left) * 60_000 / self._limit) + 1)
        self._left -= 1
