"""The file tracker: issues in one JSON array on the host's disk (R-262..R-266). It needs no network and no secret."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from anyio.to_thread import run_sync

from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.issue import Issue
from hostside.core.spec import Tool
from hostside.errors import ToolFailed
from hostside.trackers.base import (
    MalformedRecord,
    invalid_config,
    keep_well_formed,
    same_state,
    tracker_response,
)
from hostside.trackers.file_issues import KIND, FileIssues, FileTrackerSettings
from hostside.trackers.file_profile import file_profile
from hostside.trackers.file_records import issue_of
from hostside.trackers.file_tools import file_tools
from hostside.trackers.profile import TrackerProfile

__all__ = ["FileTracker", "FileTrackerSettings"]
_log = logging.getLogger(__name__)


class FileTracker:
    """A TrackerAdapter over one file, which any number of processes may use at the same time.

    The file belongs to the host: call `refuse_inside` for each run's workspace before the run starts.
    """

    def __init__(
        self, settings: FileTrackerSettings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._settings = settings
        self._issues = FileIssues(settings, now)

    @property
    def kind(self) -> str:
        """`file`."""
        return KIND

    async def fetch_by_states(self, states: Iterable[str]) -> tuple[Issue, ...]:
        """Return the issues in these states, in the file's order. Entries that share an id are malformed."""
        wanted = tuple(states)
        if not wanted:
            return ()
        entries = await run_sync(self._issues.entries)
        uses = _uses(entries, "id")

        def normalize(entry: JsonValue) -> Issue:
            issue = issue_of(entry)
            if uses[issue.id] > 1:
                raise MalformedRecord("another entry has the same `id`")
            return issue

        found = keep_well_formed(KIND, entries, normalize)
        return tuple(issue for issue in found if any(same_state(issue.state, state) for state in wanted))

    async def fetch_by_ids(self, ids: Iterable[str]) -> tuple[Issue, ...]:
        """Return the issues with these ids; raise ToolFailed(tracker_response) for a malformed or ambiguous one."""
        wanted = tuple(dict.fromkeys(ids))
        if not wanted:
            return ()
        entries = await run_sync(self._issues.entries)
        found = (_one(entries, "id", issue_id) for issue_id in wanted)
        return tuple(issue for issue in found if issue is not None)

    async def fetch_by_identifier(self, identifier: str) -> Issue | None:
        """Return the issue with exactly this identifier, or None; raise as `fetch_by_ids`."""
        return _one(await run_sync(self._issues.entries), "identifier", identifier)

    async def fetch_comments(self, issue: Issue) -> tuple[JsonObject, ...]:
        """Return the issue's comments in the file's order."""
        return tuple(comment.as_object() for comment in await run_sync(self._issues.comments, issue.id))

    def tools(self) -> tuple[Tool, ...]:
        """Return the six `file_issue_*` tools."""
        return file_tools(self._issues)

    def secret_environment_names(self) -> frozenset[str]:
        """Return nothing: this tracker has no secret (R-266)."""
        return frozenset()

    def check_credential(self) -> None:
        """Return: there is no credential that could be missing."""

    def profile(self) -> TrackerProfile:
        """Return the facts of this adapter."""
        return file_profile(self.tools())

    def refuse_inside(self, workspace: Path) -> None:
        """Raise ConfigError(invalid_tracker_config) when the agent of this workspace could reach the file (R-265).

        The path as configured and the path behind its links are both looked at: a link inside the workspace is the
        agent's to turn.
        """
        root = workspace.resolve()
        places = (self._settings.path, self._issues.path, self._issues.path.resolve())
        if any(place.is_relative_to(base) for place in places for base in (root, workspace)):
            raise invalid_config(
                KIND,
                "the tracker file lies inside the run's workspace, where the agent could write it",
                remedy="Move the file, or the workspaces, elsewhere.",
            )


def _uses(entries: Iterable[JsonValue], field: str) -> Counter[JsonValue]:
    values = (entry.get(field) for entry in entries if isinstance(entry, dict))
    return Counter(value for value in values if isinstance(value, str))


def _one(entries: Iterable[JsonValue], field: str, value: str) -> Issue | None:
    found = [entry for entry in entries if isinstance(entry, dict) and entry.get(field) == value]
    if not found:
        return None
    if len(found) > 1:
        raise _unusable(f"more than one entry has this `{field}`")
    try:
        return issue_of(found[0])
    except MalformedRecord as malformed:
        raise _unusable(str(malformed)) from None


def _unusable(reason: str) -> ToolFailed:
    _log.warning("%s tracker: a requested issue is unusable: %s", KIND, reason)
    return tracker_response(f"The requested issue is malformed in the tracker file: {reason}.")
