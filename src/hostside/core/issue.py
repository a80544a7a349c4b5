"""The normalized issue of the Symphony specification (§4.1.1), and the opaque reference its adapter keeps."""

from dataclasses import dataclass
from datetime import datetime

from hostside.core.canonical import JsonObject, JsonValue, encode, parse, snapshot


class NativeRef:
    """An adapter's own reference to an issue: JSON-safe, without secrets, opaque to everything shared (R-083).

    It travels as canonical text, so that no shared code can read a key of it by accident. Only the adapter that made
    it opens it; a test over the source keeps it so.
    """

    __slots__ = ("_text",)

    def __init__(self, value: JsonObject) -> None:
        self._text = encode(snapshot(value))

    def open(self) -> JsonObject:
        """Return a fresh copy of the value. For adapters only."""
        value: JsonValue = parse(self._text)
        assert isinstance(value, dict)
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NativeRef) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "NativeRef(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """An issue that blocks another. Any field may be unknown to the tracker."""

    id: str | None
    identifier: str | None
    state: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue, every field present. `labels` are trimmed, lower case and unique; times are aware or None."""

    id: str
    identifier: str
    title: str
    state: str
    dispatchable: bool
    description: str | None = None
    priority: int | None = None
    labels: tuple[str, ...] = ()
    branch_name: str | None = None
    url: str | None = None
    assignees: tuple[str, ...] = ()
    blocked_by: tuple[Blocker, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    native_ref: NativeRef | None = None

    def __post_init__(self) -> None:
        for name in ("id", "identifier", "title", "state"):
            if not getattr(self, name):
                raise ValueError(f"an issue needs a non-empty {name}")
