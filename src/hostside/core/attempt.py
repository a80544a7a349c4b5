"""One call on its way, and the two events of its receipt (D7)."""

from dataclasses import dataclass
from datetime import datetime

from hostside.core.admission import Trace
from hostside.core.call import ToolCall, ToolResult
from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, snapshot
from hostside.core.outcome import redacted_arguments, sha256_of
from hostside.core.receipt import Finished, Outcome, Started
from hostside.core.redaction import Redactor
from hostside.core.session import Session
from hostside.core.violations import got
from hostside.errors import Effect


@dataclass(slots=True, kw_only=True)
class Attempt:
    """What the boundary learns of one call as it goes."""

    call: ToolCall
    receipt_id: str
    at: datetime
    began: float
    trace: Trace
    approval_id: str | None = None
    replay_of: str | None = None
    call_key: str | None = None

    @property
    def tool_name(self) -> str:
        """The name as asked, bounded: it may be anything."""
        return str(self.call.name)[:100]

    def ids(self, session: Session) -> JsonObject:
        """Return the ids of a structured event (R-146)."""
        return {
            "receipt_id": self.receipt_id,
            "session_id": session.session_id,
            "run_id": session.run_id,
            "issue": None if session.issue is None else session.issue.identifier,
            "tool": self.tool_name,
        }


def started_event(session: Session, attempt: Attempt, redactor: Redactor) -> Started:
    """Return the `started` event. Arguments that never became valid are kept too, redacted and bounded."""
    trace, tool = attempt.trace, attempt.trace.tool
    arguments = trace.arguments if trace.fingerprint is not None else _as_far_as_json(attempt.call.arguments)
    return Started(
        receipt_id=attempt.receipt_id,
        at=attempt.at,
        session_id=session.session_id,
        run_id=session.run_id,
        issue_id=None if session.issue is None else session.issue.id,
        edge=session.edge,
        principal=session.principal,
        workspace_id=None if session.workspace is None else session.workspace.id,
        registry_fingerprint=session.registry.fingerprint,
        tool=redactor.text(attempt.tool_name),
        tool_version=None if tool is None else tool.spec.version,
        call_key=attempt.call_key,
        operation_id=trace.operation_id or attempt.receipt_id,
        arguments_fingerprint=trace.fingerprint,
        arguments_redacted=redacted_arguments(tool, arguments, redactor),
        approval_id=attempt.approval_id,
        replay_of=attempt.replay_of,
    )


def finished_event(session: Session, attempt: Attempt, result: ToolResult, *, at: datetime, ended: float) -> Finished:
    """Return the `finished` event. A replay changed nothing new, so its effect is `none`."""
    failure = result.failure
    if failure is None:
        outcome, effect = Outcome.OK, result.effect
    else:
        outcome, effect = (Outcome.REFUSED if failure.refused else Outcome.FAILED), failure.effect
    sha256, size = sha256_of(result.text())
    return Finished(
        receipt_id=attempt.receipt_id,
        at=at,
        session_id=session.session_id,
        outcome=outcome,
        code=None if failure is None else failure.code,
        effect=Effect.NONE if attempt.replay_of is not None and failure is None else effect,
        exit_code=result.exit_code,
        result_sha256=sha256,
        result_bytes=size,
        duration_ms=max(0, round((ended - attempt.began) * 1000)),
    )


def _as_far_as_json(raw: object) -> JsonValue:
    try:
        value = snapshot(raw)
    except JsonRejected as exc:
        return {"rejected": exc.reason}
    return value if isinstance(value, dict) else {"rejected": got(value)}
