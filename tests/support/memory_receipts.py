"""The receipt log kept in memory: the port that the store implements, for tests that need no disk."""

from hostside.core.canonical import JsonObject, snapshot
from hostside.core.receipt import Finished, JournalEntry, Started
from hostside.errors import ReceiptUnavailable


class MemoryReceipts:
    """A ReceiptLog. `events` holds every event in order of arrival; set `broken` to make each write and check fail."""

    def __init__(self) -> None:
        self.events: list[Started | Finished] = []
        self.outcomes: dict[str, JsonObject] = {}
        self.broken = False
        self._keys: dict[tuple[str, str], Started] = {}

    async def started(self, event: Started, *, journal_keys: tuple[str, ...]) -> None:
        """Keep the row, and let each journal key point to this call."""
        self.ensure_recordable()
        self.events.append(event)
        for key in journal_keys:
            self._keys[event.session_id, key] = event

    async def finished(self, event: Finished, *, outcome: JsonObject) -> None:
        """Keep the row and a private copy of the outcome."""
        self.ensure_recordable()
        copy = snapshot(outcome)
        assert isinstance(copy, dict)
        self.events.append(event)
        self.outcomes[event.receipt_id] = copy

    def record(self, started: Started, finished: Finished) -> None:
        """Keep the combined event of a read or a refusal as its two parts."""
        self.ensure_recordable()
        self.events += [started, finished]

    def ensure_recordable(self) -> None:
        """Raise ReceiptUnavailable while `broken`."""
        if self.broken:
            raise ReceiptUnavailable("this log is broken on purpose")

    async def journal(self, session_id: str, key: str) -> JournalEntry | None:
        """Return the latest call under this key, with its outcome once it has finished."""
        self.ensure_recordable()
        started = self._keys.get((session_id, key))
        if started is None:
            return None
        assert started.arguments_fingerprint is not None
        return JournalEntry(
            receipt_id=started.receipt_id,
            tool=started.tool,
            fingerprint=started.arguments_fingerprint,
            outcome=self.outcomes.get(started.receipt_id),
        )

    @property
    def starts(self) -> list[Started]:
        """Every `started` event in order."""
        return [event for event in self.events if isinstance(event, Started)]

    @property
    def ends(self) -> list[Finished]:
        """Every `finished` event in order."""
        return [event for event in self.events if isinstance(event, Finished)]
