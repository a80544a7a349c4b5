"""The boundary's own refusals and failures, each with a fixed sentence: no text from outside enters them (R-068)."""

from hostside.core.call import ToolFailure
from hostside.errors import Effect, FailureCode, ToolRefused


def closed(reason: str) -> ToolRefused:
    """Return the refusal of a session that ended, was revoked or ran out."""
    return ToolRefused(FailureCode.SESSION_CLOSED, f"This session is closed: {reason}.", remedy="Open a new session.")


def unrecordable() -> ToolRefused:
    """Return the refusal of a call that no receipt could be written for."""
    return ToolRefused(
        FailureCode.RECEIPT_UNAVAILABLE,
        "The host cannot record calls at the moment, so it runs none.",
        remedy="An operator has to free disk space or repair the host's state folder; then call again.",
    )


def check_crashed() -> ToolRefused:
    """Return the refusal of a call whose check broke."""
    return ToolRefused(
        FailureCode.CHECK_CRASHED,
        "A check of the host broke, so the call was refused; nothing was done.",
        remedy="Report this to the operator, with the receipt id.",
    )


def denied(tool: str, reason: str, *, approval_id: str | None = None) -> ToolRefused:
    """Return the refusal of a call that a person, a policy or an empty chair did not allow."""
    return ToolRefused(
        FailureCode.APPROVAL_DENIED,
        f"{tool} was not approved: {reason}.",
        remedy="Continue without it, or ask the operator.",
        details=[] if approval_id is None else [{"approval_id": approval_id}],
    )


def approval_pending(tool: str, approval_id: str | None) -> ToolRefused:
    """Return the refusal of a call that still waits for a decision."""
    return ToolRefused(
        FailureCode.APPROVAL_REQUIRED,
        f"{tool} waits for a person's approval.",
        remedy="Continue with other work and call again later with the same arguments.",
        details=[{"approval_id": approval_id}],
    )


def duplicate_key() -> ToolRefused:
    """Return the refusal of a key that was used for something else."""
    return ToolRefused(
        FailureCode.DUPLICATE_OPERATION,
        "This call's key was already used for another tool or other arguments.",
        remedy="Send the call with a new key.",
    )


def host_rate(limit: int, wait_ms: int) -> ToolRefused:
    """Return the refusal of the host's own limit; it says that no provider was asked (R-166)."""
    return ToolRefused(
        FailureCode.RATE_LIMITED,
        f"The host's own limit of {limit} calls a minute is reached; no provider was asked.",
        remedy=f"Wait {wait_ms} ms.",
        retry_after_ms=wait_ms,
        blocker="host_rate",
    )


def cancelled(effect: Effect) -> ToolFailure:
    """Return the failure of a call whose caller went away."""
    return ToolFailure(
        code=FailureCode.CANCELLED,
        message="The call was cancelled.",
        remedy="Read the current state before calling again.",
        effect=effect,
    )


def crashed(tool: str, effect: Effect) -> ToolFailure:
    """Return the failure of a tool's own bug."""
    return ToolFailure(
        code=FailureCode.TOOL_CRASHED,
        message=f"{tool} broke unexpectedly.",
        remedy="This is a bug of the tool. Read the current state before calling again, and report the receipt id.",
        effect=effect,
    )


def timed_out(tool: str, seconds: float, effect: Effect) -> ToolFailure:
    """Return the failure of a call that met its deadline."""
    return ToolFailure(
        code=FailureCode.TIMED_OUT,
        message=f"{tool} did not finish within {seconds:g} s and was stopped.",
        remedy="Read the current state before calling again; ask for less where the tool allows it.",
        effect=effect,
    )


def unfinished(tool: str) -> ToolFailure:
    """Return the failure of a call that ran but whose end could not be made durable."""
    return ToolFailure(
        code=FailureCode.EFFECT_UNKNOWN,
        message=f"{tool} was run, but the host could not record how it ended.",
        remedy="Read the current state before calling again.",
        effect=Effect.UNKNOWN,
    )
