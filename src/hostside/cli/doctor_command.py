"""`hostside doctor`."""

import os
from pathlib import Path

import uvloop

from hostside.app.doctor import examine
from hostside.app.doctor_findings import Finding, Status
from hostside.cli.output import colour, plain, print_json, say
from hostside.cli.stopping import DONE, FAILED

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


def _show(finding: Finding, width: int) -> None:
    status = colour(finding.status.value.ljust(4), _SHOWN[finding.status])
    say(f"{status}  {plain(finding.name).ljust(width)}  {plain(finding.detail)}")
    for number, line in enumerate(finding.remedy.splitlines()):
        say(f"{' ' * (width + 8)}{'try: ' if number == 0 else '     '}{plain(line)}")
