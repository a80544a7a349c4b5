"""Where the runs of another user have their homes and workspaces: a way through for it, and no look around (D8, D9).

The host's state stays its own alone, so these places lie outside it: folders of the host that others may walk through and
neither list nor change (0711), and in them what belongs to the run's user alone (0700).
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hostside.errors import ConfigError
from hostside.worker.process import RunUser
from hostside.worker.removal import remove_tree
from hostside.worker.run_user import first_unreachable, run_as, told

DEFAULT_HOMES = Path("/var/lib/hostside/runs")
DEFAULT_WORKSPACES = Path("/var/lib/hostside/workspaces")
PASSAGE = 0o711
_LOOKS = 0o066
_WALKS = 'cd "$1" && [ ! -r . ] && [ ! -w . ]'


def make_passage(folder: Path, user: RunUser) -> Path:
    """Return the real path of a folder of the host that `user` can walk through, but neither list nor change.

    It and its missing parents are made (0711); what exists keeps its mode. Raises ConfigError that names the folder and the
    remedy when it is another user's, open to others, or `user` cannot get there, which a process of it tries.
    """
    try:
        for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            with contextlib.suppress(FileExistsError):
                missing.mkdir(mode=0o700)
                missing.chmod(PASSAGE)  # whatever the umask
        real = folder.resolve(strict=True)
        found = real.stat()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its links lead in a circle"
        raise _unusable(folder, f"it cannot be made: {reason}", "Check the disk, or choose another folder.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise _unusable(folder, "it is no folder of the host's user", f"Run: chown root {real}")
    if found.st_mode & _LOOKS:
        raise _unusable(folder, "others can list or change it", f"Run: chmod 711 {real}")
    if run_as(user, ["/bin/sh", "-c", _WALKS, "sh", str(real)]).returncode != 0:
        raise _out_of_reach(folder, real, user)
    return real


def check_passage(folder: Path, user: RunUser) -> None:
    """Raise ConfigError where `make_passage` would; nothing is made. Of a folder that does not exist yet only the way to it
    is looked at."""
    if folder.exists():
        make_passage(folder, user)
        return
    nearest = next(path for path in folder.parents if path.exists())
    if run_as(user, ["/bin/sh", "-c", 'cd "$1"', "sh", str(nearest)]).returncode != 0:
        raise _out_of_reach(folder, nearest, user)


def give(path: Path, user: RunUser | None) -> None:
    """Make `path` the property of `user`, if there is one. Only for what lies in a folder that no one else can change."""
    if user is not None:
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def check_reach(user: RunUser | None, paths: Sequence[Path]) -> None:
    """Raise ConfigError that names the first of `paths` which a process of `user` cannot read or run."""
    if user is None or not paths:
        return
    if (path := first_unreachable(user, paths)) is not None:
        raise ConfigError(
            "invalid_configuration",
            f"{path} cannot be read by {told(user)} (run.user), which a run needs.",
            remedy="Install it outside private folders, e.g. below /opt or /srv, or open it with chmod o+rX.",
        )


@contextlib.contextmanager
def scratch(user: RunUser | None, homes: Path) -> Iterator[tuple[Path, Path]]:
    """Give a home and an empty folder (0700) for the host's own look at a repository, both of `user`, if there is one; they
    are gone afterwards. Raises ConfigError as `make_passage` does."""
    parent = None if user is None else make_passage(homes, user)
    folder = Path(tempfile.mkdtemp(prefix=".plan-" if parent else "hostside-", dir=parent))
    try:
        if user is not None:
            folder.chmod(PASSAGE)
        home, work = folder / "home", folder / "work"
        for path in (home, work):
            path.mkdir(mode=0o700)
            give(path, user)
        yield home, work
    finally:
        remove_tree(folder)


def _out_of_reach(folder: Path, real: Path, user: RunUser) -> ConfigError:
    return _unusable(
        folder,
        f"{told(user)} cannot get there",
        f"Set run.homes and run.workspaces to folders outside private ones, or run: chmod o+x on {real} and what is above it.",
    )


def _unusable(folder: Path, why: str, remedy: str) -> ConfigError:
    return ConfigError("invalid_configuration", f"{folder} cannot hold runs of run.user: {why}.", remedy=remedy)
