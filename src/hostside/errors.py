"""The exception tree, and the closed list of failure codes.

HostsideError
├── ConfigError          start-up only: nothing runs, the message names the remedy
├── RegistrationError    a tool that may not enter the registry
├── ToolRefused          before any work: nothing was done
└── ToolFailed           after work began: `effect` says what is known

The codes are a contract (design §4): they are never renamed, and every edge carries them verbatim.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


class FailureCode(StrEnum):
    """Why a call did not succeed. Codes in `REFUSED` promise that no work was done."""

    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    LOCALITY_REFUSED = "locality_refused"
    CAPABILITY_DENIED = "capability_denied"
    OUTSIDE_ISSUE = "outside_issue"
    OUTSIDE_WORKSPACE = "outside_workspace"
    APPROVAL_REQUIRED = "approval_required"
    APPROVAL_DENIED = "approval_denied"
    DUPLICATE_OPERATION = "duplicate_operation"
    RATE_LIMITED = "rate_limited"
    SESSION_CLOSED = "session_closed"
    RECEIPT_UNAVAILABLE = "receipt_unavailable"
    CHECK_CRASHED = "check_crashed"
    MISSING_TRACKER_SECRET = "missing_tracker_secret"

    PRECONDITION_FAILED = "precondition_failed"
    TOOL_FAILED = "tool_failed"
    TOOL_CRASHED = "tool_crashed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    EFFECT_UNKNOWN = "effect_unknown"
    TRACKER_REQUEST = "tracker_request"
    TRACKER_STATUS = "tracker_status"
    TRACKER_RESPONSE = "tracker_response"
    TRACKER_PAGINATION = "tracker_pagination"
    TRACKER_RATE_LIMITED = "tracker_rate_limited"


REFUSED: frozenset[FailureCode] = frozenset(
    {
        FailureCode.UNKNOWN_TOOL,
        FailureCode.INVALID_ARGUMENTS,
        FailureCode.LOCALITY_REFUSED,
        FailureCode.CAPABILITY_DENIED,
        FailureCode.OUTSIDE_ISSUE,
        FailureCode.OUTSIDE_WORKSPACE,
        FailureCode.APPROVAL_REQUIRED,
        FailureCode.APPROVAL_DENIED,
        FailureCode.DUPLICATE_OPERATION,
        FailureCode.RATE_LIMITED,
        FailureCode.SESSION_CLOSED,
        FailureCode.RECEIPT_UNAVAILABLE,
        FailureCode.CHECK_CRASHED,
        FailureCode.MISSING_TRACKER_SECRET,
    }
)


class Effect(StrEnum):
    """What is KNOWN to have changed. What a tool MAY change is its spec's `side_effect`."""

    NONE = "none"
    REPORTED = "reported"
    VERIFIED = "verified"
    UNKNOWN = "unknown"


class HostsideError(Exception):
    """Everything this package raises on purpose."""


class ConfigError(HostsideError):
    """Start-up stops here. `code` is `invalid_configuration`, `unsupported_tracker_kind` or `invalid_tracker_config`."""

    def __init__(self, code: str, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


class RegistrationError(HostsideError):
    """A spec that breaks a rule of the registry. The registry is unchanged. `tool` names the offender."""

    def __init__(self, tool: str, rule: str, message: str) -> None:
        super().__init__(f"{tool}: {message}")
        self.tool = tool
        self.rule = rule
        self.message = message


class ToolRefused(HostsideError):
    """No work was done. Raised by checks, or by an executor before its first effect (design §4, step 9)."""

    def __init__(
        self,
        code: FailureCode,
        message: str,
        *,
        remedy: str,
        blocker: str | None = None,
        details: Sequence[Mapping[str, Any]] = (),
        retry_after_ms: int | None = None,
    ) -> None:
        if code not in REFUSED:
            raise ValueError(f"{code} is a failure after work began, not a refusal")
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.blocker = blocker
        self.details = tuple(details)
        self.retry_after_ms = retry_after_ms


class ToolFailed(HostsideError):
    """Work began and did not succeed. `effect` says what is known about the outside world."""

    def __init__(
        self,
        code: FailureCode,
        message: str,
        *,
        remedy: str,
        effect: Effect,
        details: Sequence[Mapping[str, Any]] = (),
        retry_after_ms: int | None = None,
        exit_code: int | None = None,
    ) -> None:
        if code in REFUSED:
            raise ValueError(f"{code} is a refusal: raise ToolRefused")
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.effect = effect
        self.details = tuple(details)
        self.retry_after_ms = retry_after_ms
        self.exit_code = exit_code


class ReceiptUnavailable(HostsideError):
    """The receipt log could not make a row durable. A state-changing call that meets this is refused."""
