"""Whose protocol session it is: the `mcp-session-id`s of clients before 2026-07-28, each bound to one token (C-13)."""

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_PER_OWNER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The SHA-256 of a token, and the id of the host session that it is good for."""

    digest: str
    session_id: str


@dataclass(slots=True, kw_only=True)
class _Entry:
    owner: Owner
    used: float
    in_flight: set[str] = field(default_factory=set)


class LegacySessions:
    """The protocol sessions of one edge, by id. A session is never another owner's."""

    def __init__(self, monotonic: Callable[[], float], *, idle_seconds: float) -> None:
        self._monotonic = monotonic
        self._idle_seconds = idle_seconds
        self._entries: dict[str, _Entry] = {}

    def add(self, legacy_id: str, owner: Owner) -> tuple[str, ...]:
        """Note a new session; return those to end: its owner's oldest beyond `MAX_PER_OWNER`, and all long idle ones."""
        now = self._monotonic()
        self._entries[legacy_id] = _Entry(owner=owner, used=now)
        idle = [
            key for key, entry in self._entries.items() if not entry.in_flight and now - entry.used > self._idle_seconds
        ]
        return tuple(dict.fromkeys([*self.of(owner)[:-MAX_PER_OWNER], *idle]))

    def owned(self, legacy_id: str, owner: Owner) -> bool:
        """Return whether the session exists and is this owner's."""
        entry = self._entries.get(legacy_id)
        return entry is not None and entry.owner == owner

    def begin(self, legacy_id: str, request_id: str | int) -> bool:
        """Note a request in flight; False where its id already is, or the session has ended (C-15)."""
        entry = self._entries.get(legacy_id)
        if entry is None or str(request_id) in entry.in_flight:
            return False
        entry.used = self._monotonic()
        entry.in_flight.add(str(request_id))
        return True

    def end(self, legacy_id: str, request_id: str | int) -> None:
        """Forget a request in flight."""
        entry = self._entries.get(legacy_id)
        if entry is not None:
            entry.used = self._monotonic()
            entry.in_flight.discard(str(request_id))

    def forget(self, legacy_id: str) -> None:
        """Forget a session that has ended."""
        self._entries.pop(legacy_id, None)

    def of(self, owner: Owner) -> tuple[str, ...]:
        """Return the sessions of one owner, oldest first."""
        return tuple(key for key, entry in self._entries.items() if entry.owner == owner)

    def all(self) -> tuple[tuple[str, Owner], ...]:
        """Return every session with its owner."""
        return tuple((key, entry.owner) for key, entry in self._entries.items())
