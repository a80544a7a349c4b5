"""One run: an issue is fetched, a workspace prepared, an agent started behind the boundary, and everything ended again.

Whatever happens, the run ends in a final state, its token is dead, its processes are gone and its receipts are closed
(R-217, R-218, R-341).
"""

import os

import anyio
import anyio.to_thread

from hostside.core.call import Workspace
from hostside.core.gateway import Gateway
from hostside.core.issue import Issue
from hostside.core.locality import CallerDisk, Reach
from hostside.core.registry import Registry
from hostside.core.session import open_session
from hostside.errors import ConfigError, HostsideError, ToolFailed, ToolRefused
from hostside.store.runs import Run, RunState
from hostside.store.sessions import TokenKind
from hostside.store.verify import verify
from hostside.trackers.base import same_state
from hostside.worker.agent import AgentOutcome, AgentRuntime, AgentTask, EndState
from hostside.worker.checkout import Checkout, commits_since, head_of, prepare
from hostside.worker.checkout_lock import WorkspaceBusy, alone_in_run
from hostside.worker.git_runner import IsolatedGit
from hostside.worker.hooks import HookFailed, HookName, HookRunner, trusted_scripts
from hostside.worker.isolation import RunIsolation
from hostside.worker.model_usage import ModelMeter
from hostside.worker.network import describe
from hostside.worker.process_identity import started_at
from hostside.worker.run_events import EventHub, RunEvents
from hostside.worker.run_model import issue_model_access, with_budget
from hostside.worker.run_plan import RunPlan, RunReport, RunServices
from hostside.worker.run_user_claim import RunUserBusy, claimed
from hostside.worker.run_walls import RunWalls
from hostside.worker.workspace import WorkspaceError, WorkspacePlace, branch_name, make_run_home, place

CONTINUE_PROMPT = (
    "The issue is still open. Continue where you stopped; use the tools to read its current state first. "
    "When nothing is left to do, move the issue on and stop."
)
_END_STATES = {
    EndState.SUCCEEDED: RunState.SUCCEEDED,
    EndState.FAILED: RunState.FAILED,
    EndState.CANCELLED: RunState.CANCELLED,
}
_REFUSED_CODES = frozenset(
    {"refused", "not_dispatchable", "not_active", "missing_tracker_secret", RunUserBusy.reason, WorkspaceBusy.reason}
)


class RunStopped(HostsideError):
    """The run cannot go on, for a reason that a person can mend. `reason` is a stable word."""

    def __init__(self, reason: str, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.remedy = remedy


class RunWorker:
    """Works one plan to its end. One instance, one run."""

    def __init__(self, plan: RunPlan, services: RunServices, hub: EventHub) -> None:
        self._plan = plan
        self._services = services
        self._events = RunEvents(plan.run_id, services, hub)
        self._report = RunReport(
            run_id=plan.run_id,
            agent=plan.agent.kind,
            edge=plan.runtime.edge,
            isolation=plan.level.value,
            network=describe(plan.network),
            native_tools=plan.agent.native_tools,
            identifier=plan.identifier,
            ignored=plan.workflow.ignored,
        )
        self._runtime = plan.runtime
        self._session_ids: list[str] = []
        self._meter = ModelMeter(plan.agent.model_budget)

    async def work(self) -> RunReport:
        """Run to the end and return the report. Cancellation ends the run as `cancelled`, cleans up and is raised again."""
        began = self._services.monotonic()
        outcome = AgentOutcome(state=EndState.CANCELLED, reason="stopped")
        try:
            await self._create()
            async with claimed(self._plan.user, self._plan.level, self._plan.runs_folder, self._events.tell):
                outcome = await self._attempt()
        except (RunStopped, WorkspaceBusy, RunUserBusy) as stopped:
            outcome = self._explain(stopped.reason, stopped.message, stopped.remedy)
        except (WorkspaceError, ConfigError) as error:
            outcome = self._explain("workspace_failed", error.message, error.remedy)
        except HookFailed as error:
            outcome = self._explain("hook_failed", str(error), "Mend the hook in WORKFLOW.md and run again.")
        except (ToolRefused, ToolFailed) as error:
            outcome = self._explain(error.code.value, str(error), error.remedy)
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(outcome)
                self._report.duration_ms = round((self._services.monotonic() - began) * 1000)
                self._events.tell("run_finished", {"state": self._report.state, "reason": self._report.reason})
                self._events.end()
        return self._report

    async def _create(self) -> None:
        plan, now = self._plan, self._services.now()
        run = Run(
            run_id=plan.run_id,
            kind="issue",
            state=RunState.PREPARING,
            agent=plan.agent.kind,
            started_by=plan.started_by,
            started_at=now,
            identifier=plan.identifier,
            tracker=plan.tracker_name,
            agent_version=plan.agent.version,
            model=plan.agent.model,
            edge=plan.runtime.edge,
            isolation=plan.level.value,
            network=self._report.network,
            native_tools=plan.agent.native_tools,
            workflow_sha256=plan.workflow.sha256,
            policy_sha256=plan.policy_sha256,
            pid=os.getpid(),
            pid_started_at=started_at(os.getpid()),
        )
        await anyio.to_thread.run_sync(self._services.runs.create, run)
        self._events.begin()
        self._events.tell("run_started", {"issue": plan.identifier, "agent": plan.agent.kind})
        notices = plan.workflow.notices()
        if notices:
            self._events.tell("workflow_notices", {"notices": list(notices)})

    async def _attempt(self) -> AgentOutcome:
        plan = self._plan
        plan.adapter.check_credential()
        issue = await self._issue()
        where = place(plan.workspaces, issue.identifier, plan.user)
        refuse_inside = getattr(plan.adapter, "refuse_inside", None)
        if refuse_inside is not None:
            refuse_inside(where.path)
        async with alone_in_run(where):
            return await self._in_workspace(issue, where)

    async def _in_workspace(self, issue: Issue, where: WorkspacePlace) -> AgentOutcome:
        plan = self._plan
        home = make_run_home(plan.runs_folder, plan.run_id, plan.user)
        walls = RunWalls(plan, issue, home, events=self._events, redactor=self._services.redactor)

        async def after_create(made: Checkout) -> None:
            await self._hooks(walls.setup(made.path, plan.agent_binds)).run(HookName.AFTER_CREATE)

        checkout = await prepare(
            where,
            repository=plan.repository,
            branch=branch_name(issue),
            base=plan.base_branch,
            isolation_for=walls.setup,
            after_create=after_create,
        )
        self._report.branch, self._report.workspace = checkout.branch, str(checkout.path)
        await self._hooks(walls.setup(checkout.path, plan.agent_binds)).run(HookName.BEFORE_RUN)
        isolation = walls.agent(checkout.path)
        hooks = self._hooks(isolation)
        base = await head_of(isolation)
        try:
            return await self._sessions(issue, checkout, isolation)
        finally:
            with anyio.CancelScope(shield=True):
                await hooks.run(HookName.AFTER_RUN)
                await self._look_back(issue, isolation, base)

    async def _issue(self) -> Issue:
        plan = self._plan
        issue = await plan.adapter.fetch_by_identifier(plan.identifier)
        if issue is None:
            raise RunStopped(
                "no_such_issue",
                f"There is no issue {plan.identifier} in the tracker {plan.tracker_name}.",
                remedy="Check the identifier; `hostside doctor` tells whether the tracker can be read.",
            )
        self._report.title, self._report.state_before = issue.title, issue.state
        self._report.state_after = issue.state
        if not issue.dispatchable:
            raise RunStopped(
                "not_dispatchable", f"{issue.identifier} is not to be worked on now.", remedy="Free it in its tracker."
            )
        active = plan.workflow.tracker.active_states
        if not any(same_state(issue.state, state) for state in active):
            raise RunStopped(
                "not_active",
                f"{issue.identifier} is in {issue.state}, which is not an active state ({', '.join(active)}).",
                remedy="Move the issue to an active state, or name its state in WORKFLOW.md.",
            )
        await self._update(state_before=issue.state)
        self._events.tell("issue_fetched", {"identifier": issue.identifier, "title": issue.title, "state": issue.state})
        return issue

    async def _sessions(self, issue: Issue, checkout: Checkout, isolation: RunIsolation) -> AgentOutcome:
        """One session after another in the same conversation while the issue stays active (Symphony §7.1)."""
        plan = self._plan
        registry = self._registry(isolation)
        prompt = await anyio.to_thread.run_sync(lambda: plan.workflow.render(issue, attempt=None))
        resume, turns = None, 0
        while True:
            calls_before = self._events.calls()["total"]
            outcome = await self._one_session(issue, checkout, isolation, registry, prompt, resume)
            if outcome.reason == "edge_failed" and outcome.fallback is not None and self._runtime is plan.runtime:
                await self._fall_back(outcome.fallback, outcome)
                continue
            turns += max(1, outcome.turns)
            if outcome.state is not EndState.SUCCEEDED or outcome.agent_session_id is None:
                return outcome
            current = await plan.adapter.fetch_by_ids([issue.id])
            active = plan.workflow.tracker.active_states
            still = bool(current) and any(same_state(current[0].state, state) for state in active)
            idle = self._events.calls()["total"] == calls_before
            if not still or idle or turns >= plan.workflow.agent.max_turns:
                return outcome
            issue, prompt, resume = current[0], CONTINUE_PROMPT, outcome.agent_session_id
            self._events.tell("turn_continues", {"turns": turns})

    async def _fall_back(self, runtime: AgentRuntime, outcome: AgentOutcome) -> None:
        """Go on with another edge, since a session keeps the one it was opened with; said in the run's record (D24)."""
        facts = {"from": self._runtime.edge, "to": runtime.edge, "reason": outcome.reason, "detail": outcome.detail}
        self._events.tell("edge_fallback", facts)
        self._runtime, self._report.edge = runtime, runtime.edge
        await self._update(edge=runtime.edge)

    async def _one_session(
        self,
        issue: Issue,
        checkout: Checkout,
        isolation: RunIsolation,
        registry: Registry,
        prompt: str,
        resume: str | None,
    ) -> AgentOutcome:
        plan, services = self._plan, self._services
        now = services.now()
        session = open_session(
            session_id=services.new_id("s"),
            registry=registry.snapshot(),
            edge=self._runtime.edge,
            server_id=services.server_id,
            principal=services.new_id("agent"),
            profile=plan.profile,
            reach=Reach(caller_disk=CallerDisk.SHARED, server_checkout=False),
            opened_at=now,
            expires_at=now + plan.max_duration,
            run_id=plan.run_id,
            attempt=len(self._session_ids) + 1,
            issue=issue,
            workspace=Workspace(id=checkout.path.name, root=str(checkout.path), branch=checkout.branch),
            policy=plan.policy,
        )
        gateway = Gateway(session, services.host)
        await anyio.to_thread.run_sync(services.sessions.open, session)
        self._session_ids.append(session.session_id)
        token = await anyio.to_thread.run_sync(
            lambda: services.sessions.mint_token(
                session.session_id, TokenKind.EDGE, server_id=services.server_id, expires_at=session.expires_at
            )
        )

        model = await issue_model_access(services.sessions, session, self._meter, now=services.now)

        async def resolve(text: str) -> Gateway | None:
            record = services.sessions.authenticate(
                text, server_id=services.server_id, kind=TokenKind.EDGE, now=services.now()
            )
            return gateway if record is not None and record.session_id == session.session_id else None

        self._events.tell(
            "session_opened",
            {
                "session_id": session.session_id,
                "registry_fingerprint": session.registry.fingerprint,
                "tools": list(session.listed),
                "withheld": [{"name": item.name, "blocker": item.blocker} for item in session.withheld],
            },
        )
        task = AgentTask(
            gateway=gateway, isolation=isolation, workspace=checkout.path, home=isolation.home, prompt=prompt, token=token,
            resolve_token=resolve, model=model, settings=plan.agent, event=self._events.tell, resume=resume,
        )  # fmt: skip
        await self._update(state=RunState.RUNNING, workspace=str(checkout.path), branch=checkout.branch)
        try:
            with anyio.fail_after(plan.max_duration.total_seconds()):
                outcome = await self._runtime.run(task)
        except TimeoutError:
            outcome = AgentOutcome(state=EndState.FAILED, reason="turn_timeout", detail="the run's time is over")
        finally:
            gateway.close("its run ended")
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(services.sessions.revoke, session.session_id)
        await self._update(agent_session_id=outcome.agent_session_id, usage=outcome.usage or None)
        self._report.usage = dict(outcome.usage)
        return outcome

    def _registry(self, isolation: RunIsolation) -> Registry:
        plan = self._plan
        git = IsolatedGit(isolation, plan.git_identity)
        return Registry([*plan.adapter.tools(), *plan.workspace_tools(git)])

    def _hooks(self, isolation: RunIsolation) -> HookRunner:
        workflow = self._plan.workflow
        return HookRunner(
            isolation=isolation,
            scripts=trusted_scripts(workflow),
            timeout_seconds=workflow.hooks.timeout_ms / 1000,
            redactor=self._services.redactor,
            event=self._events.tell,
        )

    async def _look_back(self, issue: Issue, isolation: RunIsolation, base: str) -> None:
        try:
            self._report.commits = await commits_since(isolation, base) if base else 0
            found = await self._plan.adapter.fetch_by_ids([issue.id])
            self._report.state_after = found[0].state if found else None
            self._report.comments = [dict(item) for item in await self._plan.adapter.fetch_comments(issue)]
        except (ToolFailed, ToolRefused, WorkspaceError) as error:
            self._events.tell("look_back_failed", {"detail": str(error)[:300]})

    async def _update(self, **changes: object) -> None:
        await anyio.to_thread.run_sync(lambda: self._services.runs.update(self._plan.run_id, **changes))  # type: ignore[arg-type]

    def _explain(self, reason: str, message: str, remedy: str) -> AgentOutcome:
        self._report.remedy = remedy
        return AgentOutcome(state=EndState.FAILED, reason=reason, detail=message)

    async def _close(self, outcome: AgentOutcome) -> None:
        report, services = self._report, self._services
        outcome = with_budget(outcome, self._meter)
        report.usage = {**report.usage, **outcome.usage}
        report.state, report.reason = _END_STATES[outcome.state].value, outcome.reason
        report.detail = services.redactor.text(outcome.detail)
        report.exit_code = self._exit_code(outcome)
        try:
            await anyio.to_thread.run_sync(services.sessions.revoke_run, self._plan.run_id)
            await self._update(
                state=_END_STATES[outcome.state],
                reason=outcome.reason,
                state_after=report.state_after,
                usage=report.usage or None,
                exit_code=report.exit_code,
            )
            await services.receipts.flush()
            report.receipts, report.verified = await anyio.to_thread.run_sync(self._verify)
        except HostsideError as error:
            report.detail = report.detail or str(error)
            report.remedy = report.remedy or "Check the disk of the host's state folder; then run `hostside doctor`."
            report.exit_code = 1
        report.calls = self._events.calls()
        report.ok = report.exit_code == 0 and report.verified
        if outcome.state is EndState.SUCCEEDED and not report.verified:
            report.exit_code = 1

    def _verify(self) -> tuple[int, bool]:
        reports = [verify(self._services.database, session_id) for session_id in self._session_ids]
        return sum(report.receipts for report in reports), all(report.ok for report in reports)

    def _exit_code(self, outcome: AgentOutcome) -> int:
        if outcome.state is EndState.SUCCEEDED:
            return 0
        return 3 if outcome.reason in _REFUSED_CODES else 1
