"""`hostside doctor --as-agent`: what an agent that reads all it can would reach from inside a run."""

import os
from pathlib import Path
from typing import Literal

from hostside.app.doctor_findings import Finding, failed, ok, warning
from hostside.app.host import App
from hostside.app.network import plan_network
from hostside.app.planning import isolation_level, run_folders, run_user_of
from hostside.worker.agent_discovery import find_agent
from hostside.worker.agent_probe import probe_as_agent
from hostside.worker.probe_report import ProbeReport
from hostside.worker.run_places import check_reach
from hostside.worker.run_user import own_environment
from hostside.worker.run_user_claim import claimed

_MEND = "docs/concepts/isolation.md says what each level leaves open; `hostside doctor` says how to get a stronger one."


async def probe_agent(agent: Literal["claude", "codex"], *, wished: str | None, config: Path | None) -> ProbeReport:
    """Run the probe as a run of this host would start the agent. Raises ConfigError where a run would, and ProbeFailed.

    No secret is configured for the probe but its own canaries, so that `home` can be looked at too.
    """
    with App.open(config=config, environment=dict(os.environ)) as app:
        level = isolation_level(app.settings, wished, demo=False, secrets_configured=False)
        section = app.settings.agent
        found = find_agent(agent, section.executable if section.kind == agent else None, app.environment)
        user = run_user_of(app.settings)
        check_reach(user, [found.executable])
        network = await plan_network(app, level)
        homes, _ = run_folders(app.settings, app.paths, user)
        async with claimed(user, level, homes):
            return await probe_as_agent(
                agent,
                level=level,
                executable=found.executable,
                host_environment=own_environment(app.environment, user, level),
                user=user,
                network=network,
                state=[app.paths.state, app.paths.database, app.paths.host_key],
            )


def probe_findings(report: ProbeReport) -> tuple[Finding, ...]:
    """Return the report as doctor's lines: each hole fails, the run's own surface is ok, what was not tried is a warning."""
    return (
        *(
            failed(f"{item.severity} {item.kind}", f"{item.where}: {item.what_it_can_do}", _MEND)
            for item in report.findings
        ),
        *(ok("own surface", item) for item in report.surface),
        *(warning("not tried", item, "Look at it by hand.") for item in report.notes),
    )
