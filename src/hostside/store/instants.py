"""Times as the store keeps them: UTC text of one width, so that text order is time order and hashes are stable."""

from datetime import UTC, datetime


def to_text(at: datetime) -> str:
    """Return `2026-01-31T12:00:00.000000Z`. Raises ValueError for a time without a zone."""
    if at.tzinfo is None:
        raise ValueError("a time without a zone cannot be stored")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def to_instant(text: str) -> datetime:
    """Return the aware UTC time of `to_text`'s form."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def optional_text(at: datetime | None) -> str | None:
    """Return `to_text`, or None for None."""
    return None if at is None else to_text(at)


def optional_instant(text: str | None) -> datetime | None:
    """Return `to_instant`, or None for None."""
    return None if text is None else to_instant(text)
