"""One finding of the doctor."""

from dataclasses import dataclass
from enum import StrEnum

from hostside.core.canonical import JsonObject


class Status(StrEnum):
    """`fail` means that something which was asked for cannot work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, how it is, and what to do about it. `remedy` is empty for `ok` alone."""

    name: str
    status: Status
    detail: str
    remedy: str

    def as_object(self) -> JsonObject:
        """Return the finding as JSON."""
        return {"name": self.name, "status": self.status.value, "detail": self.detail, "remedy": self.remedy}


def ok(name: str, detail: str) -> Finding:
    """Return a finding without complaint."""
    return Finding(name=name, status=Status.OK, detail=detail, remedy="")


def warning(name: str, detail: str, remedy: str) -> Finding:
    """Return a finding that stops nothing."""
    return Finding(name=name, status=Status.WARN, detail=detail, remedy=remedy)


def failed(name: str, detail: str, remedy: str) -> Finding:
    """Return a finding that has to be mended."""
    return Finding(name=name, status=Status.FAIL, detail=detail, remedy=remedy)


def unreadable(name: str, error: Exception) -> Finding:
    """Return the finding of a check that could not be made."""
    return failed(name, f"could not be checked: {error}"[:300], "Check the owner and mode of the state folder.")
