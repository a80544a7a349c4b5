"""A whole host in a temporary folder: configuration, tracker file, repository; `hostside` runs in it as its own process."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from hostside.store.database import open_database
from hostside.store.queries import each_receipt
from hostside.store.recovery import open_calls
from tests.support.system_git import AUTHOR

STATES = ("Todo", "In Progress", "In Review", "Done")
GREETING = 'def greeting(name: str) -> str:\n    return f"Helo, {name}!"\n'
WITHIN = 120.0


@dataclass(frozen=True, slots=True)
class Finished:
    """One command's end."""

    exit_code: int
    out: str
    err: str

    def json(self) -> Any:
        """The object on standard output."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class HostWorld:
    """Folders of one host. Nothing of the real user's configuration or state is in reach."""

    folder: Path

    @property
    def tracker(self) -> Path:
        """The file tracker's file."""
        return self.folder / "issues.json"

    @property
    def state(self) -> Path:
        """The host's state folder."""
        return self.folder / "state" / "hostside"

    @property
    def origin(self) -> Path:
        """The bare repository."""
        return self.folder / "origin.git"

    @property
    def config(self) -> Path:
        """hostside.toml."""
        return self.folder / "config" / "hostside" / "hostside.toml"

    def receipts(self) -> list[dict[str, Any]]:
        """Every receipt, oldest first."""
        database = open_database(self.state / "hostside.db")
        try:
            return [dict(receipt) for receipt in each_receipt(database)]
        finally:
            database.close()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The facts of every event of this name, of all runs, oldest first."""
        return [
            json.loads(row[0])
            for row in self._rows("SELECT facts FROM run_events WHERE name = ? ORDER BY event_id", name)
        ]

    def open_calls(self) -> int:
        """How many calls were started and never ended."""
        database = open_database(self.state / "hostside.db")
        try:
            return len(open_calls(database))
        finally:
            database.close()

    def _rows(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.state / "hostside.db")
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def workspace(self, identifier: str) -> Path:
        """The checkout of an issue."""
        return self.folder / "workspaces" / identifier

    def issues(self) -> list[dict[str, Any]]:
        """What the tracker holds now."""
        found = json.loads(self.tracker.read_text(encoding="utf-8"))
        assert isinstance(found, list)
        return found

    def issue(self, identifier: str) -> dict[str, Any]:
        """One issue as the tracker holds it now."""
        return next(issue for issue in self.issues() if issue["identifier"] == identifier)

    def environment(self, extra: Mapping[str, str] = {}) -> dict[str, str]:
        """The host's whole environment."""
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.folder / "home"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "LANG": "C.UTF-8",
            **extra,
        }

    def configure(self, text: str) -> None:
        """Add lines to hostside.toml."""
        with self.config.open("a", encoding="utf-8") as file:
            file.write(text)

    def command(self, *arguments: str) -> list[str]:
        """The command line of `hostside`."""
        return [sys.executable, "-m", "hostside", *arguments]

    def run(self, *arguments: str, extra: Mapping[str, str] = {}, within: float = WITHIN) -> Finished:
        """Run `hostside` to its end."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    async def run_async(self, *arguments: str, extra: Mapping[str, str] = {}) -> Finished:
        """Run `hostside` to its end beside a scripted model of this event loop."""
        with anyio.fail_after(WITHIN):
            done = await anyio.run_process(
                self.command(*arguments), env=self.environment(extra), cwd=self.folder, check=False
            )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def git(folder: Path, *words: str) -> str:
    """Run the machine's git with no configuration but the repository's; return what it printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **AUTHOR}
    done = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def an_issue(identifier: str, **facts: Any) -> dict[str, Any]:
    """One record of the tracker's file."""
    return {
        "id": f"id-{identifier}",
        "identifier": identifier,
        "title": "Greeting is misspelled",
        "description": "It says Helo.",
        "state": "Todo",
        "labels": [],
        "comments": [],
        **facts,
    }


def make_world(folder: Path, *, identifiers: tuple[str, ...] = ("DEMO-1", "DEMO-2")) -> HostWorld:
    """Make a world in `folder`, which exists and is empty."""
    world = HostWorld(folder)
    for name in ("home", "state", "config/hostside"):
        (folder / name).mkdir(parents=True, mode=0o700)
    seed = folder / "seed"
    seed.mkdir()
    git(seed, "init", "--quiet", "--initial-branch=main")
    (seed / "greeting.py").write_text(GREETING, encoding="utf-8")
    git(seed, "add", "--all")
    git(seed, "commit", "--quiet", "--message", "Greeting")
    git(folder, "clone", "--quiet", "--bare", str(seed), str(world.origin))
    world.tracker.write_text(json.dumps([an_issue(identifier) for identifier in identifiers]), encoding="utf-8")
    states = ", ".join(json.dumps(state) for state in STATES)
    world.config.write_text(
        f'[trackers.main]\nkind = "file"\npath = "{world.tracker}"\nstates = [{states}]\n'
        f'[run]\nrepository = "{world.origin}"\nworkspaces = "{folder / "workspaces"}"\ntools = ["files", "git"]\n',
        encoding="utf-8",
    )
    return world
