"""The command line on a host of its own: in this process for the quick tests, as processes for the others."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostside.app.host import App
from hostside.cli.main import main
from tests.support.host_world import HostWorld, make_world

WITHIN = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One command's end."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object on standard output, which holds nothing else."""
        return json.loads(self.out)

    @property
    def whole(self) -> tuple[int, str, str]:
        """Everything that a caller sees."""
        return self.code, self.out, self.err


class CommandLine:
    """`hostside` in a world: `project` is a checkout of the repository, and the current directory."""

    def __init__(self, world: HostWorld, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self.project = world.folder / "seed"
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        """Run a command in this process."""
        self._capsys.readouterr()
        code = main(list(arguments))
        out, err = self._capsys.readouterr()
        return Ended(code=code, out=out, err=err)

    def process(self, *arguments: str, extra: Mapping[str, str] = {}, stdin: str | None = None) -> Ended:
        """Run a command as a process of its own."""
        done = subprocess.run(
            self.world.command(*arguments),
            env=self.world.environment(extra),
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
            input=stdin or "",
        )
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command as a process; it is killed at the end of the block if it still runs."""
        with subprocess.Popen(
            self.world.command(*arguments),
            env=self.world.environment(),
            cwd=self.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()
                process.communicate(timeout=WITHIN)

    @contextmanager
    def opened(self) -> Iterator[App]:
        """The host of this world, to look behind the commands."""
        with App.open(environment=self.world.environment()) as app:
            yield app


@pytest.fixture
def world(tmp_path: Path) -> HostWorld:
    return make_world(tmp_path)


@pytest.fixture
def hostside(world: HostWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line in a configured world."""
    for name in list(os.environ):
        if name.startswith(("XDG_", "GIT_", "HOSTSIDE_")) or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    # For good, and of the whole test process: other tests read their own /proc.
    monkeypatch.setattr("hostside.app.host.make_undumpable", lambda: None)
    found = CommandLine(world, capsys)
    monkeypatch.chdir(found.project)
    return found


@pytest.fixture
def bare(hostside: CommandLine) -> CommandLine:
    """The command line without a configuration file."""
    hostside.world.config.unlink()
    return hostside


def keys_of(value: Any) -> Any:
    """The shape of a JSON value: keys, and the shape of the first item of a list."""
    if isinstance(value, dict):
        return {key: keys_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [keys_of(value[0])] if value else []
    return None
