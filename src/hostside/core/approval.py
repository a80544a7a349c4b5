"""Step 7: a decision bound to exactly one call (R-062, R-063)."""

import logging
import traceback

from hostside.core.admission import Permit
from hostside.core.attempt import Attempt
from hostside.core.canonical import digest
from hostside.core.failures import approval_pending, denied
from hostside.core.outcome import redacted_arguments
from hostside.core.policy import needs_approval
from hostside.core.receipt import ApprovalDecision, ApprovalRequest, Approver
from hostside.core.redaction import Redactor
from hostside.core.session import Session

_log = logging.getLogger(__name__)


async def approve(session: Session, attempt: Attempt, permit: Permit, approver: Approver, redactor: Redactor) -> None:
    """Return when the call may run; raise ToolRefused(approval_required or approval_denied) otherwise.

    The fingerprint covers tool, version, canonical arguments, run, workspace and principal, so that one changed byte
    asks again.
    """
    spec = permit.tool.spec
    if not needs_approval(spec, session.policy, session.edge):
        return
    workspace_id = None if session.workspace is None else session.workspace.id
    request = ApprovalRequest(
        fingerprint=digest(
            [spec.name, spec.version, permit.fingerprint, session.run_id, workspace_id, session.principal]
        ),
        tool=spec.name,
        tool_version=spec.version,
        session_id=session.session_id,
        run_id=session.run_id,
        workspace_id=workspace_id,
        principal=session.principal,
        edge=session.edge,
        arguments_redacted=redacted_arguments(permit.tool, permit.arguments, redactor),
    )
    try:
        answer = await approver.decide(request)
    except Exception:  # whoever cannot answer has not agreed
        said = redactor.text(traceback.format_exc())
        _log.error("approver raised: %s", said, extra={"receipt_id": attempt.receipt_id})
        raise denied(spec.name, "the approver could not answer") from None
    attempt.approval_id = answer.approval_id
    if answer.decision is ApprovalDecision.PENDING:
        raise approval_pending(spec.name, answer.approval_id)
    if answer.decision is not ApprovalDecision.ALLOWED:
        raise denied(spec.name, answer.reason, approval_id=answer.approval_id)
