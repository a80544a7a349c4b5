"""`hostside doctor`."""

import logging
import os
from pathlib import Path
from typing import Literal

import uvloop

from hostside.app.doctor import examine
from hostside.app.doctor_as_agent import probe_agent, probe_findings
from hostside.app.doctor_findings import Finding, Status
from hostside.cli.output import colour, plain, print_json, say
from hostside.cli.stopping import DONE, FAILED
from hostside.errors import ConfigError

_AGENTS: dict[str, Literal["claude", "codex"]] = {"claude": "claude", "codex": "codex"}
_SHOWN = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def doctor(*, as_json: bool, config: Path | None) -> int:
    """Print every finding; exit code 1 where one fails."""
    findings = uvloop.run(examine(dict(os.environ), config))
    good = all(finding.status is not Status.FAIL for finding in findings)
    if as_json:
        print_json({"ok": good, "checks": [finding.as_object() for finding in findings]})
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            _show(finding, width)
    return DONE if good else FAILED


def doctor_as_agent(agent: str, *, isolation: str | None, as_json: bool, config: Path | None) -> int:
    """Print what a probe in an agent's place reached; exit code 1 on anything beyond the run's own surface."""
    known = _AGENTS.get(agent)
    if known is None:
        raise ConfigError(
            "invalid_configuration", f"there is no probe for the agent {agent}.", remedy="Use claude or codex."
        )
    # The probe sends odd requests on purpose; what the server thinks of them is not the operator's business.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    report = uvloop.run(probe_agent(known, wished=isolation, config=config))
    if as_json:
        print_json({"ok": not report.findings, "checks": [item.as_object() for item in probe_findings(report)]})
        return FAILED if report.findings else DONE
    say(f"in place of {agent} · isolation {report.level}")
    findings = probe_findings(report)
    width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        _show(finding, width)
    count = len(report.findings)
    say(f"{count} finding{'' if count == 1 else 's'} beyond the run's own surface")
    return FAILED if report.findings else DONE


def _show(finding: Finding, width: int) -> None:
    status = colour(finding.status.value.ljust(4), _SHOWN[finding.status])
    say(f"{status}  {plain(finding.name).ljust(width)}  {plain(finding.detail)}")
    for number, line in enumerate(finding.remedy.splitlines()):
        say(f"{' ' * (width + 8)}{'try: ' if number == 0 else '     '}{plain(line)}")
