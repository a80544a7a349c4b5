"""The checkout of one run: its key, its place, its branch, and the proof that it is this issue's (R-090..R-097)."""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hostside.config.paths import make_private
from hostside.core.issue import Issue
from hostside.errors import ConfigError, HostsideError

_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_RESERVED = frozenset({"con", "nul", "tmp", "runs", "hostside", "lost+found"})
MAX_KEY = 100


class WorkspaceError(HostsideError):
    """The run does not start: the workspace cannot be had, or it is not this issue's. Nothing of it was changed."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def workspace_key(identifier: str) -> str:
    """Return the folder name of an issue: safe characters kept, others `_`, and then a hash of the original (R-090).

    Raises WorkspaceError for an identifier that gives an empty, dotted or reserved name (R-091).
    """
    safe = _SAFE.sub("_", identifier)
    if safe.startswith(".") or not safe.strip("._"):
        raise WorkspaceError(
            f"the identifier {identifier[:60]!r} gives no folder name.", remedy="Rename the issue in its tracker."
        )
    if safe.lower() in _RESERVED or len(safe) > MAX_KEY or safe != identifier or safe.endswith("."):
        digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        safe = f"{safe[: MAX_KEY - 17].rstrip('.')}-{digest}"
    return safe


def branch_name(issue: Issue) -> str:
    """Return the branch that the host assigns to an issue: `issue/` and its key, never what anybody else chose."""
    return f"issue/{workspace_key(issue.identifier).replace('..', '_').removesuffix('.lock')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspacePlace:
    """Where a workspace is or will be. `path` is a strict descendant of `root` by real path."""

    root: Path
    path: Path
    key: str


def place(root: Path, identifier: str) -> WorkspacePlace:
    """Return the place of an issue's workspace, its root made (0700). Raises WorkspaceError when it is not contained.

    The folder itself may not exist yet; an existing one must be a real folder of this user, not a link (R-092).
    """
    key = workspace_key(identifier)
    real_root = make_private(root).resolve(strict=True)
    path = real_root / key
    if path.parent != real_root or path == real_root:
        raise WorkspaceError(f"{path} is not inside {real_root}.", remedy="Choose another workspace root.")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise WorkspaceError(f"{path} is not a folder.", remedy="Remove it; a run makes a folder of its own there.")
    if path.exists() and path.resolve(strict=True) != path:
        raise WorkspaceError(f"{path} leads elsewhere.", remedy="Remove the link.")
    return WorkspacePlace(root=real_root, path=path, key=key)


def make_run_home(runs: Path, run_id: str) -> Path:
    """Return a fresh folder for one run's agent home (0700), beside every workspace, never inside one (R-095)."""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", run_id):
        raise ValueError("not a run id")
    folder = make_private(make_private(runs) / run_id)
    home = folder / "home"
    os.mkdir(home, 0o700)
    return home


def remove_run_home(home: Path) -> None:
    """Remove a run's home and its folder. What cannot be removed is left, and said by the caller's log."""
    shutil.rmtree(home.parent, ignore_errors=True)


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
