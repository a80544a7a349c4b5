"""A run as a person watches it: one line a call, as it happens, and a summary at the end."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from hostside.cli.output import colour, plain
from hostside.core.canonical import JsonValue
from hostside.core.receipt import Observation, Outcome
from hostside.errors import Effect
from hostside.worker.run_plan import RunReport

_COUNTED = {"total_lines": "lines", "bytes": "bytes", "total": "entries", "count": "staged"}
_SHOWN = {Outcome.OK: "green", Outcome.REFUSED: "yellow", Outcome.FAILED: "red"}


class CallLines:
    """An observer that prints each finished call. `width` is the longest tool name of the session, for alignment."""

    def __init__(self, write: Callable[[str], None], *, width: int = 24) -> None:
        self._write = write
        self._width = width

    def observe(self, observation: Observation) -> None:
        """Print one line."""
        self._write(call_line(observation, self._width))


def call_line(observation: Observation, width: int) -> str:
    """Return `  12 ms  read_file   ok   greeting.py, 3 lines   (verified)`, without anything that steers a terminal."""
    started, finished = observation.started, observation.finished
    words = [f"{finished.duration_ms:>5} ms", plain(started.tool).ljust(width)]
    words.append(colour(finished.outcome.value.ljust(8), _SHOWN[finished.outcome]))
    words.append(plain(detail(observation))[:120])
    if finished.effect in (Effect.REPORTED, Effect.VERIFIED, Effect.UNKNOWN):
        words.append(colour(f"({finished.effect.value})", "dim"))
    return "  ".join(words).rstrip()


def detail(observation: Observation) -> str:
    """Return what a person wants to know of a call in one line: where it went, or why it did not."""
    failure = observation.result.get("failure")
    arguments = observation.arguments if isinstance(observation.arguments, dict) else {}
    if isinstance(failure, dict):
        details = failure.get("details")
        first = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
        where = first.get("pointer")
        said = f"{where}: expected {first.get('expected')}, got {first.get('got')}" if where else failure.get("message")
        return f"{failure.get('code')}  {said}"
    structured = observation.result.get("structured")
    facts = structured if isinstance(structured, dict) else {}
    return _words(facts, arguments)


def _words(facts: Mapping[str, JsonValue], arguments: Mapping[str, JsonValue]) -> str:
    if "previous_state" in facts:
        return f"{facts['previous_state']} -> {facts.get('state')}"
    comment, issue = facts.get("comment"), facts.get("issue")
    if isinstance(comment, dict):
        return f"comment {comment.get('id')}"
    if isinstance(issue, dict):
        return f"{issue.get('identifier')} in {issue.get('state')}"
    if "commit" in facts:
        return f'{str(facts["commit"])[:7]} "{arguments.get("message", "")}"'
    parts = [str(arguments[key]) for key in ("path", "pattern", "query") if key in arguments]
    parts += [f"{facts[key]} {noun}" for key, noun in _COUNTED.items() if key in facts]
    return ", ".join(parts)


def program() -> str:
    """Return how this program is called from where the person stands, so that a hint can be copied."""
    called = Path(sys.argv[0])
    on_path = shutil.which("hostside")
    if called.name != "hostside" or (on_path and Path(on_path).resolve() == called.resolve()):
        return "hostside"
    return os.path.relpath(called) if called.resolve().is_relative_to(Path.cwd()) else str(called)


def summary(report: RunReport) -> list[str]:
    """Return the last lines: the issue's end, receipts, and what to do next."""
    comments, commits = len(report.comments), report.commits
    lines = [""]
    state = report.state_after or report.state_before or "unknown"
    where = f" on {report.branch}" if report.branch else ""
    lines.append(
        plain(
            f"issue {report.identifier}   {state} · {comments} comment{'' if comments == 1 else 's'} · "
            f"{commits} commit{'' if commits == 1 else 's'}{where}"
        )
    )
    calls = report.calls
    good = calls["total"] - calls["refused"] - calls["failed"]
    chain = "chain verified" if report.verified else colour("chain NOT verified", "red")
    lines.append(
        f"receipts       {calls['total']} calls, {good} ok, {calls['refused']} refused, {calls['failed']} failed, {chain}"
    )
    if report.ignored:
        lines.append(plain(f"ignored        {', '.join(report.ignored)} (WORKFLOW.md is not trusted)"))
    if report.commits and report.workspace:
        lines.append(plain(f"unpublished    {commits} commit{'' if commits == 1 else 's'} in {report.workspace}"))
    if not report.ok:
        lines.append(colour(plain(f"ended          {report.state}: {report.reason} {report.detail}"[:400]), "red"))
        if report.remedy:
            lines.append(plain(f"instead        {report.remedy}"))
    lines.append(f"next           {program()} receipts list --run {report.run_id}   ·   {program()} run --help")
    return lines
