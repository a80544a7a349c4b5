"""One agent session: a frozen snapshot of tools, authority, scope and reach (R-021, D5, design §5.1)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from hostside.core.call import Workspace
from hostside.core.issue import Issue
from hostside.core.locality import Reach, refusal
from hostside.core.policy import Mode, Policy, Profile, authorize, effective
from hostside.core.registry import RegisteredTool, RegistrySnapshot
from hostside.core.scope import NamedTarget, Scope
from hostside.core.spec import Capability, Visibility
from hostside.errors import FailureCode, ToolRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """A tool that this session has but does not list, with the blocker and what to do instead (D5)."""

    name: str
    code: FailureCode
    blocker: str
    alternative: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything a call is judged by. Frozen: a reload, a new registration or a removal never reaches it (R-022).

    `edge` names the surface (`stdio`, `http`, `run-http`, `inband`, `codex`, `functions`, `cli`). `principal` is unique
    for each session. Times are aware UTC.
    """

    session_id: str
    run_id: str | None
    attempt: int
    edge: str
    server_id: str
    principal: str
    issue: Issue | None
    workspace: Workspace | None
    registry: RegistrySnapshot
    granted: Scope
    capabilities: frozenset[Capability]
    profile: Profile
    mode: Mode
    policy: Policy
    reach: Reach
    opened_at: datetime
    expires_at: datetime
    listed: tuple[str, ...]
    withheld: tuple[Withheld, ...]

    def listing(self) -> tuple[RegisteredTool, ...]:
        """Return the tools that an edge advertises, in name order."""
        return tuple(self.registry.tools[name] for name in self.listed)

    def instructions(self) -> str:
        """Return the server instructions: what is bounded here, and why some tools are missing. Under 4,000 characters."""
        bound = f"issue {self.issue.identifier}" if self.issue is not None else "no issue"
        lines = [
            f"Tools of Hostside, bound to {bound}. The host validates, executes and records every call; no tool takes an "
            "issue, project or repository as an argument. A refused or failed call answers with "
            '{"failure":{"code","message","remedy","effect"}}.'
        ]
        if self.withheld:
            lines.append("Not available in this session:")
            lines += [f"- {item.name}: {item.blocker}. {item.alternative}" for item in self.withheld]
        return "\n".join(lines)[:4_000]


def open_session(
    *,
    session_id: str,
    registry: RegistrySnapshot,
    edge: str,
    server_id: str,
    principal: str,
    profile: Profile,
    reach: Reach,
    opened_at: datetime,
    expires_at: datetime,
    run_id: str | None = None,
    attempt: int = 1,
    issue: Issue | None = None,
    workspace: Workspace | None = None,
    mode: Mode = Mode.WORK,
    policy: Policy | None = None,
    token_capabilities: frozenset[Capability] | None = None,
    named: frozenset[NamedTarget] = frozenset(),
) -> Session:
    """Return the session: capabilities intersected, scope set from host facts, tools it cannot use withheld by name."""
    rules = policy or Policy()
    capabilities = effective(
        configuration=rules.configuration, profile=profile, mode=mode, token=token_capabilities, child=None
    )
    session = Session(
        session_id=session_id,
        run_id=run_id,
        attempt=attempt,
        edge=edge,
        server_id=server_id,
        principal=principal,
        issue=issue,
        workspace=workspace,
        registry=registry,
        granted=Scope(
            issue_id=None if issue is None else issue.id,
            workspace_root=None if workspace is None else workspace.root,
            named=named,
        ),
        capabilities=capabilities,
        profile=profile,
        mode=mode,
        policy=rules,
        reach=reach,
        opened_at=opened_at,
        expires_at=expires_at,
        listed=(),
        withheld=(),
    )
    visible = [item for item in registry.tools.values() if item.spec.visibility is Visibility.PUBLIC]
    withheld = tuple(_withheld(session, visible))
    hidden = set() if rules.list_unreachable else {item.name for item in withheld}
    listed = tuple(item.spec.name for item in visible if item.spec.name not in hidden)
    return replace(session, listed=listed, withheld=withheld)


def _withheld(session: Session, tools: Iterable[RegisteredTool]) -> Iterable[Withheld]:
    for item in tools:
        blocked = refusal(item.spec.locality, session.reach)
        if blocked is not None:
            yield Withheld(
                name=item.spec.name,
                code=FailureCode.LOCALITY_REFUSED,
                blocker=blocked.blocker,
                alternative=blocked.alternative,
            )
            continue
        try:
            authorize(item.spec, session.capabilities, profile=session.profile, mode=session.mode)
        except ToolRefused as refused:
            yield Withheld(
                name=item.spec.name,
                code=refused.code,
                blocker=refused.blocker or refused.code,
                alternative=refused.remedy,
            )
