"""`hostside call`."""

from pathlib import Path
from typing import Any

import uvloop

from hostside.app.host import App
from hostside.app.operator_calls import call_once
from hostside.cli.arguments import read_arguments
from hostside.cli.output import note, plain, print_json, say
from hostside.cli.stopping import DONE, FAILED, REFUSED
from hostside.core.call import ToolFailure, ToolResult
from hostside.core.canonical import escape_hidden
from hostside.core.policy import Profile
from hostside.errors import ConfigError


def call(
    tool: str,
    *,
    arguments: str | None,
    issue: str | None,
    tracker: str | None,
    profile: str | None,
    as_json: bool,
    config: Path | None,
) -> int:
    """Run one call and print its result; the exit code says refused (3) and failed (1) apart."""
    chosen = profile or Profile.WORKSPACE.value
    if chosen not in tuple(Profile):
        raise ConfigError(
            "invalid_configuration", f"there is no profile {chosen}.", remedy=f"Use one of: {', '.join(Profile)}."
        )
    value = read_arguments(arguments)

    async def work() -> ToolResult:
        with App.open(config=config) as app:
            return await call_once(
                app, tool, value, issue=issue, tracker=tracker, profile=Profile(chosen), folder=Path.cwd()
            )

    result = uvloop.run(work())
    if as_json:
        print_json(as_object(result))
    elif result.failure is None:
        say(escape_hidden(result.text()))
    else:
        _show(result.failure)
    if result.failure is None:
        return DONE
    return REFUSED if result.failure.refused else FAILED


def as_object(result: ToolResult) -> dict[str, Any]:
    """Return the object of `call --json`: `result` or `failure`, the other null."""
    failure = result.failure
    return {
        "ok": failure is None,
        "result": None if failure is not None else {"text": result.text(), "structured": result.structured},
        "failure": None if failure is None else _failure(failure),
        "receipt_id": result.receipt_id,
    }


def _failure(failure: ToolFailure) -> dict[str, Any]:
    found: Any = failure.as_object()["failure"]
    return {key: value for key, value in found.items() if key != "receipt_id"}


def _show(failure: ToolFailure) -> None:
    note(plain(f"{'refused' if failure.refused else 'failed'}: {failure.code}  {failure.message}"))
    note(plain(f"  try: {failure.remedy}"))
    note(plain(f"  see: hostside receipts show {failure.receipt_id}   (effect {failure.effect})"))
