"""The operator's own checkout, for calls that belong to no run: which folder it is, and git in it (D9)."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from anyio.to_thread import run_sync

from hostside.config.paths import HostPaths
from hostside.core.call import Workspace
from hostside.errors import ConfigError
from hostside.tools.git_runner import GitCompleted, GitUnavailable
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.git_runner import IsolatedGit
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, probe_levels
from hostside.worker.sandbox_args import Bind

MAX_POINTER_BYTES = 4_096


def workspace_of(folder: Path, paths: HostPaths, *, top_level: bool) -> Workspace:
    """Return `folder` as a workspace; with `top_level`, the nearest folder above it that holds `.git`, if there is one.

    Raises ConfigError where the host's own state or configuration lies in it: a workspace never holds them (D8).
    """
    real = folder.resolve(strict=True)
    if top_level:
        real = next((place for place in (real, *real.parents) if (place / ".git").exists()), real)
    for own in (paths.state, paths.config_file.parent):
        if own.exists() and own.resolve().is_relative_to(real):
            raise ConfigError(
                "invalid_configuration",
                f"{real} holds the host's own files ({own}); it cannot be a workspace.",
                remedy="Change to the folder of a project.",
            )
    return Workspace(id=real.name or "root", root=str(real))


class OperatorGit:
    """A GitRunner for one workspace of the operator. Close it (it is a context manager): its home is removed then.

    Each git runs in the strongest isolation that this machine gives (bwrap, else a built environment alone), with a
    private home. Isolation is set up at the first call, so that other tools do not wait for it.
    """

    def __init__(self, workspace: Workspace, source: EnvironmentSource, identity: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._source = source
        self._identity = identity
        self._lock = asyncio.Lock()
        self._home: Path | None = None
        self._git: IsolatedGit | None = None

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        output_limit_bytes: int,
        stdin: bytes | None = None,
    ) -> GitCompleted:
        """Run git in the workspace. Raises GitUnavailable when it could not be started."""
        async with self._lock:
            if self._git is None:
                self._git = await run_sync(self._make)
        return await self._git.run(
            argv, timeout_seconds=timeout_seconds, output_limit_bytes=output_limit_bytes, stdin=stdin
        )

    def close(self) -> None:
        """Remove the home."""
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> IsolatedGit:
        root = Path(self._workspace.root)
        available = probe_levels().status(IsolationLevel.BWRAP).available
        self._home = Path(tempfile.mkdtemp(prefix="hostside-home-"))
        try:
            isolation = RunIsolation(
                level=IsolationLevel.BWRAP if available else IsolationLevel.HOME,
                workspace=root,
                home=self._home,
                environment=self._source,
                rw_binds=_shared_repository(root),
            )
        except (ConfigError, OSError) as error:
            self.close()
            raise GitUnavailable(str(error)) from error
        return IsolatedGit(isolation, self._identity)


def _shared_repository(root: Path) -> tuple[Bind, ...]:
    """Return what a linked worktree needs besides its own folder: the repository that it belongs to.

    Only where that repository names this worktree itself, so that a `.git` file cannot open a folder of its choice.
    """
    pointer = _pointer(root / ".git")
    if pointer is None or not pointer.startswith("gitdir: "):
        return ()
    folder = (root / pointer.removeprefix("gitdir: ")).resolve()
    repository = folder.parent.parent
    back = _pointer(folder / "gitdir")
    named = back is not None and (folder / back).resolve() == root / ".git"
    if folder.parent.name != "worktrees" or not named or root.is_relative_to(repository):
        return ()
    return (Bind(source=repository, target=str(repository)),)


def _pointer(file: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= MAX_POINTER_BYTES:
            return file.read_text(encoding="utf-8").strip()
    return None
