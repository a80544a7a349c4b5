"""What every way of running Codex shares: its process inside the run's isolation, and what is told of a failure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from hostside.core.redaction import Redactor
from hostside.errors import ConfigError
from hostside.worker.agent import AgentOutcome, AgentSettings, AgentTask, EndState
from hostside.worker.codex_events import Recorder
from hostside.worker.codex_launch import MODEL_TOKEN_VARIABLE, codex_home, prepare_home
from hostside.worker.isolation import Launch
from hostside.worker.process import Child

_NOTHING: Mapping[str, str] = MappingProxyType({})
_DIAGNOSTIC_LINES = 20


def recorder_of(task: AgentTask) -> Recorder:
    """Return the writer of the run's events; no secret of the task passes it."""
    return Recorder(task.event, Redactor(filter(None, (task.settings.model_key, task.model.token, task.token))))


def executable_of(settings: AgentSettings) -> Path:
    """Return the program. Raises `ConfigError` when none is configured."""
    if settings.executable is None:
        raise ConfigError("invalid_configuration", "no Codex executable is configured", remedy="Configure its path.")
    return settings.executable


async def start_codex(
    task: AgentTask, record: Recorder, launch: Launch, words: Sequence[str], variables: Mapping[str, str] = _NOTHING
) -> Child:
    """Start Codex with `words` after the program and, beside the run's environment, its home, its model token and
    `variables`; use `launch` up.

    Tells `agent_started`, and `agent_configuration_removed` where an earlier attempt left a configuration. Raises
    `ConfigError` when the environment would lose one of the variables, and what `prepare_home` and `spawn` raise.
    """
    isolation = task.isolation
    program = isolation.path_inside(executable_of(task.settings).resolve())
    extras = {"CODEX_HOME": codex_home(isolation), MODEL_TOKEN_VARIABLE: task.model.token, **variables}
    lost = extras.keys() - isolation.environment(extras).keys()
    if lost:
        raise ConfigError(
            "invalid_configuration",
            f"the run's environment does not let {', '.join(sorted(lost))} through",
            remedy="No configured secret may have one of these names or be part of the state folder's path.",
        )
    if prepare_home(task.home):
        record.event("agent_configuration_removed", file="config.toml")
    child = await isolation.spawn([program, *words], extras=extras, launch=launch)
    record.event("agent_started", agent="codex", pid=child.pid, pid_started_at=child.pid_started_at)
    return child


def explained(outcome: AgentOutcome, child: Child, record: Recorder) -> AgentOutcome:
    """Keep what the agent wrote to stderr where it may say why (R-201: never part of the protocol)."""
    text = child.stderr.text().strip()
    if outcome.state is EndState.SUCCEEDED or not text:
        return outcome
    record.event("agent_diagnostics", lines=[*text.splitlines()[-_DIAGNOSTIC_LINES:]])
    if outcome.reason not in ("start_failed", "tools_missing", "agent_exited"):
        return outcome
    return replace(outcome, detail=f"{outcome.detail}: {record.text(text.splitlines()[-1])}")


def ended(task: AgentTask, outcome: AgentOutcome) -> AgentOutcome:
    """Tell `agent_ended`; return the outcome."""
    facts = {"state": outcome.state.value, "reason": outcome.reason, "exit_code": outcome.exit_code}
    task.event("agent_ended", facts)
    return outcome


def outside(folder: str) -> str:
    """Return why a run ends in which a command worked in `folder`, outside the workspace (R-094)."""
    return f"boundary_violation: a command ran outside the workspace, in {folder}"


def failed(reason: str, detail: str) -> AgentOutcome:
    """Return the outcome of a run that failed for this reason."""
    return AgentOutcome(state=EndState.FAILED, reason=reason, detail=detail)
