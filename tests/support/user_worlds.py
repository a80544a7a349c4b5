"""A host of root whose runs are another user: a number without an entry in the machine's list of users."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostside.worker.process import RunUser
from tests.support.host_world import HostWorld, make_world
from tests.support.reachable_python import reachable_python

#: Of this test process alone, since a run at level `user` wants its user for itself.
RUN_USER = RunUser(uid=20_000 + os.getpid() % 20_000, gid=20_000 + os.getpid() % 20_000)


@dataclass(frozen=True, slots=True)
class UserWorld(HostWorld):
    """A world below a folder that others may walk through; `python` runs its host."""

    python: Path

    @property
    def homes(self) -> Path:
        """The folder of run homes."""
        return self.folder / "homes"

    def command(self, *arguments: str) -> list[str]:
        """The command line of `hostside`."""
        return [str(self.python), "-B", "-m", "hostside", *arguments]

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start `hostside`; the caller ends it."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def follow(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Write the scripted agent's steps."""
        (self.folder / "script.json").write_text(json.dumps(steps), encoding="utf-8")

    def workflow(self, *, name: str = "WORKFLOW.md", **hooks: str) -> Path:
        """Write a workflow with these hooks, and trust it."""
        file = self.folder / name
        front = {"tracker": {"name": "main"}, "hooks": hooks}
        file.write_text(f"---\n{json.dumps(front)}\n---\nWork.\n", encoding="utf-8")
        trusted = self.run("workflow", "trust", str(file))
        assert trusted.exit_code == 0, trusted.err
        return file


@contextmanager
def user_world(below: str | None = None) -> Iterator[UserWorld]:
    """Make a world whose runs are `RUN_USER`, in the temporary folder or `below` another.

    Skips the test without root or a Python that this user can start.
    """
    if os.geteuid() != 0:
        pytest.skip("starting processes as another user needs root")
    with tempfile.TemporaryDirectory(prefix="hostside-test-", dir=below, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        python = reachable_python(folder, uid=RUN_USER.uid)
        (folder / "world").mkdir()
        world = UserWorld(make_world(folder / "world").folder, python)
        world.configure(
            f'user = {RUN_USER.uid}\nhomes = "{world.homes}"\n'
            f'[agent]\nkind = "scripted"\nscript = "{world.folder / "script.json"}"\n'
        )
        world.follow([])
        yield world
