"""Git on a run's checkout, always inside the run's isolation: nothing here holds a credential (D9, D15, R-097)."""

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hostside.worker.isolation import RunIsolation
from hostside.worker.process import Completed, LaunchError
from hostside.worker.sandbox_args import Bind
from hostside.worker.workspace import WorkspaceError, WorkspacePlace

GIT_SECONDS = 120.0
OUTPUT_BYTES = 200_000
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

#: Makes the isolation of one folder, with more read-only binds for the time of one command.
IsolationFor = Callable[[Path, Sequence[Bind]], RunIsolation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A prepared workspace. `created` tells whether it is new, so that `after_create` is due."""

    path: Path
    branch: str
    remote: str | None
    created: bool


async def prepare(
    place: WorkspacePlace, *, repository: Path | None, branch: str, base: str | None, isolation_for: IsolationFor
) -> Checkout:
    """Return the checkout at `place`, made from `repository` when there is none yet.

    A new one is built beside its place and renamed into it, so that a crash leaves a whole checkout or none. Raises
    WorkspaceError; then an existing checkout is untouched.
    """
    if place.path.exists():
        checkout = Checkout(path=place.path, branch=branch, remote=_remote(repository), created=False)
        await verify(checkout, isolation_for(place.path, ()))
        return checkout
    building = place.root / f".new-{secrets.token_hex(8)}"
    os.mkdir(building, 0o700)
    try:
        await _populate(building, repository=repository, branch=branch, base=base, isolation_for=isolation_for)
        os.rename(building, place.path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return Checkout(path=place.path, branch=branch, remote=_remote(repository), created=True)


async def verify(checkout: Checkout, isolation: RunIsolation) -> None:
    """Check that folder, remote and branch are this issue's (R-097). Raises WorkspaceError, and changes nothing."""
    top = await _text(isolation, ["rev-parse", "--show-toplevel"])
    if top != str(checkout.path):
        raise _foreign(checkout, f"its top level is {top or 'no repository'}")
    head = await _text(isolation, ["symbolic-ref", "--quiet", "HEAD"])
    if head != f"refs/heads/{checkout.branch}":
        raise _foreign(
            checkout, f"it is on {head.removeprefix('refs/heads/') or 'no branch'}, not on {checkout.branch}"
        )
    remote = await _text(isolation, ["config", "--local", "--get", "remote.origin.url"])
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
    """Return a file as it is committed in `repository`, or None when there is none. `isolation` must show the folder."""
    argv = [*SAFE, "-C", str(repository), "cat-file", "blob", f"{revision}:{path}"]
    done = await isolation.run(argv, timeout_seconds=GIT_SECONDS, output_limit_bytes=1_000_000)
    return done.stdout if done.exit_code == 0 else None


async def _populate(
    folder: Path, *, repository: Path | None, branch: str, base: str | None, isolation_for: IsolationFor
) -> None:
    if repository is None:
        isolation = isolation_for(folder, ())
        await _git(isolation, ["init", "--quiet", "--template=", f"--initial-branch={branch}", "."])
        return
    isolation = isolation_for(folder, (Bind(source=repository, target=str(repository)),))
    clone = ["clone", "--quiet", "--no-hardlinks", "--no-tags", "--template=", "--origin", "origin"]
    if base is not None:
        clone += ["--branch", base]
    await _git(isolation, [*clone, "--", str(repository), "."])
    if await head_of(isolation):
        await _git(isolation, ["checkout", "--quiet", "--no-track", "-b", branch])
    else:
        await _git(isolation, ["symbolic-ref", "HEAD", f"refs/heads/{branch}"])


async def _git(isolation: RunIsolation, argv: Sequence[str]) -> Completed:
    try:
        done = await isolation.run([*SAFE, *argv], timeout_seconds=GIT_SECONDS, output_limit_bytes=OUTPUT_BYTES)
    except (LaunchError, TimeoutError) as exc:
        raise WorkspaceError(f"git could not be started: {exc}", remedy="Run `hostside doctor`.") from None
    if done.exit_code != 0 or done.timed_out:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise WorkspaceError(
            f"git {argv[0]} failed ({done.exit_code}): {(said or ['no reason given'])[-1][:300]}",
            remedy="Check that the repository and its base branch exist and can be read.",
        )
    return done


async def _text(isolation: RunIsolation, argv: Sequence[str]) -> str:
    try:
        done = await isolation.run([*SAFE, *argv], timeout_seconds=GIT_SECONDS, output_limit_bytes=OUTPUT_BYTES)
    except (LaunchError, TimeoutError) as exc:
        raise WorkspaceError(f"git could not be started: {exc}", remedy="Run `hostside doctor`.") from None
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n") if done.exit_code == 0 else ""


def _remote(repository: Path | None) -> str | None:
    return None if repository is None else str(repository)


def _foreign(checkout: Checkout, why: str) -> WorkspaceError:
    return WorkspaceError(
        f"{checkout.path} is not this issue's checkout: {why}.",
        remedy="Move it away; the next run makes a new one. Nothing in it was changed.",
    )
