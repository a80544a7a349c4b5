"""What happens in a run: counted, written beside the run, and shown to whoever watches (R-146, R-211)."""

import logging
from collections.abc import Callable, Mapping

from hostside.core.canonical import JsonValue
from hostside.store.faults import StoreUnavailable
from hostside.store.runs import RunStore
from hostside.worker.process import Child
from hostside.worker.run_plan import RunServices

_log = logging.getLogger(__name__)
Listener = Callable[[str, Mapping[str, JsonValue]], None]


class EventHub:
    """The boundary's events of one process, to every listener. A listener that raises is logged and kept."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def publish(self, name: str, facts: Mapping[str, JsonValue]) -> None:
        """Tell every listener, in the order in which they came."""
        for listener in tuple(self._listeners):
            try:
                listener(name, facts)
            except Exception:  # whoever watches must not disturb a call
                _log.exception("event listener raised")

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the returned function takes it away."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


class RunEvents:
    """One run's events. Nothing here can stop a run: an event that cannot be written is logged and shown all the same."""

    def __init__(self, run_id: str, services: RunServices, hub: EventHub) -> None:
        self._run_id = run_id
        self._services = services
        self._runs: RunStore | None = None
        self._counts = {"total": 0, "refused": 0, "failed": 0}
        self._leave = hub.add(self._count)

    def begin(self) -> None:
        """Write events from now on: the run has its row."""
        self._runs = self._services.runs

    def end(self) -> None:
        """Stop counting."""
        self._leave()

    def tell(self, name: str, facts: Mapping[str, JsonValue]) -> None:
        """Write and show one event of the run."""
        clean = self._services.redactor.object(dict(facts))
        if self._runs is not None:
            try:
                self._runs.note(self._run_id, name, clean, at=self._services.now())
            except StoreUnavailable:
                _log.warning("event not written", extra={"event": name, "run_id": self._run_id})
        self._services.tell(name, {"run_id": self._run_id, **clean})

    def process_started(self, child: Child) -> None:
        """Write down who a process is, at once, so that recovery finds it even if the host dies now (`run_recovery`)."""
        facts = {"pid": child.pid, "pid_started_at": child.pid_started_at}
        if self._runs is None:
            return
        try:
            self._runs.note_durably(self._run_id, "process_started", facts, at=self._services.now())
        except StoreUnavailable:
            _log.warning("process not written down", extra={"run_id": self._run_id, "pid": child.pid})

    def calls(self) -> dict[str, int]:
        """Return how many calls ended in this run: all, refused and failed."""
        return dict(self._counts)

    def _count(self, name: str, facts: Mapping[str, JsonValue]) -> None:
        if name != "tool_call_finished" or facts.get("run_id") != self._run_id:
            return
        self._counts["total"] += 1
        outcome = facts.get("outcome")
        if outcome in ("refused", "failed"):
            self._counts[str(outcome)] += 1
