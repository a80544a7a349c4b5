"""Git on a run's checkout, always inside the run's isolation: nothing here holds a credential (D9, D15, R-097)."""

import os
import stat
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from hostside.worker.checkout_lock import alone_at, mark_finished, mark_unfinished, new_building
from hostside.worker.git_runner import special_git_file
from hostside.worker.isolation import RunIsolation
from hostside.worker.process import Completed, LaunchError
from hostside.worker.removal import remove_tree
from hostside.worker.run_places import give
from hostside.worker.sandbox_args import Bind
from hostside.worker.workspace import WorkspaceError, WorkspacePlace

GIT_SECONDS = 120.0
OUTPUT_BYTES = 200_000
COMMITTED_BYTES = 1_000_000
#: Nothing that a repository configures may start a program, and no configuration but the repository's own is read.
SAFE = (
    "git",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "protocol.ext.allow=never",
    "-c",
    "safe.directory=*",
)
#: For commands that only look: a repository that lacks objects on purpose would fetch them, by a program of its choice.
_OFFLINE = tuple(
    part for scheme in ("file", "git", "ssh", "http", "https") for part in ("-c", f"protocol.{scheme}.allow=never")
)

#: Makes the isolation of one folder, with more read-only binds for the time of one command.
IsolationFor = Callable[[Path, Sequence[Bind]], RunIsolation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A prepared workspace. `created` tells whether it is new, so that `after_create` is due."""

    path: Path
    branch: str
    remote: str | None
    created: bool


#: What is due in a new workspace before it counts as one.
AfterCreate = Callable[[Checkout], Awaitable[None]]


async def prepare(
    place: WorkspacePlace,
    *,
    repository: Path | None,
    branch: str,
    base: str | None,
    isolation_for: IsolationFor,
    after_create: AfterCreate | None = None,
) -> Checkout:
    """Return the checkout at `place`, made from `repository` when there is none yet.

    A new one is built beside its place, checked and renamed into it, so that a crash leaves a whole checkout or none;
    the next preparation removes what was left half built. `after_create` is part of the creation: when it raises or is
    killed, there is no checkout, and the next preparation begins anew (R-337). One preparation of a place at a time: a
    second one waits for the first and then finds its checkout.

    Raises WorkspaceError, or what `after_create` raises; then a checkout that existed is untouched.
    """
    async with alone_at(place):
        if os.path.lexists(place.path):
            checkout = Checkout(path=place.path, branch=branch, remote=_remote(repository), created=False)
            _check_form(checkout)
            await verify(checkout, isolation_for(place.path, ()))
            return checkout
        checkout = Checkout(path=place.path, branch=branch, remote=_remote(repository), created=True)
        await _create(place, checkout, repository=repository, base=base, isolation_for=isolation_for)
        if after_create is not None:
            await _finish(place, checkout, after_create)
        mark_finished(place)
        return checkout


async def verify(checkout: Checkout, isolation: RunIsolation) -> None:
    """Check that folder, repository, remote and branch are this issue's (R-097, C-23). Raises WorkspaceError, and
    changes nothing."""
    path = str(checkout.path)
    places = await _text(
        isolation, ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir"]
    )
    if places.split("\n") != [path, f"{path}/.git", f"{path}/.git"]:
        raise _foreign(checkout, f"its repository is {' '.join(places.split()) or 'not there'}")
    head = await _text(isolation, ["symbolic-ref", "--quiet", "HEAD"])
    if head != f"refs/heads/{checkout.branch}":
        raise _foreign(
            checkout, f"it is on {head.removeprefix('refs/heads/') or 'no branch'}, not on {checkout.branch}"
        )
    # All values: a second one would be where a push goes, too.
    remote = await _text(isolation, ["config", "--local", "--no-includes", "--get-all", "remote.origin.url"])
    if remote != (checkout.remote or ""):
        raise _foreign(checkout, "its remote is another one")


async def commits_since(isolation: RunIsolation, base: str) -> int:
    """Return how many commits HEAD has that `base` (a commit id) lacks; 0 when that cannot be told."""
    text = await _text(isolation, ["rev-list", "--count", "--end-of-options", f"{base}..HEAD"])
    return int(text) if text.isdigit() else 0


async def head_of(isolation: RunIsolation) -> str:
    """Return the commit id of HEAD, or an empty text on an unborn branch."""
    return await _text(isolation, ["rev-parse", "--verify", "--quiet", "HEAD"])


async def read_committed(isolation: RunIsolation, repository: Path, revision: str, path: str) -> bytes | None:
    """Return a file as it is committed in `repository`, or None when there is none. `isolation` must show the folder.

    Raises WorkspaceError when git cannot be started or the file is larger than 1 MB.
    """
    argv = ["-C", str(repository), "cat-file", "blob", "--end-of-options", f"{revision}:{path}"]
    done = await _run(isolation, [*_OFFLINE, *argv], output_limit_bytes=COMMITTED_BYTES)
    if done.exit_code != 0 or done.timed_out:
        return None
    if len(done.stdout) >= COMMITTED_BYTES:
        raise WorkspaceError(f"{path} is larger than {COMMITTED_BYTES} bytes.", remedy="Make it smaller.")
    return done.stdout


async def _create(
    place: WorkspacePlace, checkout: Checkout, *, repository: Path | None, base: str | None, isolation_for: IsolationFor
) -> None:
    try:
        building = new_building(place)
        give(building, place.owner)
    except OSError as exc:
        raise _no_room(place, exc) from None
    try:
        await _populate(
            building,
            repository=repository,
            branch=checkout.branch,
            base=base,
            isolation_for=isolation_for,
            foreign=place.owner is not None,
        )
        built = Checkout(path=building, branch=checkout.branch, remote=checkout.remote, created=True)
        await verify(built, isolation_for(building, ()))
        _put_in_place(place, building)
    except BaseException:
        await _remove(building)
        raise


def _put_in_place(place: WorkspacePlace, building: Path) -> None:
    try:
        # Marked first: a kill right after the rename must not leave a checkout whose hook never ran.
        mark_unfinished(place)
        try:
            os.rename(building, place.path)
        except OSError:
            mark_finished(place)
            raise
    except OSError as exc:
        raise _no_room(place, exc) from None


async def _finish(place: WorkspacePlace, checkout: Checkout, after_create: AfterCreate) -> None:
    try:
        await after_create(checkout)
    except BaseException:
        if await _remove(place.path):
            mark_finished(place)
        raise


async def _populate(
    folder: Path,
    *,
    repository: Path | None,
    branch: str,
    base: str | None,
    isolation_for: IsolationFor,
    foreign: bool = False,
) -> None:
    if repository is None:
        isolation = isolation_for(folder, ())
        await _git(isolation, ["init", "--quiet", "--template=", f"--initial-branch={branch}", "."])
        return
    isolation = isolation_for(folder, (Bind(source=repository, target=str(repository)),))
    # Through the transport, not by copying files: links and alternates of the source stay outside.
    clone = ["clone", "--quiet", "--no-local", "--no-tags", "--template=", "--origin", "origin"]
    if foreign:
        # The other side of the transport reads none of our options, and refuses a repository of another user.
        clone += ["--upload-pack", "git -c 'safe.directory=*' upload-pack"]
    if base is not None:
        clone += ["--branch", base]
    await _git(isolation, [*clone, "--", str(repository), "."])
    if await head_of(isolation):
        await _git(isolation, ["checkout", "--quiet", "--no-track", "-b", branch])
    else:
        await _git(isolation, ["symbolic-ref", "HEAD", f"refs/heads/{branch}"])


async def _remove(folder: Path) -> bool:
    with anyio.CancelScope(shield=True):
        gone = await anyio.to_thread.run_sync(remove_tree, folder)
    return gone


async def _git(isolation: RunIsolation, argv: Sequence[str]) -> None:
    done = await _run(isolation, argv)
    if done.timed_out:
        raise WorkspaceError(
            f"git {argv[0]} did not end within {GIT_SECONDS:g} s.", remedy="Give run.repository a smaller repository."
        )
    if done.exit_code != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise WorkspaceError(
            f"git {argv[0]} failed ({done.exit_code}): {(said or ['no reason given'])[-1][:300]}",
            remedy="Check that the repository and its base branch exist and can be read.",
        )


async def _text(isolation: RunIsolation, argv: Sequence[str]) -> str:
    done = await _run(isolation, [*_OFFLINE, *argv])
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n") if done.exit_code == 0 else ""


async def _run(isolation: RunIsolation, argv: Sequence[str], *, output_limit_bytes: int = OUTPUT_BYTES) -> Completed:
    special = special_git_file(isolation.workspace)
    if special is not None:
        raise WorkspaceError(
            f"{isolation.workspace}/{special} is no regular file.", remedy="Look at the workspace, and move it away."
        )
    try:
        return await isolation.run(
            [*SAFE, *argv],
            timeout_seconds=GIT_SECONDS,
            output_limit_bytes=output_limit_bytes,
            extras={"GIT_OPTIONAL_LOCKS": "0"},
            asks_network=False,
        )
    except (LaunchError, TimeoutError) as exc:
        raise WorkspaceError(f"git could not be started: {exc}", remedy="Run `hostside doctor`.") from None


def _check_form(checkout: Checkout) -> None:
    """Refuse what must not even be looked at with git, and what an interrupted git left (C-23.e)."""
    for part in (checkout.path, checkout.path / ".git"):
        try:
            found = part.lstat()
        except OSError:
            raise _foreign(checkout, f"{part.name} cannot be found in it") from None
        if not stat.S_ISDIR(found.st_mode):
            raise _foreign(checkout, f"{part.name} is not a folder")
    special = special_git_file(checkout.path)
    if special is not None:
        raise _foreign(checkout, f"{special} is no regular file")
    lock = checkout.path / ".git" / "index.lock"
    if os.path.lexists(lock):
        minutes = max(0, int(time.time() - lock.lstat().st_mtime)) // 60
        raise WorkspaceError(
            f"{checkout.path} is locked: .git/index.lock is {minutes} min old, and who holds it is not known.",
            remedy=f"When no git works there any more, run: rm {lock}",
        )


def _remote(repository: Path | None) -> str | None:
    return None if repository is None else str(repository)


def _no_room(place: WorkspacePlace, exc: OSError) -> WorkspaceError:
    return WorkspaceError(f"{place.path} cannot be made: {exc.strerror}.", remedy="Check the disk and the folder.")


def _foreign(checkout: Checkout, why: str) -> WorkspaceError:
    return WorkspaceError(
        f"{checkout.path} is not this issue's checkout: {why}.",
        remedy="Move it away; the next run makes a new one. Nothing in it was changed.",
    )
