"""The reference pages, from registry, specs, profiles and the command line: text by path (R-345..R-348, D19).

Nothing here knows which tools there are: who composes the host hands them in.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostside.config.reference import render_settings
from hostside.core.canonical import compact
from hostside.core.registry import RegisteredTool, RegistrySnapshot
from hostside.errors import REFUSED, FailureCode
from hostside.trackers.profile import ToolProfile, TrackerProfile

REFERENCE = "docs/reference"
INVENTORY_PAGE = f"{REFERENCE}/tools.md"
TOOL_PAGES = f"{REFERENCE}/tools"
TRACKER_PAGES = f"{REFERENCE}/trackers"
ERRORS_PAGE = f"{REFERENCE}/errors.md"
COMMANDS_PAGE = f"{REFERENCE}/cli.md"
GENERATED = "Generated from the code; `make snap` writes it anew.\n"

MEANINGS: Mapping[FailureCode, str] = {
    FailureCode.UNKNOWN_TOOL: "The name is not in this session's snapshot.",
    FailureCode.INVALID_ARGUMENTS: "The arguments are no JSON object, or break the tool's schema; the pointer is named.",
    FailureCode.LOCALITY_REFUSED: "The tool needs a disk that this edge does not reach: `no_caller_disk`, "
    "`disk_unproven` or `no_checkout`.",
    FailureCode.CAPABILITY_DENIED: "Profile, mode, token, child or plan do not grant the tool's capability.",
    FailureCode.OUTSIDE_ISSUE: "It is not this run's, whether or not it exists.",
    FailureCode.OUTSIDE_WORKSPACE: "A path leaves the workspace, or leads into git's own folder.",
    FailureCode.APPROVAL_REQUIRED: "A person has to decide and has not yet; ask again later.",
    FailureCode.APPROVAL_DENIED: "A person or a policy said no, or nobody can be asked.",
    FailureCode.DUPLICATE_OPERATION: "The call's key was used for another tool or other arguments.",
    FailureCode.RATE_LIMITED: "The host's own limit is reached; no provider was asked.",
    FailureCode.SESSION_CLOSED: "The session has ended, was revoked or is paused.",
    FailureCode.RECEIPT_UNAVAILABLE: "The host cannot record, so it runs nothing.",
    FailureCode.CHECK_CRASHED: "A check of the host broke; fail closed.",
    FailureCode.MISSING_TRACKER_SECRET: "The tracker has no credential.",
    FailureCode.PRECONDITION_FAILED: "State, hash or lock are not as expected; nothing was changed.",
    FailureCode.TOOL_FAILED: "An expected failure: no such file, a command's exit code.",
    FailureCode.TOOL_CRASHED: "A bug of the tool. Its text stays in the host's log.",
    FailureCode.TIMED_OUT: "The tool's deadline passed; `effect` says what is known.",
    FailureCode.CANCELLED: "The caller went away or the run ended; `effect` says what is known.",
    FailureCode.EFFECT_UNKNOWN: "A write whose answer was lost, or whose effect was not found. Read before writing again.",
    FailureCode.TRACKER_REQUEST: "The tracker was not reached, or a local file could not be used.",
    FailureCode.TRACKER_STATUS: "The tracker answered with an HTTP status that is no success.",
    FailureCode.TRACKER_RESPONSE: "The tracker's answer does not follow its contract.",
    FailureCode.TRACKER_PAGINATION: "A list cannot be continued: the cursor is lost or unknown.",
    FailureCode.TRACKER_RATE_LIMITED: "The provider's limit is used up; `retry_after_ms` where it said how long.",
}
START_UP = {
    "invalid_configuration": "hostside.toml, WORKFLOW.md, an option or the machine does not allow what was asked.",
    "unsupported_tracker_kind": "The tracker's kind is not supported by this version.",
    "invalid_tracker_config": "A tracker's section cannot be used, or none or several answer.",
}
EXIT_CODES = {
    0: "done",
    1: "failed",
    2: "usage or configuration: nothing was begun",
    3: "refused by the boundary or the issue's state: nothing was done",
    130: "interrupted by Ctrl-C",
}
_EFFECTS = {
    "none": "Nothing was changed.",
    "reported": "The executor, or the provider, says that it changed something.",
    "verified": "The state was read afterwards and is as intended.",
    "unknown": "It may or may not have happened.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionFact:
    """One option or argument as the command line declares it."""

    name: str
    meaning: str
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFact:
    """One command. `name` holds its groups too: `hostside tools list`."""

    name: str
    usage: str
    meaning: str
    options: tuple[OptionFact, ...]


def pages(
    registry: RegistrySnapshot, profiles: Iterable[TrackerProfile], commands: Sequence[CommandFact]
) -> dict[str, str]:
    """Return every generated page by its path in the repository."""
    tools = {f"{TOOL_PAGES}/{name}.md": tool_page(item) for name, item in registry.tools.items()}
    trackers = {f"{TRACKER_PAGES}/{profile.kind}.md": tracker_page(profile) for profile in profiles}
    return {
        INVENTORY_PAGE: inventory_page(registry),
        **tools,
        ERRORS_PAGE: errors_page(),
        COMMANDS_PAGE: commands_page(commands),
        **trackers,
        **render_settings(),
    }


def drift(root: Path, wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths below `root` that differ from `wanted`, are missing, or are pages of something that is gone."""
    differing = {path for path, text in wanted.items() if _text(root / path) != text}
    kept = {path for folder in (TOOL_PAGES, TRACKER_PAGES) for path in _pages_in(root, folder)}
    return tuple(sorted(differing | (kept - wanted.keys())))


def write(root: Path, wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Make the pages below `root` as `wanted`; return the paths that were changed or removed."""
    changed = drift(root, wanted)
    for path in changed:
        file = root / path
        if path in wanted:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted[path], encoding="utf-8")
        else:
            file.unlink()
    return changed


def inventory_page(registry: RegistrySnapshot) -> str:
    """Return the inventory of all tools."""
    head = ("tool", "class", "capability", "effect", "risk", "arguments", "aliases", "approval", "text")
    rows = [_inventory_row(item) for item in registry.tools.values()]
    return _page(
        "Tools",
        f"{len(rows)} tools. Class: where a tool works. Effect: what it may do; a receipt says what is known. "
        "An argument with `*` is required. Aliases are former names: they are reserved, and none of them is called. "
        "Text: what a model reads, on every edge the compact JSON of the result.",
        _table(head, rows),
    )


def tool_page(item: RegisteredTool) -> str:
    """Return the page of one tool."""
    spec = item.spec
    facts = [(name.replace("_", " "), _value(value)) for name, value in spec.facts().items() if name != "title"]
    facts += [
        ("timeout", f"{spec.timeout_seconds:g} s"),
        ("result", f"at most {spec.result_bytes} bytes of text"),
        ("credentialed", _value(spec.credentialed)),
        ("verified", "the effect is read back" if item.tool.verify is not None else "no"),
        ("parallel safe", _value(spec.parallel_safe)),
        ("input schema", f"{item.schema_bytes} bytes"),
        ("executor", f"`{_module_of(item.tool.execute)}`"),
    ]
    if spec.rate_limit_note:
        facts.append(("rate limits", spec.rate_limit_note))
    arguments = argument_rows(item.advertised_input)
    results = argument_rows(item.output.document)
    head = ("name", "type", "required", "rules", "meaning")
    return _page(
        spec.name,
        f"{spec.title}.\n\n{spec.description}",
        "## Arguments\n\n" + (_table(head, arguments) if arguments else "None.\n"),
        "## Result\n\n" + (_table(head, results) if results else "An empty object.\n"),
        f"## Facts\n\n{_table(('fact', 'value'), facts)}",
    )


def errors_page() -> str:
    """Return every code that a call or a start can end with."""

    def rows(refused: bool) -> list[tuple[str, str]]:
        return [(f"`{code}`", meaning) for code, meaning in MEANINGS.items() if (code in REFUSED) is refused]

    return _page(
        "Errors",
        "A failure is `code`, `message`, `remedy`, `effect`, `retry_after_ms`, `details` and `receipt_id`. Codes are a "
        "contract: they are never renamed. An unknown tool is JSON-RPC error -32602 on MCP and `success: false` on "
        "Codex; every other failure is a result with `isError: true`.",
        f"## Refused: nothing was done\n\n{_table(('code', 'meaning'), rows(True))}",
        f"## Failed: work began\n\n{_table(('code', 'meaning'), rows(False))}",
        f"## Effect: what is known\n\n{_table(('effect', 'meaning'), _quoted(_EFFECTS))}",
        f"## At start-up\n\n{_table(('code', 'meaning'), _quoted(START_UP))}",
        "## Exit codes of commands\n\n" + _table(("code", "meaning"), [(str(k), v) for k, v in EXIT_CODES.items()]),
    )


def commands_page(commands: Sequence[CommandFact]) -> str:
    """Return every command with its options."""
    parts = []
    for command in commands:
        rows = [(f"`{item.name}`", item.default or "-", item.meaning) for item in command.options]
        listed = _table(("option", "default", "meaning"), rows) if rows else ""
        parts.append(f"## {command.name}\n\n{command.meaning}\n\n```\n{command.usage}\n```\n\n{listed}".rstrip() + "\n")
    return _page(
        "Commands",
        "Data goes to standard output, everything else to standard error. With `--json` a command prints one JSON object; "
        'an error is then `{"ok": false, "error": {"code", "message", "remedy"}}`. Exit codes: [errors](errors.md).',
        *parts,
    )


def tracker_page(profile: TrackerProfile) -> str:
    """Return the page of one tracker kind."""
    settings = [
        (f"`{item.key}`", "required" if item.default is None else f"`{item.default}`", item.meaning)
        for item in profile.settings
    ]
    general = [
        ("scope", profile.scope),
        ("paging", profile.paging),
        ("ids", profile.ids),
        ("native reference", profile.native_ref),
        ("secrets", ", ".join(profile.secrets) or "none"),
        *(("limit", text) for text in profile.limits),
    ]
    fields = [(f"`{name}`", source) for name, source in profile.normalization.items()]
    return _page(
        f"Tracker: {profile.kind}",
        "What the adapter needs, reads and writes.",
        f"## Settings\n\n{_table(('key', 'default', 'meaning'), settings)}",
        f"## Behaviour\n\n{_table(('fact', 'value'), general)}",
        f"## Fields of an issue\n\n{_table(('field', 'from'), fields)}",
        f"## Tools\n\n{_table(_PROFILE_HEAD, [_profile_row(tool) for tool in profile.tools])}",
        "## Errors\n\n" + _table(("code", "when"), [(f"`{item.code}`", item.when) for item in profile.errors]),
        "## Errors at start-up\n\n"
        + _table(("code", "when"), [(f"`{item.code}`", item.when) for item in profile.validation_errors]),
    )


def argument_rows(schema: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return one row for each property of an object schema, nested ones with their path.

    Each is name, type, `yes` or `no` for required, its other rules, and its description.
    """
    return list(_rows(schema, ""))


def _rows(schema: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str, str, str, str]]:
    required = schema.get("required", ())
    for name, found in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        rules = ", ".join(f"{key} {_rule(found[key])}" for key in _RULES if key in found)
        yield path, _type(found), "yes" if name in required else "no", rules or "-", found.get("description", "-")
        items = found.get("items", {})
        nested, inside = (items, f"{path}[].") if "properties" in items else (found, f"{path}.")
        if "properties" in nested:
            yield from _rows(nested, inside)


_RULES = (
    "enum",
    "const",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "pattern",
    "format",
)
_PROFILE_HEAD = ("tool", "mutates", "scope", "results", "errors", "idempotency", "rate limits", "permission")


def _profile_row(tool: ToolProfile) -> tuple[str, ...]:
    errors = ", ".join(f"`{code}`" for code in tool.errors)
    link = f"[`{tool.name}`](../tools/{tool.name}.md)"
    words = (tool.scope, tool.results, errors, tool.idempotency, tool.rate_limits, tool.permission)
    return (link, "yes" if tool.mutates else "no", *words)


def _inventory_row(item: RegisteredTool) -> tuple[str, ...]:
    spec = item.spec
    required = item.advertised_input.get("required", [])
    properties = item.advertised_input["properties"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    arguments = ", ".join(f"{name}{'*' if name in required else ''}" for name in properties)
    renamed = [f"{alias} = {name}" for alias, name in (spec.argument_aliases or {}).items()]
    results = item.output.document["properties"]
    assert isinstance(results, dict)
    return (
        f"[`{spec.name}`](tools/{spec.name}.md)",
        spec.locality,
        spec.capability,
        spec.side_effect,
        spec.risk,
        arguments or "none",
        ", ".join((*spec.aliases, *renamed)) or "none",
        ", ".join(spec.approval) or "none",
        f"{{{', '.join(results)}}}",
    )


def _type(found: Mapping[str, Any]) -> str:
    kind = found.get("type", "any")
    name = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if kind == "array" and "type" in found.get("items", {}):
        return f"array of {_type(found['items'])}"
    return name


def _rule(value: object) -> str:
    return f"`{compact(value)}`"  # type: ignore[arg-type]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {item}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _module_of(execute: object) -> str:
    return str(getattr(getattr(execute, "func", execute), "__module__", "unknown"))


def _quoted(rows: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", meaning) for name, meaning in rows.items()]


def _page(title: str, *parts: str) -> str:
    return "\n".join((f"# {title}\n", GENERATED, *(part.rstrip("\n") + "\n" for part in parts)))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _pages_in(root: Path, folder: str) -> Iterable[str]:
    path = root / folder
    return [f"{folder}/{file.name}" for file in sorted(path.glob("*.md"))] if path.is_dir() else []
