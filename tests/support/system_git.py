"""git of this machine for tests: a GitRunner without isolation, and repositories to run it on."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from hostside.tools.git_runner import GIT_ENVIRONMENT, GitCompleted, GitUnavailable

GIT = shutil.which("git") or "git"
AUTHOR = {
    "GIT_AUTHOR_NAME": "Agent",
    "GIT_AUTHOR_EMAIL": "agent@example.com",
    "GIT_COMMITTER_NAME": "Agent",
    "GIT_COMMITTER_EMAIL": "agent@example.com",
}


class SystemGit:
    """A GitRunner over one workspace. `commands` holds every argv that it was given."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.commands: list[tuple[str, ...]] = []

    async def run(
        self, argv: Sequence[str], *, timeout_seconds: float, output_limit_bytes: int, stdin: bytes | None = None
    ) -> GitCompleted:
        """Run git to its end in the workspace, with an environment built from nothing."""
        self.commands.append(tuple(argv))
        assert argv[0] == "git"
        try:
            done = await anyio.to_thread.run_sync(_run, argv, self._root, stdin or b"", timeout_seconds)
        except OSError as exc:
            raise GitUnavailable(str(exc)) from None
        except subprocess.TimeoutExpired:
            return GitCompleted(exit_code=137, stdout=b"", stderr=b"", timed_out=True, truncated=False)
        return GitCompleted(
            exit_code=done.returncode,
            stdout=done.stdout[:output_limit_bytes],
            stderr=done.stderr[-output_limit_bytes:],
            timed_out=False,
            truncated=len(done.stdout) > output_limit_bytes,
        )


def _run(argv: Sequence[str], cwd: Path, stdin: bytes, timeout: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [GIT, *argv[1:]], input=stdin, capture_output=True, check=False, cwd=cwd, env=environment(), timeout=timeout
    )


def environment() -> dict[str, str]:
    """Return what git gets: nothing of this process but PATH."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **GIT_ENVIRONMENT, **AUTHOR}


def git(root: Path, *words: str, stdin: bytes = b"") -> bytes:
    """Run git as the agent would, with the repository's own configuration, and return what it printed."""
    done = subprocess.run([GIT, *words], cwd=root, env=environment(), input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def a_repository(root: Path, *, branch: str = "run-1") -> Path:
    """Make `root` a repository with one commit of `a.txt` on `branch`, and return it."""
    root.mkdir(parents=True)
    git(root, "init", "--quiet", f"--initial-branch={branch}")
    (root / "a.txt").write_bytes(b"one\ntwo\n")
    git(root, "add", "--", "a.txt")
    git(root, "commit", "--quiet", "--message=first")
    return root
