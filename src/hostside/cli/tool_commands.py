"""`hostside tools list|show|explain`."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hostside.app.catalogue import catalogue, explain_on, unknown_tool
from hostside.cli.arguments import read_arguments
from hostside.cli.output import colour, fields, note, plain, print_json, say, table
from hostside.config.host import HostSettings, load_settings
from hostside.config.paths import host_paths
from hostside.core.canonical import JsonValue
from hostside.core.explain import CheckOutcome, Explanation
from hostside.core.registry import RegisteredTool
from hostside.docs import argument_rows
from hostside.errors import ConfigError

#: What `approval` says of a tool that hostside.toml names under policy.confirm.
EVERYWHERE = "all"
_HEADER = ("NAME", "CLASS", "CAPABILITY", "EFFECT", "RISK", "APPROVAL", "TITLE")
_SHOWN = {CheckOutcome.OK: "green", CheckOutcome.REFUSED: "red"}
_OVER = {"http": "serve --http", "stdio": "serve --stdio"}


def list_tools(*, as_json: bool, config: Path | None) -> int:
    """Print every tool with its facts."""
    settings = settings_of(config)
    known = catalogue(settings)
    if known.unsupported:
        note(plain(f"not listed: tools of {', '.join(known.unsupported)} (not supported by this version)"))
    tools = known.registry.tools.values()
    if as_json:
        rows = [_facts(item, settings) for item in tools]
        print_json({"fingerprint": known.registry.fingerprint, "tools": rows})
        return 0
    for line in table([_row(item, settings) for item in tools], header=_HEADER):
        say(line)
    return 0


def show_tool(name: str, *, as_json: bool, config: Path | None) -> int:
    """Print one tool's contract. Raises ConfigError for an unknown one."""
    settings = settings_of(config)
    tools = catalogue(settings).registry.tools
    if name not in tools:
        raise unknown_tool(name, tools)
    item = tools[name]
    if as_json:
        print_json({**item.contract(), "approval": _approval(item, settings)})
        return 0
    spec = item.spec
    say(colour(plain(f"{spec.name}  {spec.title}"), "bold"))
    say(plain(spec.description))
    say()
    rows = argument_rows(item.advertised_input)
    for line in table(rows, header=("ARGUMENT", "TYPE", "REQUIRED", "RULES", "MEANING")) if rows else ["no arguments"]:
        say(line)
    say()
    facts = {key: _words(value) for key, value in _facts(item, settings).items() if key not in ("name", "title")}
    facts["result"] = ", ".join(item.output.document["properties"])  # type: ignore[arg-type]
    facts["timeout"] = f"{spec.timeout_seconds:g} s"
    for line in fields(facts):
        say(line)
    return 0


def explain_tool(
    name: str, *, transport: str, profile: str | None, arguments: str | None, as_json: bool, config: Path | None
) -> int:
    """Print whether a call would run. Raises ConfigError for an unknown tool, transport or profile."""
    settings = settings_of(config)
    found = explain_on(
        settings,
        name,
        transport,
        profile=profile,
        arguments=None if arguments is None else read_arguments(arguments),
        folder=Path.cwd(),
        now=datetime.now(UTC),
    )
    if as_json:
        print_json({"tool": name, "transport": transport, **found.as_object()})
        return 0
    item = catalogue(settings).registry.tools[name]
    verdict = colour("would run", "green") if found.would_run else colour("would be refused", "red")
    say(f"{name} over {_OVER.get(transport, transport)}: {verdict}")
    for line in fields(_explained(item, found), indent=2):
        say(line)
    say("  checks    " + _checks(found))
    return 0


def settings_of(config: Path | None) -> HostSettings:
    """Return the settings alone, without opening the host. Raises ConfigError."""
    if config is not None and not config.exists():
        raise ConfigError(
            "invalid_configuration", f"{config} does not exist.", remedy="Give the path of a hostside.toml."
        )
    return load_settings(host_paths(os.environ, config=config).config_file)


def _explained(item: RegisteredTool, found: Explanation) -> Mapping[str, str]:
    needs = {
        "remotable": "runs on the host, from anywhere",
        "caller_filesystem": "needs the caller's own disk",
        "server_checkout": "needs a checkout on the server",
    }
    lines = {"class": f"{item.spec.locality}: {needs[item.spec.locality]}"}
    if not found.would_run:
        lines["blocker"] = f"{found.blocker}: {found.message}"
        lines["instead"] = str(found.alternative)
    return lines


def _checks(found: Explanation) -> str:
    reached = [check for check in found.checks if check.outcome is not CheckOutcome.NOT_REACHED]
    words = [f"{check.step} {colour(_said(check.outcome), _SHOWN.get(check.outcome, 'dim'))}" for check in reached]
    missing = [check.step for check in found.checks if check.outcome is CheckOutcome.NOT_REACHED]
    return " · ".join(words) + (f" ({', '.join(missing)} not reached)" if missing else "")


def _said(outcome: CheckOutcome) -> str:
    return "needs --arguments" if outcome is CheckOutcome.NOT_CHECKED else outcome.value


def _facts(item: RegisteredTool, settings: HostSettings) -> dict[str, Any]:
    return {**item.spec.facts(), "approval": _approval(item, settings), "schema_bytes": item.schema_bytes}


def _approval(item: RegisteredTool, settings: HostSettings) -> list[JsonValue]:
    return [EVERYWHERE] if item.spec.name in settings.policy.confirm else list(item.spec.approval)


def _row(item: RegisteredTool, settings: HostSettings) -> tuple[object, ...]:
    spec = item.spec
    approval = ",".join(map(str, _approval(item, settings))) or "-"
    return spec.name, spec.locality, spec.capability, spec.side_effect, spec.risk, approval, spec.title


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {item}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value)
