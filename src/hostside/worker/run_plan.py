"""What one run is made of, decided before it starts, and what it reports at its end (design §5.1, §6)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from hostside.config.workflow import Workflow
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.gateway import Host
from hostside.core.policy import Policy, Profile
from hostside.core.redaction import Redactor
from hostside.core.spec import Tool
from hostside.store.database import Database
from hostside.store.receipts import ReceiptStore
from hostside.store.runs import RunStore
from hostside.store.sessions import SessionStore
from hostside.tools.git_runner import GitRunner
from hostside.trackers.base import TrackerAdapter
from hostside.worker.agent import AgentRuntime, AgentSettings
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.network import NetworkPlan
from hostside.worker.process import RunUser
from hostside.worker.sandbox_args import Bind

#: Makes the workspace tools of one run around its git.
WorkspaceTools = Callable[[GitRunner], Sequence[Tool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One issue, one agent, one place. `secret_values` and `secret_names` are what no process of the run may see."""

    run_id: str
    identifier: str
    tracker_name: str
    adapter: TrackerAdapter
    runtime: AgentRuntime
    agent: AgentSettings
    agent_binds: tuple[Bind, ...]
    workflow: Workflow
    repository: Path | None
    base_branch: str | None
    workspaces: Path
    runs_folder: Path
    level: IsolationLevel
    network: NetworkPlan | None
    """None at a level that has no network of its own."""
    user: RunUser | None
    profile: Profile
    policy: Policy
    policy_sha256: str
    workspace_tools: WorkspaceTools
    host_environment: Mapping[str, str]
    secret_names: frozenset[str]
    secret_values: frozenset[str]
    git_identity: Mapping[str, str]
    max_duration: timedelta
    started_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """The host behind every run of this process. `tell` shows events to a person; it must not raise."""

    host: Host
    database: Database
    receipts: ReceiptStore
    sessions: SessionStore
    runs: RunStore
    redactor: Redactor
    server_id: str
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    new_id: Callable[[str], str]
    tell: Callable[[str, Mapping[str, JsonValue]], None]


@dataclass(slots=True, kw_only=True)
class RunReport:
    """The object of `demo --json` and `run --json`, as it grows. `exit_code` follows design §6."""

    run_id: str
    agent: str
    edge: str
    isolation: str
    network: str
    native_tools: str
    ok: bool = False
    state: str = "preparing"
    reason: str = ""
    detail: str = ""
    remedy: str = ""
    identifier: str = ""
    title: str = ""
    state_before: str | None = None
    state_after: str | None = None
    comments: list[JsonObject] = field(default_factory=list)
    branch: str | None = None
    workspace: str | None = None
    commits: int = 0
    calls: dict[str, int] = field(default_factory=lambda: {"total": 0, "refused": 0, "failed": 0})
    receipts: int = 0
    verified: bool = False
    ignored: tuple[str, ...] = ()
    usage: JsonObject = field(default_factory=dict)
    exit_code: int = 1
    duration_ms: int = 0

    def as_object(self) -> JsonObject:
        """Return the contract of design §6; more fields follow the promised ones."""
        comments: list[JsonValue] = list(self.comments)
        return {
            "ok": self.ok,
            "run_id": self.run_id,
            "agent": self.agent,
            "edge": self.edge,
            "isolation": self.isolation,
            "network": self.network,
            "native_tools": self.native_tools,
            "issue": {
                "identifier": self.identifier,
                "state_before": self.state_before,
                "state_after": self.state_after,
                "comments": comments,
            },
            "calls": {"total": self.calls["total"], "refused": self.calls["refused"], "failed": self.calls["failed"]},
            "receipts": {"count": self.receipts, "verified": self.verified},
            "duration_ms": self.duration_ms,
            "state": self.state,
            "reason": self.reason,
            "detail": self.detail,
            "remedy": self.remedy,
            "branch": self.branch,
            "workspace": self.workspace,
            "commits": self.commits,
            "ignored": list(self.ignored),
            "usage": self.usage,
        }
