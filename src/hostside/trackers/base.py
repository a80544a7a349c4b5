"""What every tracker adapter offers the host, and the words all of them share (R-224..R-240).

An adapter reads issues for the host and makes the bounded tools of one run's issue. No tool takes an issue, project or
repository as an argument: what a call acts on comes from `CallContext` (D13). `tracker_*` failures follow Symphony §11.4.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from hostside.core.call import CallContext
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.issue import Issue
from hostside.core.scope import Target, issue_target
from hostside.core.spec import TargetContext, Tool
from hostside.errors import ConfigError, Effect, FailureCode, ToolFailed, ToolRefused
from hostside.trackers.profile import TrackerProfile

_log = logging.getLogger(__name__)
_Record = TypeVar("_Record")


class TrackerAdapter(Protocol):
    """One tracker, bound to one project and one credential. Safe to share between the sessions of a host."""

    @property
    def kind(self) -> str:
        """The `tracker.kind` of configuration: `file`, `github-project`, `linear` or `gitea`."""

    async def fetch_by_states(self, states: Iterable[str]) -> tuple[Issue, ...]:
        """Return every visible issue whose state is one of `states` (`same_state`), in the tracker's order.

        No states: empty, and the provider is not asked. A malformed record is dropped with a log line; a failed page or
        request fails the whole read with ToolFailed(tracker_*), never with a partial answer.
        """

    async def fetch_by_ids(self, ids: Iterable[str]) -> tuple[Issue, ...]:
        """Return the issues with these dispatch ids, in the order asked, each once; ids no longer visible are left out.

        No ids: empty, and the provider is not asked. A malformed record that was asked for raises
        ToolFailed(tracker_response).
        """

    async def fetch_by_identifier(self, identifier: str) -> Issue | None:
        """Return the one issue with this identifier, exactly as spelled, or None. Raises as `fetch_by_ids`."""

    async def fetch_comments(self, issue: Issue) -> tuple[JsonObject, ...]:
        """Return every comment of an issue, oldest first: `id`, `body`, `author`, `created_at`. Raises as `fetch_by_ids`."""

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools of this adapter. They hold no issue: each call carries its own."""

    def secret_environment_names(self) -> frozenset[str]:
        """Return the environment names that a child process must not inherit, indirections included (R-227)."""

    def check_credential(self) -> None:
        """Return when a credential is configured; raise ToolRefused(missing_tracker_secret) with a remedy, not its value."""

    def profile(self) -> TrackerProfile:
        """Return the facts of R-232, from which the adapter's page is generated."""


class MalformedRecord(ValueError):
    """A provider's record that cannot become an Issue. The text names the field, never a value of another issue."""


# --- The issue of a call ---------------------------------------------------------------------------------------------


def issue_targets(_arguments: Mapping[str, JsonValue], context: TargetContext) -> Iterable[Target]:
    """`targets_of` of every tracker tool: the session's own issue, whatever the arguments say (R-079, R-085)."""
    return issue_target(context.issue)


def bound_issue(context: CallContext) -> Issue:
    """Return the issue that this call was narrowed to, or raise ToolRefused(outside_issue)."""
    if context.issue is None or context.scope.issue_id != context.issue.id:
        raise outside_issue("This session is not bound to this issue.", remedy="Use this tool in a run on an issue.")
    return context.issue


def outside_issue(message: str, *, remedy: str) -> ToolRefused:
    """Return the refusal of something that is not this run's."""
    return ToolRefused(FailureCode.OUTSIDE_ISSUE, message, remedy=remedy)


def foreign_comment(comment_id: str, *, list_tool: str) -> ToolRefused:
    """Return the one refusal of a comment elsewhere and of one that does not exist, so that neither is told apart."""
    return outside_issue(
        f"Comment {comment_id[:100]} does not belong to this run's issue.",
        remedy=f"Use {list_tool} to list this issue's comments.",
    )


def not_our_comment(comment_id: str, *, list_tool: str) -> ToolRefused:
    """Return the refusal to change a comment of this run's issue that someone else wrote."""
    return outside_issue(
        f"Comment {comment_id[:100]} was not written through this host, so it is not this run's to change.",
        remedy=f"Add a comment of your own, or change one that {list_tool} shows as editable.",
    )


# --- Normalization (Symphony §4.1.1, R-226) --------------------------------------------------------------------------


def required_text(record: Mapping[str, JsonValue], field: str) -> str:
    """Return a field that every issue needs, as spelled; raise MalformedRecord when it is no text or blank."""
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        raise MalformedRecord(f"`{field}` is missing, blank or not text")
    return value


def optional_text(value: object) -> str | None:
    """Return text as it is; blank or any other type is None."""
    return value if isinstance(value, str) and value.strip() else None


def normalized_labels(values: object) -> tuple[str, ...]:
    """Return labels trimmed, in lower case, each once, in order; whatever is not text is left out."""
    if not isinstance(values, list | tuple):
        return ()
    labels = (value.strip().lower() for value in values if isinstance(value, str))
    return tuple(dict.fromkeys(label for label in labels if label))


def parsed_time(value: object) -> datetime | None:
    """Return an ISO 8601 time in UTC; None for anything else, a time without an offset included."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value.strip())
        return None if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def time_text(time: datetime | None) -> str | None:
    """Return a time as agents see it: `2026-01-31T12:00:00.000Z`, or None."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def priority_of(value: object) -> int | None:
    """Return an integer (`2.0` is one, D1); None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def same_state(one: str, other: str) -> bool:
    """Compare two state names as Symphony §4.2 does: trimmed and in lower case."""
    return one.strip().lower() == other.strip().lower()


def resolve_state(name: str, states: Iterable[str]) -> str | None:
    """Return the tracker's own spelling of a state, or None when it has no such state."""
    return next((state for state in states if same_state(state, name)), None)


def keep_well_formed(kind: str, records: Iterable[_Record], normalize: Callable[[_Record], Issue]) -> tuple[Issue, ...]:
    """Return the issues of a listing; a malformed record is dropped with a log line (R-225)."""
    issues: list[Issue] = []
    for position, record in enumerate(records):
        try:
            issues.append(normalize(record))
        except MalformedRecord as malformed:
            _log.warning("%s tracker: record %d skipped: %s", kind, position, malformed)
    return tuple(issues)


# --- Errors (Symphony §11.4, R-231) ----------------------------------------------------------------------------------


def invalid_config(kind: str, message: str, *, remedy: str) -> ConfigError:
    """Return the start-up error of settings that an adapter cannot work with."""
    return ConfigError("invalid_tracker_config", f"{kind} tracker: {message}", remedy=remedy)


def required_secret(value: str | None, *, kind: str, setting: str, names: Iterable[str] = ()) -> str:
    """Return a resolved secret; raise ToolRefused(missing_tracker_secret) when it is absent or blank (R-229, R-230)."""
    if value is not None and value.strip():
        return value
    known = ", ".join(sorted(names))
    where = f" The setting names {known}, which is empty or not set." if known else ""
    raise ToolRefused(
        FailureCode.MISSING_TRACKER_SECRET,
        f"The {kind} tracker has no credential.{where}",
        remedy=f"An operator has to give `{setting}` in hostside.toml a reference to a secret that is set.",
    )


def tracker_request(message: str, *, remedy: str = "", effect: Effect = Effect.NONE) -> ToolFailed:
    """Return the failure of a request that got no answer: no connection, a local file that cannot be read."""
    advice = remedy or "Continue with work that needs no tracker, and try again later."
    return ToolFailed(FailureCode.TRACKER_REQUEST, message, remedy=advice, effect=effect)


def tracker_status(provider: str, status: int, *, remedy: str = "", effect: Effect = Effect.NONE) -> ToolFailed:
    """Return the failure of an answer with an HTTP status that is not a success. Its body is not repeated."""
    refused = status in (401, 403)
    advice = remedy or (
        "An operator has to check the credential and its permissions." if refused else "Try again later."
    )
    message = f"{provider} answered with HTTP status {status}."
    return ToolFailed(
        FailureCode.TRACKER_STATUS, message, remedy=advice, effect=effect, details=[{"http_status": status}]
    )


def tracker_response(message: str, *, remedy: str = "", effect: Effect = Effect.NONE) -> ToolFailed:
    """Return the failure of an answer that is not what the provider's contract says: bad JSON, errors, a wrong shape."""
    advice = remedy or "This needs an operator: the tracker's answer was not understood."
    return ToolFailed(FailureCode.TRACKER_RESPONSE, message, remedy=advice, effect=effect)


def tracker_pagination(message: str, *, remedy: str = "") -> ToolFailed:
    """Return the failure of a list that cannot be continued: a lost or unknown cursor, a page too many."""
    advice = remedy or "Start again without a cursor."
    return ToolFailed(FailureCode.TRACKER_PAGINATION, message, remedy=advice, effect=Effect.NONE)


def tracker_rate_limited(provider: str, retry_after_ms: int | None, *, effect: Effect = Effect.NONE) -> ToolFailed:
    """Return the failure of the provider's own limit. `retry_after_ms` is None when it did not say how long."""
    wait = "later" if retry_after_ms is None else f"after {-(-retry_after_ms // 1000)} s"
    return ToolFailed(
        FailureCode.TRACKER_RATE_LIMITED,
        f"{provider}'s limit for this credential is used up.",
        remedy=f"Continue with work that needs no tracker; try again {wait}.",
        effect=effect,
        retry_after_ms=retry_after_ms,
    )


def lost_answer(what: str, *, remedy: str) -> ToolFailed:
    """Return the failure of a write whose answer was lost and could not be settled; it is not sent again (R-238)."""
    message = f"The answer to this {what} was lost. It was looked for and not found; it may still appear."
    return ToolFailed(FailureCode.EFFECT_UNKNOWN, message, remedy=remedy, effect=Effect.UNKNOWN)


def issue_gone(tracker: str) -> ToolFailed:
    """Return the failure of a call whose issue the tracker no longer shows."""
    return ToolFailed(
        FailureCode.TOOL_FAILED,
        f"This run's issue is no longer in the {tracker}.",
        remedy="Nothing can be read or written here any more: end the turn and say so.",
        effect=Effect.NONE,
    )


def unknown_state(target: str, states: Iterable[str]) -> ToolFailed:
    """Return the failure of a move to a state that the tracker does not have, listing those that it has."""
    valid = list(states)
    return ToolFailed(
        FailureCode.PRECONDITION_FAILED,
        f"There is no state {target[:100]!r} here.",
        remedy=f"Use one of: {', '.join(valid)}.",
        effect=Effect.NONE,
        details=[{"states": valid}],
    )


def unexpected_state(expected: str, seen: str) -> ToolFailed:
    """Return the failure of a move whose issue was not in the expected state, with the state that was seen (R-236)."""
    return ToolFailed(
        FailureCode.PRECONDITION_FAILED,
        f"The issue is in {seen!r}, not in {expected[:100]!r}. Nothing was changed.",
        remedy="Read the issue and decide again; leave expected_state out to move it from any state.",
        effect=Effect.NONE,
        details=[{"expected_state": expected[:100], "state": seen}],
    )
