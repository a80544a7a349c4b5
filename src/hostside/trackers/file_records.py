"""One issue object of the tracker file, read: the normalized issue, its comments, and the proof that a comment is ours."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, encode
from hostside.core.issue import Blocker, Issue, NativeRef
from hostside.trackers.base import (
    MalformedRecord,
    normalized_labels,
    optional_text,
    parsed_time,
    priority_of,
    required_text,
)

_MARK_CHARACTERS = 32


def issue_of(record: JsonValue) -> Issue:
    """Return the normalized issue of one entry; raise MalformedRecord (R-226, R-262).

    `dispatchable` left out is true; `native_ref` left out or null is `{"itemId": id}`, else it is kept as it is (R-263).
    Optional fields of another type count as not given.
    """
    if not isinstance(record, dict):
        raise MalformedRecord("it is not an object")
    dispatchable = record.get("dispatchable", True)
    if not isinstance(dispatchable, bool):
        raise MalformedRecord("`dispatchable` is neither true nor false")
    native_ref = record.get("native_ref")
    if native_ref is None:
        native_ref = {"itemId": required_text(record, "id")}
    if not isinstance(native_ref, dict):
        raise MalformedRecord("`native_ref` is not an object")
    try:
        reference = NativeRef(native_ref)
    except JsonRejected as rejected:
        raise MalformedRecord(f"`native_ref` has {rejected.reason}") from None
    return Issue(
        id=required_text(record, "id"),
        identifier=required_text(record, "identifier"),
        title=required_text(record, "title"),
        state=required_text(record, "state").strip(),
        dispatchable=dispatchable,
        description=optional_text(record.get("description")),
        priority=priority_of(record.get("priority")),
        labels=normalized_labels(record.get("labels")),
        branch_name=optional_text(record.get("branch_name")),
        url=optional_text(record.get("url")),
        assignees=_names(record.get("assignees")),
        blocked_by=_blockers(record.get("blocked_by")),
        created_at=parsed_time(record.get("created_at")),
        updated_at=parsed_time(record.get("updated_at")),
        native_ref=reference,
    )


def _names(values: JsonValue) -> tuple[str, ...]:
    found = values if isinstance(values, list) else []
    return tuple(dict.fromkeys(value for value in found if isinstance(value, str) and value.strip()))


def _blockers(values: JsonValue) -> tuple[Blocker, ...]:
    found = values if isinstance(values, list) else []
    return tuple(
        Blocker(
            id=optional_text(value.get("id")),
            identifier=optional_text(value.get("identifier")),
            state=optional_text(value.get("state")),
        )
        for value in found
        if isinstance(value, dict)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """One comment. `editable`: this host wrote it, proven by its key. `position` is its place in the issue's array."""

    id: str
    body: str
    author: str | None
    created_at: str | None
    editable: bool
    position: int

    def as_object(self) -> JsonObject:
        """Return the comment as agents see it: the key and the position stay with the host."""
        return {
            "id": self.id,
            "body": self.body,
            "author": self.author,
            "created_at": self.created_at,
            "editable": self.editable,
        }


class Authorship:
    """Makes and checks the keys of comments that this host wrote (D13).

    A key is `MARK.PROOF`. The mark is an HMAC of the operation, so that a repeat of it finds its comment; the proof is
    an HMAC of issue, comment, author and mark, so that neither a copied key nor a borrowed author name is believed.
    """

    def __init__(self, author: str, key: bytes) -> None:
        self.author = author
        self._key = key

    def mark(self, issue_id: str, operation_id: str) -> str:
        """Return the mark of one operation on one issue."""
        return self._mac(["operation", issue_id, operation_id])

    def comment_key(self, issue_id: str, comment_id: str, mark: str) -> str:
        """Return the key to store with a new comment."""
        return f"{mark}.{self._mac(['comment', issue_id, comment_id, self.author, mark])}"

    def proven_mark(self, issue_id: str, record: Mapping[str, JsonValue]) -> str | None:
        """Return the mark of a comment that this host wrote, or None for everyone else's."""
        key, comment_id = record.get("key"), record.get("id")
        if record.get("author") != self.author or not isinstance(key, str) or not isinstance(comment_id, str):
            return None
        mark, dot, _ = key.partition(".")
        genuine = self.comment_key(issue_id, comment_id, mark)
        return mark if dot and hmac.compare_digest(genuine.encode(), key.encode()) else None

    def _mac(self, parts: list[JsonValue]) -> str:
        return hmac.new(self._key, encode(parts).encode(), sha256).hexdigest()[:_MARK_CHARACTERS]


def comment_of(issue_id: str, record: JsonValue, position: int, authorship: Authorship) -> Comment:
    """Return one comment of an issue; raise MalformedRecord when it has no id or no body."""
    if not isinstance(record, dict):
        raise MalformedRecord("it is not an object")
    body = record.get("body")
    if not isinstance(body, str):
        raise MalformedRecord("`body` is not text")
    return Comment(
        id=required_text(record, "id"),
        body=body,
        author=optional_text(record.get("author")),
        created_at=optional_text(record.get("created_at")),
        editable=authorship.proven_mark(issue_id, record) is not None,
        position=position,
    )
