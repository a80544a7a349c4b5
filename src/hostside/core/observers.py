"""Telling observers without giving them a way to disturb: each has its own queue, thread and copies (R-144, R-145)."""

import contextlib
import logging
import queue
import threading
from collections.abc import Iterable

from hostside.core.receipt import Observation, Observer

MAX_WAITING = 10_000
_log = logging.getLogger(__name__)


class ObserverQueue:
    """Delivers each observation to each observer once, in order. A slow observer loses the newest, loudly."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._queues = [self._start(observer) for observer in observers]

    def notify(self, observations: Iterable[Observation]) -> None:
        """Queue one observation for each observer; never blocks."""
        for (waiting, _), observation in zip(self._queues, observations, strict=True):
            try:
                waiting.put_nowait(observation)
            except queue.Full:
                _log.warning("observer is too slow; an observation was dropped")

    def __len__(self) -> int:
        return len(self._queues)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Deliver what waits, for at most `timeout_seconds` each, and end the threads."""
        for waiting, thread in self._queues:
            with contextlib.suppress(queue.Full):
                waiting.put(None, timeout=timeout_seconds)
            thread.join(timeout_seconds)

    def _start(self, observer: Observer) -> "tuple[queue.Queue[Observation | None], threading.Thread]":
        waiting: queue.Queue[Observation | None] = queue.Queue(MAX_WAITING)
        thread = threading.Thread(target=_deliver, args=(observer, waiting), name="hostside-observer", daemon=True)
        thread.start()
        return waiting, thread


def _deliver(observer: Observer, waiting: "queue.Queue[Observation | None]") -> None:
    while (observation := waiting.get()) is not None:
        try:
            observer.observe(observation)
        except Exception:  # an observer is foreign code: whatever it raises stays here
            _log.exception("observer raised")
