"""Workspace git for the git tools: every process inside the run's isolation (D9)."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from hostside.tools.git_runner import GIT_ENVIRONMENT, GitCompleted, GitUnavailable
from hostside.worker.isolation import RunIsolation
from hostside.worker.process import LaunchError

#: What git opens before anything else.
GIT_FILES = ("HEAD", "config", "index", "packed-refs", "info/attributes", "info/exclude", "commondir", "shallow")
#: Set by `env`, inside: the environment contract lets no GIT_* name of a configuration or program through (R-328).
_PREFIX = ("env", *(f"{name}={value}" for name, value in GIT_ENVIRONMENT.items()))


def special_git_file(root: Path) -> str | None:
    """Return the name of a file that git would wait for for ever, since it is a pipe, socket or device; else None.

    The agent can put one there. Looked at by name without opening; what it becomes a moment later is git's deadline's.
    """
    for name in GIT_FILES:
        try:
            mode = os.stat(root / ".git" / name).st_mode  # follows: a link to a pipe is a pipe
        except OSError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return f".git/{name}"
    return None


class IsolatedGit:
    """A GitRunner over one run's isolation. `identity` holds `GIT_AUTHOR_*` and `GIT_COMMITTER_*`, nothing else."""

    def __init__(self, isolation: RunIsolation, identity: Mapping[str, str]) -> None:
        self._isolation = isolation
        self._identity = dict(identity)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        output_limit_bytes: int,
        stdin: bytes | None = None,
    ) -> GitCompleted:
        """Run git in the workspace. Raises GitUnavailable when it could not be started."""
        special = special_git_file(self._isolation.workspace)
        if special is not None:
            raise GitUnavailable(f"{special} is no regular file; git would wait for it for ever")
        try:
            done = await self._isolation.run(
                [*_PREFIX, *argv],
                timeout_seconds=timeout_seconds,
                output_limit_bytes=output_limit_bytes,
                extras=self._identity,
                stdin=stdin or b"",
                asks_network=False,
            )
        except (LaunchError, TimeoutError) as exc:
            raise GitUnavailable(str(exc)) from exc
        return GitCompleted(
            exit_code=done.exit_code,
            stdout=done.stdout,
            stderr=done.stderr,
            timed_out=done.timed_out,
            truncated=done.truncated,
        )
