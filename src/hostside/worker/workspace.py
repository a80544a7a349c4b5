"""The checkout of one run: its key, its place, its branch, and the proof that it is this issue's (R-090..R-097)."""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from hostside.config.paths import make_private
from hostside.core.issue import Issue
from hostside.errors import ConfigError, HostsideError
from hostside.worker.process import RunUser
from hostside.worker.removal import remove_tree
from hostside.worker.run_places import give, make_passage

_SAFE = re.compile(r"[^A-Za-z0-9._-]")
#: Looks like a key that was changed: only a key that was may look so, or two issues could share one.
_SUFFIXED = re.compile(r"-[0-9a-f]{16}\Z")
_RESERVED = frozenset({"con", "nul", "tmp", "runs", "hostside", "lost+found"})
MAX_KEY = 100
MAX_IDENTIFIER = 1_000


class WorkspaceError(HostsideError):
    """The run does not start: the workspace cannot be had, or it is not this issue's. Nothing of it was changed."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def workspace_key(identifier: str) -> str:
    """Return the folder name of an issue: safe characters kept, others `_`, and then a hash of the original (R-090).

    Different identifiers give different keys (but for a collision in 64 bits of SHA-256). A key is at most 100
    characters of `[A-Za-z0-9._-]` and never starts with a dot. Raises WorkspaceError for an identifier that gives an
    empty, dotted or reserved name, or is longer than 1,000 characters (R-091).
    """
    safe = _SAFE.sub("_", identifier)
    if not safe or safe.startswith(".") or len(identifier) > MAX_IDENTIFIER or identifier.lower() in _RESERVED:
        raise WorkspaceError(
            f"the identifier {identifier[:60]!r} gives no folder name.", remedy="Rename the issue in its tracker."
        )
    if safe == identifier and len(safe) <= MAX_KEY and not safe.endswith(".") and not _SUFFIXED.search(safe):
        return safe
    return f"{safe[: MAX_KEY - 17].rstrip('.')}-{_digest(identifier)}"


def branch_name(issue: Issue) -> str:
    """Return the branch that the host assigns to an issue: `issue/` and its key, never what anybody else chose.

    A valid name for git; different identifiers give different branches. Raises WorkspaceError as `workspace_key` does.
    """
    key = workspace_key(issue.identifier)
    # All else that git forbids in a name cannot be in a key.
    if ".." not in key and not key.endswith(".lock"):
        return f"issue/{key}"
    plain = re.sub(r"\.{2,}", "_", key).removesuffix(".lock")
    return f"issue/{plain[: MAX_KEY - 17].rstrip('.')}-{_digest(issue.identifier)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePlace:
    """Where a workspace is or will be, and whose (None: the host's). `path` is a strict descendant of `root` by real path."""

    root: Path
    path: Path
    key: str
    owner: RunUser | None = None


def place(root: Path, identifier: str, owner: RunUser | None = None) -> WorkspacePlace:
    """Return the place of an issue's workspace, its root made (0700) where it is missing.

    A root that exists keeps its mode; it may be reached through a link of the operator's. Raises WorkspaceError when
    it is another user's or open to others' changes, and when the workspace is not contained: it may not exist yet, but
    what exists must be a real folder, not a link (R-092), and the owner's. Raises ConfigError when the root cannot be made.

    With an `owner` the root is a passage instead: that user can walk through it (`run_places.make_passage`).
    """
    key = workspace_key(identifier)
    real_root = _root(root) if owner is None else make_passage(root, owner)
    path = real_root / key
    if path.parent != real_root or path == real_root:
        raise WorkspaceError(f"{path} is not inside {real_root}.", remedy="Choose another workspace root.")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise WorkspaceError(f"{path} is not a folder.", remedy="Remove it; a run makes a folder of its own there.")
    if owner is not None and path.exists() and path.stat().st_uid != owner.uid:
        raise WorkspaceError(
            f"{path} belongs to another user than run.user.",
            remedy=f"Move it away, or run: chown -hR {owner.uid}:{owner.gid} {path}",
        )
    return WorkspacePlace(root=real_root, path=path, key=key, owner=owner)


def make_run_home(runs: Path, run_id: str, owner: RunUser | None = None) -> Path:
    """Return a fresh folder for one run's agent home (0700), beside every workspace, never inside one (R-095).

    With an `owner` it is that user's, and what leads there a passage (`run_places.make_passage`).

    Raises WorkspaceError when this run has one already, ConfigError when it cannot be made or its place is a link,
    and ValueError for anything but a run id.
    """
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", run_id):
        raise ValueError("not a run id")
    if owner is None:
        home = make_private(make_private(runs) / run_id) / "home"
    else:
        home = make_passage(make_passage(runs, owner) / run_id, owner) / "home"
    try:
        os.mkdir(home, 0o700)
        give(home, owner)
    except FileExistsError:
        raise WorkspaceError(
            f"{home} exists already.", remedy="Start the run again; it gets an id of its own."
        ) from None
    except OSError as exc:
        raise WorkspaceError(f"{home} cannot be made: {exc.strerror}.", remedy="Check the disk.") from None
    return home


def remove_run_home(home: Path) -> bool:
    """Remove a run's home and its folder, whatever the agent made of it; links are not followed. False when something
    is left."""
    return remove_tree(home.parent)


def check_repository(repository: str) -> Path:
    """Return the real path of a local repository. Raises ConfigError when there is none."""
    path = Path(repository).expanduser()
    if not path.is_dir() or not ((path / "HEAD").is_file() or (path / ".git").exists()):
        raise ConfigError(
            "invalid_configuration",
            f"run.repository: {path} is not a git repository.",
            remedy="Give the path of a bare repository or of a checkout.",
        )
    return path.resolve(strict=True)


def _root(root: Path) -> Path:
    if not os.path.lexists(root):
        make_private(root)
    try:
        real = root.resolve(strict=True)
        found = real.stat()
    except (OSError, RuntimeError):
        raise WorkspaceError(f"{root} cannot be reached.", remedy="Check run.workspaces in hostside.toml.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise WorkspaceError(
            f"{root} is not a folder that you alone can change.",
            remedy="Choose another folder as run.workspaces, or run: chmod go-w on it.",
        )
    return real


def _digest(identifier: str) -> str:
    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:16]
