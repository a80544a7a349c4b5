"""Whose disk a tool needs, and which disks an edge reaches (D5, D6).

A tool has exactly one class. Reach comes from how the host built the edge, never from an address or from the client.
"""

from dataclasses import dataclass
from enum import StrEnum


class Locality(StrEnum):
    """Where a tool's work happens. There is no default class (D4)."""

    REMOTABLE = "remotable"
    CALLER_FILESYSTEM = "caller_filesystem"
    SERVER_CHECKOUT = "server_checkout"


class CallerDisk(StrEnum):
    """How far an edge reaches the caller's disk."""

    NONE = "none"
    UNPROVEN = "unproven"
    SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The disks behind one session. Nothing declared is nothing reached (R-112)."""

    caller_disk: CallerDisk
    server_checkout: bool


NO_REACH = Reach(caller_disk=CallerDisk.NONE, server_checkout=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalityRefusal:
    """Why a class cannot be served here, and what the caller has to do instead (R-116)."""

    locality: Locality
    blocker: str
    message: str
    alternative: str


def refusal(locality: Locality, reach: Reach) -> LocalityRefusal | None:
    """Return None when `reach` covers `locality`, else the named blocker. Needs no argument and touches nothing."""
    if locality is Locality.REMOTABLE:
        return None
    if locality is Locality.SERVER_CHECKOUT:
        if reach.server_checkout:
            return None
        return LocalityRefusal(
            locality=locality,
            blocker="no_checkout",
            message="This tool needs a canonical checkout on the server, and none is configured for this session.",
            alternative="Configure a checkout for the project, or use the tool in a managed run.",
        )
    if reach.caller_disk is CallerDisk.SHARED:
        return None
    if reach.caller_disk is CallerDisk.UNPROVEN:
        return LocalityRefusal(
            locality=locality,
            blocker="disk_unproven",
            message="This tool needs the caller's own disk, and this session has not proven that it shares one with the host.",
            alternative="Run it through `hostside serve --stdio` on the caller's machine, or prove the workspace.",
        )
    return LocalityRefusal(
        locality=locality,
        blocker="no_caller_disk",
        message="This tool needs the caller's own disk, and this connection does not reach it.",
        alternative="Run it through `hostside serve --stdio` on the caller's machine.",
    )
