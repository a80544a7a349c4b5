"""Steps 1 to 5 of a call (design §4): pure, no `await`, ending in a Permit or a refusal.

`Gateway._execute` accepts only a Permit, so that no work can come before these checks.
"""

import difflib
from dataclasses import dataclass, field

from hostside.core.call import ToolCall
from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, digest, snapshot
from hostside.core.locality import refusal
from hostside.core.policy import authorize
from hostside.core.registry import RegisteredTool
from hostside.core.scope import NarrowedScope, narrow
from hostside.core.session import Session
from hostside.core.spec import Capability, SideEffect, TargetContext
from hostside.core.violations import got
from hostside.errors import FailureCode, ToolRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """Proof that a call passed every pure check. `arguments` is the one canonical copy that all later steps share."""

    tool: RegisteredTool
    arguments: JsonObject
    fingerprint: str
    operation_id: str
    scope: NarrowedScope
    state_changing: bool


@dataclass(slots=True, kw_only=True)
class Trace:
    """How far a call came: `explain` and the receipt of a refusal read it."""

    tool: RegisteredTool | None = None
    arguments: JsonValue = None
    fingerprint: str | None = None
    operation_id: str | None = None
    steps: list[str] = field(default_factory=list)


def admit(session: Session, call: ToolCall, trace: Trace) -> Permit:
    """Return the permit of `call`, or raise ToolRefused. `trace` is filled as far as the call came."""
    tool = resolve(session, call.name)
    trace.tool = tool
    trace.steps.append("resolve")
    check_locality(session, tool)
    trace.steps.append("locality")
    arguments = validate(tool, call.arguments)
    trace.arguments = arguments
    trace.fingerprint = digest(arguments)
    operation: list[JsonValue] = ["operation", session.run_id or session.session_id, tool.spec.name, trace.fingerprint]
    if call.idempotency_key is not None:
        # The caller's word that this is another operation, though its content is the same (D23).
        operation.append(call.idempotency_key)
    trace.operation_id = digest(operation)
    trace.steps.append("validate")
    authorize(tool.spec, session.capabilities, profile=session.profile, mode=session.mode)
    trace.steps.append("authorize")
    scope = check_scope(session, tool, arguments)
    trace.steps.append("narrow")
    return Permit(
        tool=tool,
        arguments=arguments,
        fingerprint=trace.fingerprint,
        operation_id=trace.operation_id,
        scope=scope,
        state_changing=tool.spec.is_state_changing(arguments),
    )


def resolve(session: Session, name: object) -> RegisteredTool:
    """Return the tool of the session's own snapshot; its canonical name only (R-150)."""
    if isinstance(name, str) and name in session.registry.tools:
        return session.registry.tools[name]
    text = name[:100] if isinstance(name, str) else got(None)
    near = difflib.get_close_matches(text, session.listed, n=3) or list(session.listed)[:20]
    raise ToolRefused(
        FailureCode.UNKNOWN_TOOL,
        f"There is no tool {text!r} in this session.",
        remedy=f"Use one of: {', '.join(near)}." if near else "This session has no tools.",
        details=[{"supported": list(session.listed)[:100]}],
    )


def check_locality(session: Session, tool: RegisteredTool) -> None:
    """Raise ToolRefused(locality_refused) when this edge does not reach the disk that the tool needs."""
    blocked = refusal(tool.spec.locality, session.reach)
    if blocked is not None:
        raise ToolRefused(
            FailureCode.LOCALITY_REFUSED,
            blocked.message,
            remedy=blocked.alternative,
            blocker=blocked.blocker,
            details=[{"class": blocked.locality.value}],
        )


def validate(tool: RegisteredTool, raw: object) -> JsonObject:
    """Return the private canonical arguments with defaults applied, or raise ToolRefused(invalid_arguments)."""
    try:
        value = snapshot(raw)
    except JsonRejected as exc:
        raise _invalid(
            f"{exc.pointer or '/'}: {exc.reason}.",
            [{"pointer": exc.pointer, "rule": "json", "expected": "JSON", "got": exc.reason}],
        ) from None
    if not isinstance(value, dict):
        wrong = got(value)
        raise _invalid(
            f"arguments: expected an object, got {wrong}. Send an object with the tool's keys.",
            [{"pointer": "", "rule": "type", "expected": "object", "got": wrong}],
        )
    arguments = tool.input.with_defaults(value)
    violations = tool.input.violations(arguments)
    if violations:
        message = " ".join(violation.sentence() for violation in violations[:3])
        raise _invalid(message, [violation.detail() for violation in violations])
    return arguments


def check_scope(session: Session, tool: RegisteredTool, arguments: JsonObject) -> NarrowedScope:
    """Return what this call may touch. A write that leaves the host and names no target is a broken tool: refused."""
    private = snapshot(arguments)
    assert isinstance(private, dict)
    targets = tuple(tool.spec.targets_of(private, TargetContext(issue=session.issue, workspace=session.workspace)))
    writes_outside = tool.spec.side_effect is SideEffect.EXTERNAL and tool.spec.capability is Capability.WRITE
    if not targets and writes_outside:
        raise ToolRefused(
            FailureCode.CHECK_CRASHED,
            f"{tool.spec.name} writes outside the host and names no target.",
            remedy="Report this to the operator; the tool has to name what it writes to.",
        )
    return narrow(session.granted, targets)


def _invalid(message: str, details: list[JsonObject]) -> ToolRefused:
    return ToolRefused(
        FailureCode.INVALID_ARGUMENTS,
        message,
        remedy="Correct the arguments and call again; nothing was done.",
        details=details,
    )
