"""A tracker file in a folder of its own, and the adapter over it."""

import json
from pathlib import Path
from typing import Any

from hostside.trackers.file import FileTracker, FileTrackerSettings
from hostside.trackers.file_issues import FileIssues
from tests.trackers.contract import Seed

KEY = bytes(range(32))
STATES = ("Todo", "In Progress", "Done")


def settings_for(path: Path, **changes: Any) -> FileTrackerSettings:
    """Return settings with the three states and a fixed key."""
    return FileTrackerSettings(**{"path": path, "states": STATES, "key": KEY, **changes})


def issue_record(identifier: str = "DEMO-1", **fields: Any) -> dict[str, Any]:
    """Return a well-formed entry with the id `id-<identifier>`."""
    record = {"id": f"id-{identifier}", "identifier": identifier, "title": "Greeting is misspelled", "state": "Todo"}
    return {**record, **fields}


class FileWorld:
    """The `World` of the contract suite over one file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.path = folder / "issues.json"
        self.settings = settings_for(self.path, **settings)
        self.adapter = FileTracker(self.settings)
        self.states = STATES
        self.secrets: tuple[str, ...] = (KEY.hex(), str(folder))

    def tool(self, operation: str) -> str:
        """Return `file_issue_<operation>`."""
        return f"file_issue_{operation}"

    def write(self, entries: object) -> None:
        """Write the file as an operator would."""
        self.path.write_text(json.dumps(entries, indent=2, ensure_ascii=False), encoding="utf-8")

    def entries(self) -> list[Any]:
        """Return the file's entries."""
        found: list[Any] = json.loads(self.path.read_bytes())
        return found

    def entry(self, identifier: str) -> dict[str, Any]:
        """Return one well-formed entry."""
        (found,) = [one for one in self.entries() if isinstance(one, dict) and one.get("identifier") == identifier]
        assert isinstance(found, dict)
        return found

    def change(self, identifier: str, **fields: Any) -> None:
        """Change fields of one entry behind the adapter's back."""
        entries = self.entries()
        for entry in entries:
            if isinstance(entry, dict) and entry.get("identifier") == identifier:
                entry.update(fields)
        self.write(entries)

    def seed(self, *seeds: Seed) -> None:
        """Write these issues."""
        self.write(
            [
                issue_record(
                    seed.identifier,
                    title=seed.title,
                    state=seed.state,
                    description=seed.description,
                    labels=list(seed.labels),
                    created_at=seed.created_at,
                )
                for seed in seeds
            ]
        )

    def spoil(self, identifier: str) -> None:
        """Take the title away."""
        self.change(identifier, title=None)

    def fail_requests(self) -> None:
        """Put a folder where the file was."""
        self.path.unlink(missing_ok=True)
        self.path.mkdir()

    def comment_as_someone_else(self, identifier: str, body: str) -> str:
        """Add a comment under the host's author name, with a key that looks like one."""
        forged = {"id": "77", "body": body, "author": self.settings.author, "key": f"{'0' * 32}.{'0' * 32}"}
        self.change(identifier, comments=[*self.entry(identifier).get("comments", []), forged])
        return "77"

    def bodies(self, identifier: str) -> list[str]:
        """Return the bodies on disk."""
        return [comment["body"] for comment in self.entry(identifier).get("comments", [])]

    def state_of(self, identifier: str) -> str:
        """Return the state on disk."""
        return str(self.entry(identifier)["state"])


def issues_at(path: Path, **changes: Any) -> FileIssues:
    """Return the blocking operations over a file, for tests of what happens below the tools."""
    tracker = FileTracker(settings_for(path, **changes))
    return tracker._issues
