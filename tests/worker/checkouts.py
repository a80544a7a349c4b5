"""A folder of workspaces beside a bare origin, and ways to look at what a preparation left there."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hostside.worker.checkout import AfterCreate, Checkout, prepare
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.sandbox_args import Bind
from hostside.worker.workspace import WorkspacePlace, place

GIT = shutil.which("git") or "git"
_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Agent",
    "GIT_AUTHOR_EMAIL": "agent@example.com",
    "GIT_COMMITTER_NAME": "Agent",
    "GIT_COMMITTER_EMAIL": "agent@example.com",
}


def git(folder: Path, *words: str) -> bytes:
    """Run git as anybody might, with whatever `folder` configures, and return what it printed."""
    done = subprocess.run([GIT, *words], cwd=folder, env=_ENVIRONMENT, capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def a_repository(root: Path, *, branch: str) -> Path:
    """Make `root` a repository with one commit of `a.txt` on `branch`, and return it."""
    root.mkdir(parents=True)
    git(root, "init", "--quiet", f"--initial-branch={branch}")
    (root / "a.txt").write_bytes(b"one\ntwo\n")
    git(root, "add", "--", "a.txt")
    git(root, "commit", "--quiet", "--message=first")
    return root


@dataclass(frozen=True, slots=True, kw_only=True)
class Yard:
    """`origin`: a bare repository whose `main` has one commit of `a.txt`; `root`: where workspaces are made."""

    folder: Path
    level: IsolationLevel
    base: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin"})

    @property
    def root(self) -> Path:
        return self.folder / "workspaces"

    @property
    def origin(self) -> Path:
        return self.folder / "origin.git"

    def place(self, key: str = "ENG-1") -> WorkspacePlace:
        return place(self.root, key)

    def isolation(self, folder: Path, binds: Sequence[Bind] = ()) -> RunIsolation:
        """The isolation of one folder, as a run makes it."""
        return RunIsolation(
            level=self.level,
            workspace=folder,
            home=self.folder / "home",
            environment=EnvironmentSource(base=self.base),
            ro_binds=tuple(binds),
        )

    async def prepare(
        self,
        key: str = "ENG-1",
        *,
        repository: Path | None = None,
        base: str | None = None,
        empty: bool = False,
        after_create: AfterCreate | None = None,
    ) -> Checkout:
        """Prepare the workspace of `key` from the origin, or from nothing with `empty`."""
        return await prepare(
            self.place(key),
            repository=None if empty else repository or self.origin,
            branch=f"issue/{key}",
            base=base,
            isolation_for=self.isolation,
            after_create=after_create,
        )

    def left(self) -> list[str]:
        """What stands in the root, but for the folder of locks; and every mark of something unfinished."""
        marks = [entry for entry in os.listdir(self.root / ".locks") if not entry.endswith(".lock")]
        return sorted(entry for entry in os.listdir(self.root) if entry != ".locks") + marks


def make_yard(folder: Path, level: IsolationLevel) -> Yard:
    """Make a yard in an empty folder."""
    (folder / "home").mkdir(mode=0o700)
    seed = a_repository(folder / "seed", branch="main")
    git(seed, "branch", "release")
    git(folder, "clone", "--quiet", "--bare", "seed", "origin.git")
    return Yard(folder=folder, level=level)


def fingerprint(folder: Path) -> str:
    """A hash of everything below `folder`: names, kinds, modes, contents, targets and times of change."""
    digest = hashlib.sha256()
    for path in sorted([folder, *folder.rglob("*")]):
        found = path.lstat()
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        digest.update(f"{path}|{found.st_mode}|{found.st_mtime_ns}|".encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()
