"""One preparation of an issue's workspace at a time, in any process of this host, and no half-built one left behind."""

import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from hostside.config.owned_files import try_lock
from hostside.config.paths import make_private
from hostside.worker.removal import remove_tree
from hostside.worker.workspace import WorkspaceError, WorkspacePlace

WAIT_SECONDS = 180.0
_POLL_SECONDS = 0.05
#: No key starts with a dot, so these names are never a workspace. `~` is in no key either.
_LOCKS = ".locks"
_BUILDING = ".new-"


@asynccontextmanager
async def alone_at(place: WorkspacePlace, *, wait_seconds: float = WAIT_SECONDS) -> AsyncIterator[None]:
    """Hold the lock of one workspace; on entry what a killed preparation left in the root is removed.

    The lock ends with its holder, also with a killed one. Raises WorkspaceError when another holder keeps it longer.
    """
    handle = await _wait_for(place, wait_seconds)
    try:
        await anyio.to_thread.run_sync(_sweep, place)
        yield
    finally:
        os.close(handle)


class WorkspaceBusy(WorkspaceError):
    """Another run has this workspace. Nothing was done."""

    reason = "issue_busy"


@asynccontextmanager
async def alone_in_run(place: WorkspacePlace) -> AsyncIterator[None]:
    """Hold a workspace for a whole run: two agents in one checkout would undo each other's work.

    The lock ends with its holder, also with a killed one. Raises WorkspaceBusy at once when another run holds it.
    """
    path = _lock(make_private(place.root / _LOCKS), f"{place.key}~run")
    try:
        handle = try_lock(path)
    except OSError as exc:
        raise WorkspaceError(f"{path} cannot be locked: {exc.strerror}.", remedy="Remove it and try again.") from None
    if handle is None:
        raise WorkspaceBusy(
            f"another run works in {place.path}.",
            remedy="Wait for it, or end it: `hostside runs list`, then `hostside runs stop RUN`.",
        )
    try:
        yield
    finally:
        os.close(handle)


def new_building(place: WorkspacePlace) -> Path:
    """Make an empty folder (0700) beside the place, to be renamed into it. Only for the holder of its lock."""
    building = place.root / f"{_BUILDING}{place.key}~{secrets.token_hex(8)}"
    os.mkdir(building, 0o700)
    return building


def mark_unfinished(place: WorkspacePlace) -> None:
    """Say that what stands at the place is not to be used until `mark_finished`; the next preparation discards it."""
    os.close(os.open(_marker(place), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def mark_finished(place: WorkspacePlace) -> None:
    """Take the mark away."""
    _marker(place).unlink(missing_ok=True)


async def _wait_for(place: WorkspacePlace, wait_seconds: float) -> int:
    path = _lock(make_private(place.root / _LOCKS), place.key)
    try:
        with anyio.fail_after(wait_seconds):
            while (handle := try_lock(path)) is None:
                await anyio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise WorkspaceError(
            f"another run has been preparing {place.path} for {wait_seconds:g} s.",
            remedy="Wait for it, or look for it with `hostside runs list`.",
        ) from None
    except OSError as exc:
        raise WorkspaceError(f"{path} cannot be locked: {exc.strerror}.", remedy="Remove it and try again.") from None
    return handle


def _sweep(place: WorkspacePlace) -> None:
    if _marker(place).exists():
        if os.path.lexists(place.path) and not remove_tree(place.path):
            raise WorkspaceError(
                f"{place.path} was never finished and cannot be removed.", remedy="Remove it and try again."
            )
        mark_finished(place)
    for entry in os.listdir(place.root):
        if not entry.startswith(_BUILDING):
            continue
        key = entry.removeprefix(_BUILDING).partition("~")[0]
        if key == place.key:
            # We hold its lock, so whoever built it is gone.
            remove_tree(place.root / entry)
            continue
        with contextlib.suppress(OSError):
            if (handle := try_lock(_lock(place.root / _LOCKS, key))) is not None:
                try:
                    remove_tree(place.root / entry)
                finally:
                    os.close(handle)


def _lock(locks: Path, key: str) -> Path:
    return locks / f"{key}.lock"


def _marker(place: WorkspacePlace) -> Path:
    return place.root / _LOCKS / f"{place.key}.unfinished"
