"""What the worker asks of an agent runtime, and what it learns back. One runtime for each kind of agent."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from hostside.core.canonical import JsonObject
from hostside.core.gateway import EventSink, Gateway
from hostside.worker.isolation import RunIsolation
from hostside.worker.model_proxy import ModelAccess
from hostside.worker.model_usage import ModelBudget

#: A token's text to the gateway it stands for, or None. Looked up on every request, so that a revocation is immediate.
ResolveToken = Callable[[str], Awaitable[Gateway | None]]


class EndState(StrEnum):
    """How an agent ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How to start the agent. `executable` is the native binary.

    `model_key` stays with the host and no process of the run ever has it; `model_login`: it is a token of the agent's own
    login in place of an API key. `model_budget` is the whole run's.
    `turn_timeout_seconds` bounds a whole turn, `stall_timeout_seconds` the silence inside one (a tool call counts as
    activity, R-192); `start_timeout_seconds` the time until the agent has found its tools.
    """

    kind: str
    executable: Path | None
    version: str | None
    model: str | None
    model_base_url: str | None
    model_key: str | None = field(repr=False)
    native_tools: str
    turn_timeout_seconds: float
    stall_timeout_seconds: float
    start_timeout_seconds: float
    max_turns: int
    options: Mapping[str, str] = field(default_factory=dict)
    model_login: bool = False
    model_budget: ModelBudget = field(default_factory=ModelBudget)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """One conversation to drive. `prompt` is the rendered workflow; `token` the run's edge token (for HTTP edges).

    `model` is its way to the model: the agent gets `model.token` in place of a key.
    """

    gateway: Gateway
    isolation: RunIsolation
    workspace: Path
    home: Path
    prompt: str
    token: str
    resolve_token: ResolveToken
    model: ModelAccess
    settings: AgentSettings
    event: EventSink
    resume: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutcome:
    """`reason` is a stable word: `completed`, `agent_error`, `agent_exited`, `no_result`, `turn_timeout`, `stalled`,
    `tools_missing`, `start_failed`, `rate_limited`, `model_unavailable`, `budget_exhausted`,
    `max_turns`, `stopped`; `edge_failed`: the way to
    the tools could not be opened. `usage` is what the agent reported.

    `fallback`, only with `edge_failed` and when no call was made: the runtime to go on with, in a session of its own.
    """

    state: EndState
    reason: str
    detail: str = ""
    agent_session_id: str | None = None
    exit_code: int | None = None
    usage: JsonObject = field(default_factory=dict)
    turns: int = 0
    fallback: "AgentRuntime | None" = None


class AgentRuntime(Protocol):
    """Starts one agent inside the run's isolation, serves its edge and waits for its end. `edge`: the session's."""

    edge: str

    async def run(self, task: AgentTask) -> AgentOutcome:
        """Drive the conversation to its end. Cancellation stops the agent and leaves no process and no listener."""
