"""What a run's proxy decided, one record for each decision (D25)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from hostside.core.canonical import JsonObject
from hostside.core.redaction import Redactor
from hostside.worker.egress.addresses import Endpoint

#: Refusals alike that are told one by one; the rest of them are counted and told when the proxy ends.
TOLD_ALIKE = 20
#: Different refusals that are kept apart. A run that makes up names does not fill the host's disk.
KINDS_APART = 1_000


class Way(StrEnum):
    """How the client asked."""

    CONNECT = "connect"
    HTTP = "http"
    REGISTRY = "registry"
    REDIRECT = "redirect"
    """Not the client: the registry's answer named this address."""
    NONE = "none"
    """Nothing that could be understood."""


class Phase(StrEnum):
    """A tunnel is told when it opens and when it closes, anything else once, when it is over."""

    OPENED = "opened"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision. Texts hold no secret that the host knows.

    `reason`: a stable word; `listed` or `registry` where it was allowed and went well. `path` and `headers` are all that
    the client sent in the clear, so that what somebody carried out that way can be seen.
    """

    at: datetime
    way: Way
    phase: Phase
    host: str
    port: int
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    policy: str
    preset: str | None
    allowed: bool
    reason: str
    address: str | None
    """The one address that was connected to or that was refused; None when none was looked up, or an open one served."""
    status: int | None
    bytes_sent: int
    bytes_received: int
    duration_ms: int
    repeated: int = 1
    """How many refusals alike this record stands for."""

    def as_json(self) -> JsonObject:
        """Return it for a run's event log."""
        return {
            "at": self.at.isoformat(),
            "way": self.way.value,
            "phase": self.phase.value,
            "host": self.host,
            "port": self.port,
            "method": self.method,
            "path": self.path,
            "headers": [[name, value] for name, value in self.headers],
            "policy": self.policy,
            "preset": self.preset,
            "allowed": self.allowed,
            "reason": self.reason,
            "address": self.address,
            "status": self.status,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "duration_ms": self.duration_ms,
            "repeated": self.repeated,
        }


Decide = Callable[[Decision], None]


@dataclass(slots=True, kw_only=True)
class Case:
    """One request while it is under way: what becomes its decision."""

    began: float
    at: datetime
    way: Way = Way.NONE
    endpoint: Endpoint | None = None
    method: str = ""
    path: str = ""
    headers: Sequence[tuple[str, str]] = ()
    preset: str | None = None
    allowed: bool = False
    reason: str = "malformed"
    address: str | None = None
    status: int | None = None
    sent: int = 0
    received: int = 0


@dataclass(slots=True)
class Recorder:
    """Turns cases into decisions. `now` and `monotonic` are the host's clocks."""

    policy: str
    decide: Decide
    redactor: Redactor
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    _alike: dict[tuple[str, ...], int] = field(default_factory=dict)
    _last: dict[tuple[str, ...], Decision] = field(default_factory=dict)

    def open(self) -> Case:
        """Begin a case now."""
        return Case(began=self.monotonic(), at=self.now())

    def opened(self, case: Case) -> None:
        """Tell that a tunnel is open."""
        self.decide(self._decision(case, Phase.OPENED))

    def closed(self, case: Case) -> None:
        """Tell how a case ended."""
        decision = self._decision(case, Phase.CLOSED)
        if decision.allowed:
            self.decide(decision)
            return
        # Nothing of a refused request has left the host: its path and headers matter less than their number.
        alike: tuple[str, ...] = (decision.way, decision.host, str(decision.port), decision.method, decision.reason)
        if alike not in self._alike and len(self._alike) >= KINDS_APART:
            alike = ("other",)
        self._alike[alike] = self._alike.get(alike, 0) + 1
        if self._alike[alike] <= TOLD_ALIKE:
            self.decide(decision)
        else:
            self._last[alike] = decision

    def finish(self) -> None:
        """Tell what was only counted."""
        for alike, decision in self._last.items():
            self.decide(_repeated(decision, self._alike[alike] - TOLD_ALIKE))
        self._last.clear()

    def _decision(self, case: Case, phase: Phase) -> Decision:
        text = self.redactor.text
        return Decision(
            at=case.at,
            way=case.way,
            phase=phase,
            host=text(case.endpoint.host) if case.endpoint else "",
            port=case.endpoint.port if case.endpoint else 0,
            method=text(case.method),
            path=text(case.path),
            headers=tuple((text(name), text(value)) for name, value in case.headers),
            policy=self.policy,
            preset=case.preset,
            allowed=case.allowed,
            reason=case.reason,
            address=case.address,
            status=case.status,
            bytes_sent=case.sent,
            bytes_received=case.received,
            duration_ms=round((self.monotonic() - case.began) * 1000),
        )


class Hops:
    """The cases of one request: its own, then one for each redirect. `case` is the one under way."""

    def __init__(self, recorder: Recorder, case: Case) -> None:
        self._recorder = recorder
        self.case = case

    def redirected(self, status: int, endpoint: Endpoint, path: str) -> None:
        """Tell the case under way, and begin that of the address where the answer points."""
        before = self.case
        before.reason, before.status = "redirected", status
        self._recorder.closed(before)
        self.case = self._recorder.open()
        self.case.way, self.case.method, self.case.preset = Way.REDIRECT, before.method, before.preset
        self.case.endpoint, self.case.path = endpoint, path


def _repeated(decision: Decision, count: int) -> Decision:
    fields = {name: getattr(decision, name) for name in Decision.__dataclass_fields__}
    return Decision(**(fields | {"repeated": count}))
