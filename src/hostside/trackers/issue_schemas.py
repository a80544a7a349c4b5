"""The schemas of the bounded issue tools, one for all adapters: the same operation has the same shape on each tracker."""

from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.issue import Issue
from hostside.trackers.base import time_text

MAX_COMMENT_CHARACTERS = 30_000
MAX_COMMENTS = 100
DEFAULT_COMMENTS = 30
#: What one page of comments may take as compact JSON; the rest of the result's bound is for the frame around it (D22).
MAX_PAGE_BYTES = 36_000


def closed_object(properties: JsonObject, *, optional: tuple[str, ...] = (), description: str = "") -> JsonObject:
    """Return an object schema without other keys, all of them required but the `optional` ones."""
    schema: JsonObject = {"type": "object"}
    if description:
        schema["description"] = description
    required: list[JsonValue] = [name for name in properties if name not in optional]
    return {**schema, "properties": properties, "required": required, "additionalProperties": False}


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _text_or_null(description: str) -> JsonObject:
    return {"type": ["string", "null"], "description": description}


def _texts(description: str) -> JsonObject:
    return {"type": "array", "items": {"type": "string"}, "description": description}


NO_ARGUMENTS: JsonObject = closed_object({})

COMMENT: JsonObject = closed_object(
    {
        "id": _text("The comment's id, for an update."),
        "body": _text("The text, exactly as stored."),
        "author": _text_or_null("Who wrote it, as the tracker says; null when it does not say."),
        "created_at": _text_or_null("When it was written (ISO 8601, UTC), or null."),
        "editable": {"type": "boolean", "description": "True when this host wrote it, so that it can be updated."},
    },
    description="One comment of this run's issue.",
)

ISSUE: JsonObject = closed_object(
    {
        "id": _text("The tracker's own id."),
        "identifier": _text("The id that people use."),
        "title": _text("The title."),
        "description": _text_or_null("The body of the issue, or null."),
        "state": _text("The current state."),
        "priority": {"type": ["integer", "null"], "description": "Lower is more urgent; null when not set."},
        "labels": _texts("Labels in lower case."),
        "assignees": _texts("Who it is assigned to."),
        "branch_name": _text_or_null("The branch that the tracker suggests, or null."),
        "url": _text_or_null("Where people read it, or null."),
        "blocked_by": {
            "type": "array",
            "description": "Issues that block this one.",
            "items": closed_object(
                {
                    "id": _text_or_null("The blocker's id."),
                    "identifier": _text_or_null("The blocker's identifier."),
                    "state": _text_or_null("The blocker's state."),
                }
            ),
        },
        "created_at": _text_or_null("When it was made (ISO 8601, UTC), or null."),
        "updated_at": _text_or_null("When it last changed (ISO 8601, UTC), or null."),
    },
    description="This run's issue.",
)

_TRUNCATED: JsonObject = {"type": "boolean", "description": "True when a long text had to be cut, with a mark where."}
# Exactly this document: it marks an answer that the boundary replays (D23), and the registry compares it.
_UNCHANGED: JsonObject = {"type": "boolean"}

ISSUE_RESULT: JsonObject = closed_object({"issue": ISSUE, "truncated": _TRUNCATED})

COMMENTS_INPUT: JsonObject = closed_object(
    {
        "cursor": {
            "type": "string",
            "minLength": 1,
            "maxLength": 300,
            "description": "Where to go on: `next_cursor` of the page before. Leave it out for the first page.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_COMMENTS,
            "default": DEFAULT_COMMENTS,
            "description": "How many comments to return at most. A page of long comments ends earlier.",
        },
    },
    optional=("cursor", "limit"),
)
COMMENTS_RESULT: JsonObject = closed_object(
    {
        "comments": {"type": "array", "items": COMMENT, "description": "One page, oldest first."},
        "next_cursor": _text_or_null("The cursor of the next page; null on the last one."),
        "truncated": _TRUNCATED,
    }
)

_BODY: JsonObject = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_COMMENT_CHARACTERS,
    "description": "The text of the comment. It is stored exactly as sent.",
}
COMMENT_ADD_INPUT: JsonObject = closed_object({"body": _BODY})
COMMENT_UPDATE_INPUT: JsonObject = closed_object(
    {
        "comment_id": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "The id of a comment of this issue that is `editable`.",
        },
        "body": {**_BODY, "description": "The new text, which replaces the old one whole. Stored exactly as sent."},
    }
)
COMMENT_RESULT: JsonObject = closed_object({"comment": COMMENT, "unchanged": _UNCHANGED})

STATES_RESULT: JsonObject = closed_object(
    {
        "current": _text("The state that the issue is in now."),
        "states": _texts("Every state that it can be moved to, in the tracker's order."),
    }
)

MOVE_INPUT: JsonObject = closed_object(
    {
        "target_state": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "The name of the state to move to. Upper and lower case do not matter.",
        },
        "expected_state": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "Move only if the issue is in this state now; otherwise nothing is changed.",
        },
        "comment": {**_BODY, "description": "A comment to leave with the move. Stored exactly as sent."},
    },
    optional=("expected_state", "comment"),
)
MOVE_RESULT: JsonObject = closed_object(
    {
        "state": _text("The state that the issue is in now."),
        "previous_state": _text("The state that it was in before this call."),
        "comment": {**COMMENT, "type": ["object", "null"], "description": "The comment left with it, or null."},
        "unchanged": _UNCHANGED,
    }
)


def issue_object(issue: Issue) -> JsonObject:
    """Return an issue as `ISSUE` says. The adapter's own reference and the scheduler's flag stay with the host (R-084)."""
    return {
        "id": issue.id,
        "identifier": issue.identifier,
        "title": issue.title,
        "description": issue.description,
        "state": issue.state,
        "priority": issue.priority,
        "labels": list(issue.labels),
        "assignees": list(issue.assignees),
        "branch_name": issue.branch_name,
        "url": issue.url,
        "blocked_by": [
            {"id": blocker.id, "identifier": blocker.identifier, "state": blocker.state} for blocker in issue.blocked_by
        ],
        "created_at": time_text(issue.created_at),
        "updated_at": time_text(issue.updated_at),
    }
