"""What a run may spend on its model and what it has spent: counted by the host, from the provider's own words (D10).

The answers are read while they pass and never held back for it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hostside.core.canonical import JsonObject

#: A longer line, or a longer answer that is no stream, is not read; its request is then estimated.
MAX_READ_BYTES = 16 * 1024 * 1024
_BYTES_OF_A_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Counts of one or more requests. `read` is all that the model was given, what came from a cache included;
    `cached` and `cache_written` are parts of it. `written` is all that the model produced, its reasoning included."""

    read: int = 0
    cached: int = 0
    cache_written: int = 0
    written: int = 0

    @property
    def total(self) -> int:
        """What counts against a budget: read and written."""
        return self.read + self.written

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            read=self.read + other.read,
            cached=self.cached + other.cached,
            cache_written=self.cache_written + other.cache_written,
            written=self.written + other.written,
        )

    def __sub__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            read=self.read - other.read,
            cached=self.cached - other.cached,
            cache_written=self.cache_written - other.cache_written,
            written=self.written - other.written,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one event or answer says. `final`: nothing of it will change. `unknowable`: its cost will never be told here."""

    tokens: Tokens
    final: bool
    unknowable: bool = False


#: Reads one event of a stream or one whole answer, given what is known of the request so far; None where it says nothing.
ReadUsage = Callable[[Mapping[str, Any], Tokens], Reading | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBudget:
    """Limits of one run; None means none. Both are checked before a request goes out."""

    max_requests: int | None = None
    max_tokens: int | None = None


class BudgetExhausted(Exception):
    """The run may not ask its model again. `setting` is the key in hostside.toml, `limit` its value."""

    def __init__(self, setting: str, limit: int) -> None:
        super().__init__(f"{setting} = {limit}")
        self.setting = setting
        self.limit = limit


class ModelMeter:
    """Counts the requests of one run, through all its sessions.

    A request that is under way is counted with what is known of it, so a budget of tokens may be exceeded by the answers
    that are open when it is reached, and by no request after them.
    """

    def __init__(self, budget: ModelBudget) -> None:
        self.budget = budget
        self.requests = 0
        self.estimated = 0
        self.tokens = Tokens()
        self.exhausted: BudgetExhausted | None = None
        self._unknowable = False

    def admit(self) -> "Metered":
        """Count one request. Raises BudgetExhausted when the budget allows no more; nothing is counted then."""
        limits = (
            ("agent.max_requests", self.budget.max_requests, self.requests),
            ("agent.max_tokens", self.budget.max_tokens, self.tokens.total),
        )
        for setting, limit, used in limits:
            if limit is not None and used >= limit:
                raise self._exhausted(setting, limit)
        if self._unknowable and self.budget.max_tokens is not None:
            raise self._exhausted("agent.max_tokens", self.budget.max_tokens)
        self.requests += 1
        return Metered(self)

    def close_budget(self) -> None:
        """A cost was caused that nobody will tell: where tokens are limited, no request follows."""
        self._unknowable = True

    def as_object(self) -> JsonObject:
        """Return what the run's record keeps; empty when the model was never asked."""
        if self.requests == 0 and self.exhausted is None:
            return {}
        counts: JsonObject = {
            "requests": self.requests,
            "estimated_requests": self.estimated,
            "input_tokens": self.tokens.read,
            "cached_input_tokens": self.tokens.cached,
            "cache_write_input_tokens": self.tokens.cache_written,
            "output_tokens": self.tokens.written,
        }
        return counts if self.exhausted is None else {**counts, "exhausted": self.exhausted.setting}

    def _exhausted(self, setting: str, limit: int) -> BudgetExhausted:
        self.exhausted = BudgetExhausted(setting, limit)
        return self.exhausted


class Metered:
    """One counted request, from its admission to its end."""

    def __init__(self, meter: ModelMeter) -> None:
        self._meter = meter
        self._tokens = Tokens()
        self._final = False
        self._unknowable = False

    @property
    def tokens(self) -> Tokens:
        """What is known of it so far."""
        return self._tokens

    def take(self, reading: Reading) -> None:
        """Count what the provider said of it; a later word stands for an earlier one."""
        self._set(reading.tokens)
        self._final = self._final or reading.final
        self._unknowable = self._unknowable or reading.unknowable

    def refund(self) -> None:
        """It never left the host."""
        self._meter.requests -= 1

    def estimate(self, *, sent: int, received: int) -> None:
        """Its answer ended before its cost was told: count its size in bytes, so that hanging up saves nothing."""
        if self._final:
            return
        if self._unknowable:
            self._meter.close_budget()
        self._meter.estimated += 1
        read, written = self._tokens.read or sent // _BYTES_OF_A_TOKEN, received // _BYTES_OF_A_TOKEN
        known = self._tokens
        self._set(
            Tokens(
                read=read,
                cached=known.cached,
                cache_written=known.cache_written,
                written=max(known.written, written),
            )
        )

    def _set(self, tokens: Tokens) -> None:
        self._meter.tokens += tokens - self._tokens
        self._tokens = tokens


class UsageReader:
    """Looks on while an answer passes. `media_type`: its Content-Type; a stream is read event by event."""

    def __init__(self, read: ReadUsage, metered: Metered, media_type: str) -> None:
        self._read = read
        self._metered = metered
        self._streamed = media_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._held = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the answer."""
        if not self._streamed:
            self._hold(chunk)
            return
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            self._hold(piece)
            self._line()
        self._hold(rest)

    def end(self) -> None:
        """Take note that the answer is whole."""
        if self._streamed:
            self._line()
        elif not self._skipping:
            self._event(bytes(self._held))

    def _hold(self, piece: bytes) -> None:
        if self._skipping or len(self._held) + len(piece) > MAX_READ_BYTES:
            self._skipping = True
            self._held.clear()
        else:
            self._held += piece

    def _line(self) -> None:
        # Only events that tell a usage are parsed; the rest is most of the stream.
        if self._held.startswith(b"data:") and b'"usage"' in self._held:
            self._event(bytes(self._held[5:]))
        self._held.clear()
        self._skipping = False

    def _event(self, text: bytes) -> None:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            return
        reading = self._read(event, self._metered.tokens) if isinstance(event, dict) else None
        if reading is not None:
            self._metered.take(reading)
