"""How a run of Claude Code ended, told from its typed result, its exit code and the host's clocks, never from text (R-212)."""

from collections.abc import Callable
from typing import Final

from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.claude_events import EventReporter, Result
from hostside.worker.run_clock import Stop

PART_CHARACTERS = 1_000
# Too many requests, and the provider's own overload: both pass by waiting.
_BUSY: Final = frozenset({429, 529})


def classify(
    report: EventReporter,
    *,
    stop: Stop | None,
    exit_code: int | None,
    stderr: str,
    redact: Callable[[str], str],
) -> AgentOutcome:
    """The outcome. `stop`: why the host ended the agent, None when it ended by itself.

    `exit_code` is None when the host had to end it after its result. `stderr`: the end of what it wrote there, redacted.
    """
    state, reason = _end(report, stop, exit_code)
    result = report.result
    parts = ["" if stop is None else redact(stop.detail)]
    if state is not EndState.SUCCEEDED:
        # Each part is cut by itself, so that a talkative one does not push the others out.
        parts += ["" if result is None else redact(result.text)[:PART_CHARACTERS], stderr.strip()[-PART_CHARACTERS:]]
    return AgentOutcome(
        state=state,
        reason=reason,
        detail=" | ".join(filter(None, parts)),
        agent_session_id=None if report.init is None else report.init.session_id,
        exit_code=exit_code,
        usage={} if result is None else result.usage,
        # One prompt, one turn; how often the model was asked in it is `usage["model_turns"]`.
        turns=0 if result is None else 1,
    )


def _end(report: EventReporter, stop: Stop | None, exit_code: int | None) -> tuple[EndState, str]:
    if stop is not None:
        return EndState.FAILED, stop.reason
    if report.result is not None:
        return _of_result(report.result, exit_code)
    if report.init is None:
        return EndState.FAILED, "start_failed"
    # It said nothing of how it ended, so an exit code of 0 is no success.
    return EndState.FAILED, "no_result" if exit_code == 0 else "agent_exited"


def _of_result(result: Result, exit_code: int | None) -> tuple[EndState, str]:
    if result.subtype == "error_max_turns":
        return EndState.FAILED, "max_turns"
    if result.api_failed:
        return EndState.FAILED, _of_provider(result.api_status)
    if result.is_error or result.subtype != "success":
        return EndState.FAILED, "agent_error"
    if exit_code not in (0, None):
        return EndState.FAILED, "agent_exited"
    return EndState.SUCCEEDED, "completed"


def _of_provider(status: int | None) -> str:
    if status in _BUSY:
        return "rate_limited"
    # No status: it was not reached, or the connection broke.
    if status is None or status >= 500:
        return "model_unavailable"
    return "agent_error"
