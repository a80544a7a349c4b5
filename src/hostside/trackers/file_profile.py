"""The facts of the file tracker, from which its reference page is generated (R-232, R-240)."""

from collections.abc import Iterable

from hostside.core.spec import Tool
from hostside.trackers.file_document import MAX_FILE_BYTES
from hostside.trackers.file_issues import KIND, MINIMUM_KEY_BYTES
from hostside.trackers.file_tools import NO_RATE_LIMIT
from hostside.trackers.issue_schemas import DEFAULT_COMMENTS, MAX_COMMENT_CHARACTERS, MAX_COMMENTS
from hostside.trackers.profile import ErrorFact, SettingFact, ToolProfile, TrackerProfile

_READS = "Read permission on the file, for the host's user."
_WRITES = "Read and write permission on the file and on its folder, for the host's user."
_READ_ERRORS = ("outside_issue", "tool_failed", "tracker_request", "tracker_response")
_WRITE_ERRORS = (*_READ_ERRORS, "effect_unknown")
_AGAIN = "Reads nothing but the file; may be repeated."

#: Name -> (results, errors beyond the common ones, idempotency).
_TOOLS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "file_issue_get": ("The normalized issue.", (), _AGAIN),
    "file_issue_comments": ("One page of comments and the cursor of the next.", ("tracker_pagination",), _AGAIN),
    "file_issue_comment_add": (
        "The comment, and whether it was there before.",
        (),
        "The same body in the same run is added once: by the journal within a session, by the comment's key after a crash.",
    ),
    "file_issue_comment_update": (
        "The comment as it is now, read back.",
        (),
        "The same text again changes nothing (`unchanged`).",
    ),
    "file_issue_states": ("The configured states, and the current one.", (), _AGAIN),
    "file_issue_move": (
        "The state now and before, read back, and the comment left with it.",
        ("precondition_failed",),
        "A move to the current state changes nothing (`unchanged`); its comment is left once in a run.",
    ),
}


def file_profile(tools: Iterable[Tool]) -> TrackerProfile:
    """Return the profile, with the schemas and safety facts of these tools."""
    return TrackerProfile(
        kind=KIND,
        settings=(
            SettingFact(key="path", meaning="Absolute path of the JSON file, outside every workspace.", default=None),
            SettingFact(key="states", meaning="Every state by name, in the order to show.", default=None),
            SettingFact(key="author", meaning="The name under which the host comments.", default="hostside"),
            SettingFact(key="lock_seconds", meaning="Longest wait for another process, in seconds.", default="5"),
        ),
        secrets=(),
        validation_errors=(
            ErrorFact(code="invalid_tracker_config", when="`path` is not absolute or names no file"),
            ErrorFact(code="invalid_tracker_config", when="`states` is empty, has a blank name, or one state twice"),
            ErrorFact(code="invalid_tracker_config", when="`author` is blank, or `lock_seconds` not above 0 up to 30"),
            ErrorFact(code="invalid_tracker_config", when=f"the host's key has fewer than {MINIMUM_KEY_BYTES} bytes"),
            ErrorFact(code="invalid_tracker_config", when="the file lies inside a run's workspace"),
        ),
        scope="One file. A tool acts on the run's own issue only; a missing file has no issues.",
        paging=f"Comments: {DEFAULT_COMMENTS} a page, at most {MAX_COMMENTS}. The file itself is read whole.",
        limits=(
            f"The file: {MAX_FILE_BYTES} bytes.",
            f"A comment: {MAX_COMMENT_CHARACTERS} characters.",
            "The wait for another process: `lock_seconds`.",
        ),
        ids="The dispatch id is the entry's `id`, `identifier` its own field; both must be unique in the file.",
        native_ref='The entry\'s `native_ref` as it is; `{"itemId": id}` where there is none.',
        normalization={
            "id": "`id`, non-blank text as spelled",
            "identifier": "`identifier`, non-blank text as spelled",
            "title": "`title`, non-blank text as spelled",
            "state": "`state`, non-blank text, trimmed; compared trimmed and in lower case",
            "dispatchable": "`dispatchable`, true where it is left out; anything but true or false is malformed",
            "description": "`description`, text or null",
            "priority": "`priority`, an integer or null",
            "labels": "`labels`, trimmed, in lower case, each once",
            "branch_name": "`branch_name`, text or null",
            "url": "`url`, text or null",
            "assignees": "`assignees`, texts, each once",
            "blocked_by": "`blocked_by`, objects with `id`, `identifier` and `state`, each text or null",
            "created_at": "`created_at`, an ISO 8601 time with an offset, or null",
            "updated_at": "`updated_at`, an ISO 8601 time with an offset, or null; set by every write",
            "native_ref": "`native_ref`, an object; any other type but null is malformed",
        },
        tools=tuple(_tool_profile(tool) for tool in tools),
        errors=(
            ErrorFact(code="tracker_request", when="the file cannot be read, written or locked within `lock_seconds`"),
            ErrorFact(code="tracker_status", when="never: there is no provider"),
            ErrorFact(code="tracker_response", when="no JSON, no array, too large, or a requested entry is malformed"),
            ErrorFact(code="tracker_pagination", when="a cursor does not fit the comments as they are now"),
            ErrorFact(code="tracker_rate_limited", when="never: there is no limit"),
            ErrorFact(code="missing_tracker_secret", when="never: there is no secret"),
            ErrorFact(code="precondition_failed", when="an unknown target state, or not in the expected state"),
            ErrorFact(code="outside_issue", when="no issue in the session, or a comment that is not this run's"),
            ErrorFact(code="tool_failed", when="the issue is no longer in the file"),
            ErrorFact(code="effect_unknown", when="the disk did not confirm a write, or it was not found afterwards"),
        ),
    )


def _tool_profile(tool: Tool) -> ToolProfile:
    results, more, idempotency = _TOOLS[tool.spec.name]
    reads = tool.spec.read_only
    return ToolProfile.of(
        tool,
        scope="The run's own issue.",
        results=results,
        errors=(*(_READ_ERRORS if reads else _WRITE_ERRORS), *more),
        idempotency=idempotency,
        rate_limits=NO_RATE_LIMIT,
        permission=_READS if reads else _WRITES,
    )
