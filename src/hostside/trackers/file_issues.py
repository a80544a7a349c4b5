"""The operations on one issue of the tracker file, each one locked read-compare-write (R-236, R-265). All methods block."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.issue import Issue
from hostside.errors import ToolFailed
from hostside.trackers.base import (
    MalformedRecord,
    foreign_comment,
    invalid_config,
    issue_gone,
    not_our_comment,
    resolve_state,
    same_state,
    time_text,
    tracker_response,
    unexpected_state,
    unknown_state,
)
from hostside.trackers.file_document import Document, locked, read_document, replace_file
from hostside.trackers.file_records import Authorship, Comment, comment_of, issue_of

KIND = "file"
LIST_TOOL = "file_issue_comments"
MINIMUM_KEY_BYTES = 32
_MAX_ID_DIGITS = 15
_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTrackerSettings:
    """Where the issues are, and which states they can have. Raises ConfigError(invalid_tracker_config).

    `path` is absolute; `states` are in the order to show; `key` is the host's own secret of at least 32 bytes, which
    proves who wrote a comment; `author` is the name under which the host comments; `lock_seconds` bounds the wait for
    another process.
    """

    path: Path
    states: tuple[str, ...]
    key: bytes = field(repr=False)
    author: str = "hostside"
    lock_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not self.path.is_absolute() or not self.path.name:
            raise invalid_config(KIND, "`path` is not an absolute path of a file", remedy="Give the full path.")
        if not self.states or not all(state.strip() for state in self.states):
            raise invalid_config(KIND, "`states` is empty or has a blank name", remedy="List every state by name.")
        if len({state.strip().lower() for state in self.states}) != len(self.states):
            raise invalid_config(KIND, "`states` names one state twice", remedy="List each state once.")
        if not self.author.strip():
            raise invalid_config(KIND, "`author` is blank", remedy="Leave it out, or name the host.")
        if len(self.key) < MINIMUM_KEY_BYTES:
            raise invalid_config(
                KIND, "the host's key is too short", remedy=f"It has {MINIMUM_KEY_BYTES} bytes or more."
            )
        if not 0 < self.lock_seconds <= 30:
            raise invalid_config(KIND, "`lock_seconds` is out of range", remedy="It is above 0 and at most 30.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A comment that is there now. `unchanged`: it was there before this call."""

    comment: Comment
    unchanged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Where an issue is now. `unchanged`: this call wrote nothing."""

    state: str
    previous_state: str
    comment: Comment | None
    unchanged: bool


@dataclass(slots=True)
class _Draft:
    """One entry under the lock: a private copy to edit, and what was read with it."""

    issue: Issue
    record: JsonObject
    index: int
    document: Document
    dirty: bool = False

    @property
    def comments(self) -> list[JsonValue]:
        """The raw comments, made where there are none; raises ToolFailed(tracker_response) when they are no array."""
        found = self.record.get("comments")
        if found is None:
            found = self.record["comments"] = []
        if not isinstance(found, list):
            raise _bad_comments()
        return found


class FileIssues:
    """Issues of one file, by dispatch id. `now` returns an aware time."""

    def __init__(self, settings: FileTrackerSettings, now: Callable[[], datetime]) -> None:
        # The folder is resolved once: a link on the way that changes later leads nowhere else.
        self.path = settings.path.parent.resolve() / settings.path.name
        self.states = settings.states
        self._settings = settings
        self._authorship = Authorship(settings.author, settings.key)
        self._now = now

    def entries(self) -> tuple[JsonValue, ...]:
        """Return every entry, well-formed or not. Raises ToolFailed(tracker_request or tracker_response)."""
        return read_document(self.path).entries

    def read(self, issue_id: str) -> Issue:
        """Return one issue as it is now."""
        return self._draft(issue_id).issue

    def comments(self, issue_id: str) -> tuple[Comment, ...]:
        """Return the issue's well-formed comments in order; the others are skipped with a log line."""
        return self._comments(self._draft(issue_id))

    def add_comment(self, issue_id: str, body: str, operation_id: str) -> Written:
        """Add a comment, or return the one that this operation added before (D23: look before create)."""
        return self._change(issue_id, lambda draft: self._ensure_comment(draft, body, operation_id))

    def update_comment(self, issue_id: str, comment_id: str, body: str) -> Written:
        """Replace the body of a comment that this host wrote on this issue; raise ToolRefused(outside_issue) for others."""

        def edit(draft: _Draft) -> Written:
            here = [comment for comment in self._comments(draft) if comment.id == comment_id]
            if not here:
                raise foreign_comment(comment_id, list_tool=LIST_TOOL)
            own = [comment for comment in here if comment.editable]
            if not own:
                raise not_our_comment(comment_id, list_tool=LIST_TOOL)
            comment = own[0]
            if comment.body == body:
                return Written(comment=comment, unchanged=True)
            record = draft.comments[comment.position]
            assert isinstance(record, dict)
            record["body"] = body
            draft.dirty = True
            return Written(comment=replace(comment, body=body), unchanged=False)

        return self._change(issue_id, edit)

    def move(
        self, issue_id: str, target: str, *, expected: str | None, comment: str | None, operation_id: str
    ) -> Moved:
        """Set the state, with a comment in the same write.

        Raises ToolFailed(precondition_failed) for an unknown target, and for an issue that is not in `expected`; then
        nothing is written.
        """
        state = resolve_state(target, self.states)
        if state is None:
            raise unknown_state(target, self.states)

        def edit(draft: _Draft) -> Moved:
            seen = draft.issue.state
            if expected is not None and not same_state(expected, seen):
                raise unexpected_state(expected, seen)
            if not same_state(state, seen):
                draft.record["state"] = state
                draft.dirty = True
            left = None if comment is None else self._ensure_comment(draft, comment, operation_id).comment
            now = seen if same_state(state, seen) else state
            return Moved(state=now, previous_state=seen, comment=left, unchanged=not draft.dirty)

        return self._change(issue_id, edit)

    def _draft(self, issue_id: str) -> _Draft:
        document = read_document(self.path)
        found = [index for index, entry in enumerate(document.entries) if _has_id(entry, issue_id)]
        if not found:
            raise issue_gone("tracker file")
        if len(found) > 1:
            raise tracker_response("The tracker file holds this run's issue more than once.")
        record = copy.deepcopy(document.entries[found[0]])
        assert isinstance(record, dict)
        try:
            return _Draft(issue_of(record), record, found[0], document)
        except MalformedRecord as malformed:
            raise tracker_response(f"This run's issue is malformed in the tracker file: {malformed}.") from None

    def _change(self, issue_id: str, edit: Callable[[_Draft], _Answer]) -> _Answer:
        with locked(self.path, self._settings.lock_seconds):
            draft = self._draft(issue_id)
            answer = edit(draft)
            if draft.dirty:
                draft.record["updated_at"] = time_text(self._now())
                replace_file(self.path, draft.document.with_entry(draft.index, draft.record))
            return answer

    def _ensure_comment(self, draft: _Draft, body: str, operation_id: str) -> Written:
        issue_id, authorship = draft.issue.id, self._authorship
        mark = authorship.mark(issue_id, operation_id)
        for comment in self._comments(draft):
            record = draft.comments[comment.position]
            if isinstance(record, dict) and authorship.proven_mark(issue_id, record) == mark:
                return Written(comment=comment, unchanged=True)
        comment_id = _next_comment_id(draft.document)
        record = {
            "id": comment_id,
            "body": body,
            "author": authorship.author,
            "created_at": time_text(self._now()),
            "key": authorship.comment_key(issue_id, comment_id, mark),
        }
        draft.comments.append(record)
        draft.dirty = True
        return Written(comment=comment_of(issue_id, record, len(draft.comments) - 1, authorship), unchanged=False)

    def _comments(self, draft: _Draft) -> tuple[Comment, ...]:
        found = draft.record.get("comments")
        if found is not None and not isinstance(found, list):
            raise _bad_comments()
        comments: list[Comment] = []
        for position, record in enumerate(found or []):
            try:
                comments.append(comment_of(draft.issue.id, record, position, self._authorship))
            except MalformedRecord as malformed:
                _log.warning("file tracker: comment %d of %s skipped: %s", position, draft.issue.identifier, malformed)
        return tuple(comments)


def _has_id(entry: JsonValue, issue_id: str) -> bool:
    return isinstance(entry, dict) and entry.get("id") == issue_id


def _bad_comments() -> ToolFailed:
    return tracker_response("The comments of this run's issue are malformed in the tracker file.")


def _next_comment_id(document: Document) -> str:
    """Return the next free number of the whole file, so that an id means one comment everywhere."""
    highest = 0
    for entry in document.entries:
        comments = entry.get("comments") if isinstance(entry, dict) else None
        for comment in comments if isinstance(comments, list) else ():
            number = comment.get("id") if isinstance(comment, dict) else None
            if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) <= _MAX_ID_DIGITS:
                highest = max(highest, int(number))
    return str(highest + 1)
