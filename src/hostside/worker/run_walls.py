"""The walls of one run: its two isolations, which differ in their network alone (D9, D25)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hostside.core.issue import Issue
from hostside.core.redaction import Redactor
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.network import RunNetwork, furnish_home, open_networks
from hostside.worker.run_events import RunEvents
from hostside.worker.run_plan import RunPlan
from hostside.worker.sandbox_args import INNER_HOME, Bind
from hostside.worker.workspace import branch_name


class RunWalls:
    """Makes every isolation of a run. `home`: the run's, in which no process of it has been yet."""

    def __init__(self, plan: RunPlan, issue: Issue, home: Path, *, events: RunEvents, redactor: Redactor) -> None:
        self._plan = plan
        self._home = home
        self._events = events
        self._source = EnvironmentSource(
            base=plan.host_environment,
            declared_secrets=plan.secret_names,
            secret_values=plan.secret_values,
            run_facts=_facts(plan, issue),
        )
        self._setup: RunNetwork | None = None
        self._agent: RunNetwork | None = None
        if plan.network is not None and plan.level is IsolationLevel.BWRAP:
            networks = open_networks(plan.network, event=events.tell, redactor=redactor)
            self._setup, self._agent = networks.setup, networks.agent
            _, files = networks.agent.configuration(INNER_HOME)
            furnish_home(home, files, plan.user)

    def setup(self, folder: Path, binds: Sequence[Bind]) -> RunIsolation:
        """The isolation of what prepares the workspace, under the policy `network.setup`."""
        return self._make(folder, binds, self._setup)

    def agent(self, folder: Path) -> RunIsolation:
        """The isolation of the agent and everything after it, under the policy `network.agent`."""
        return self._make(folder, self._plan.agent_binds, self._agent)

    def _make(self, folder: Path, binds: Sequence[Bind], network: RunNetwork | None) -> RunIsolation:
        return RunIsolation(
            level=self._plan.level,
            workspace=folder,
            home=self._home,
            environment=self._source,
            ro_binds=tuple(binds),
            user=self._plan.user,
            # A sandbox ends with its host by itself; elsewhere only what is written down can be ended after a kill.
            started=None if self._plan.level is IsolationLevel.BWRAP else self._events.process_started,
            network=network,
        )


def _facts(plan: RunPlan, issue: Issue) -> Mapping[str, str]:
    return {
        "HOSTSIDE_RUN_ID": plan.run_id,
        "HOSTSIDE_ISSUE_ID": issue.id,
        "HOSTSIDE_ISSUE_IDENTIFIER": issue.identifier,
        "HOSTSIDE_ISSUE_STATE": issue.state,
        "HOSTSIDE_TRACKER_KIND": plan.adapter.kind,
        "HOSTSIDE_BRANCH": branch_name(issue),
    }
