"""The front matter of WORKFLOW.md: which keys there are, who may set them, and what they hold (Symphony §5.3, D16)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Rule(StrEnum):
    """When a key of the front matter works."""

    ALWAYS = "always"
    SHORTEN = "only shorter"
    """Trusted content sets it; other content can only shorten what the host allows."""
    TRUSTED = "trusted"
    UNUSED = "never"
    """The specification has it; here hostside.toml decides, or there is nothing to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontKey:
    """One key, `section.key`; `section.*` stands for all of a section."""

    name: str
    rule: Rule
    meaning: str


def _keys(rule: Rule, **meanings: str) -> tuple[FrontKey, ...]:
    return tuple(
        FrontKey(name=name.replace("__", ".").replace("_ALL", "*"), rule=rule, meaning=text)
        for name, text in meanings.items()
    )


KEYS: tuple[FrontKey, ...] = (
    *_keys(
        Rule.ALWAYS,
        tracker__kind="Selects the tracker of this kind that hostside.toml names.",
        tracker__name="Selects the tracker of this name in hostside.toml, where it names more than one of the kind.",
        tracker__active_states="States in which an issue is worked: a list, or text with commas.",
        tracker__terminal_states="States in which an issue is done with: a list, or text with commas.",
        agent__max_turns="Turns of one conversation, 1 to 1000; 20 where nothing is said.",
        codex__model="The model that Codex uses.",
        claude__model="The model that Claude Code uses.",
    ),
    *_keys(
        Rule.SHORTEN,
        hooks__timeout_ms="How long each hook may take; `run.hook_seconds` where nothing is said.",
        codex__turn_timeout_ms="How long a turn may take; `run.turn_minutes` where nothing is said.",
        codex__read_timeout_ms="How long an answer to a request at start-up may take; 5000 where nothing is said.",
        codex__stall_timeout_ms="How long the agent may be silent; `run.stall_seconds` where nothing is said, 0 for ever.",
        claude__turn_timeout_ms="As for Codex.",
        claude__read_timeout_ms="As for Codex.",
        claude__stall_timeout_ms="As for Codex.",
    ),
    *_keys(
        Rule.TRUSTED,
        hooks__after_create="A shell script that runs once in a new workspace; its failure discards the workspace.",
        hooks__before_run="A shell script that runs before the agent; its failure ends the run.",
        hooks__after_run="A shell script that runs after the agent; its failure is logged.",
        hooks__before_remove="A shell script that runs before a workspace is removed; its failure is logged.",
        workspace__root="The folder of all workspaces.",
        codex__command="The command that starts Codex.",
        codex__approval_policy="When Codex asks.",
        codex__thread_sandbox="Codex's own sandbox.",
        codex__turn_sandbox_policy="Codex's own sandbox, for a turn.",
        claude__command="The command that starts Claude Code.",
        claude__permission_mode="When Claude Code asks.",
        tracker__endpoint="The address of the tracker's API.",
        tracker__api_key="The tracker's credential. It is never read: hostside.toml names it.",
        server___ALL="Listeners.",
    ),
    *_keys(
        Rule.UNUSED,
        tracker__project_slug="The project is named in hostside.toml.",
        polling__interval_ms="A run works one issue; nothing polls.",
        agent__max_concurrent_agents="A run works one issue.",
        agent__max_concurrent_agents_by_state="A run works one issue.",
        agent__max_retry_backoff_ms="A run is not repeated by itself.",
    ),
)
_RULES: Mapping[str, Rule] = {key.name: key.rule for key in KEYS}
#: Keys that need trust, as `section.key`. A trailing `.*` covers the whole section.
GUARDED: tuple[str, ...] = tuple(key.name for key in KEYS if key.rule is Rule.TRUSTED)
#: Never handed on, trusted or not: a credential comes from hostside.toml alone (R-229).
CREDENTIAL = "tracker.api_key"


MAX_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowLimits:
    """The host's own limits, in milliseconds: ceilings of content that is not trusted, defaults of any content."""

    turn_timeout_ms: int = 3_600_000
    read_timeout_ms: int = 5_000
    stall_timeout_ms: int = 300_000
    hook_timeout_ms: int = 60_000


def _integer(value: Any) -> Any:
    # YAML's true is no number, though Python says so; "5" is one (Symphony §5.3.2).
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected an integer")
    if isinstance(value, str) and not value.strip().lstrip("-").isdecimal():
        raise ValueError("expected an integer")
    return int(value) if len(str(value)) <= 18 else 10**18


def _states(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("expected a list of states, or text with commas")
    states = tuple(stripped for part in parts if (stripped := part.strip()))
    if len(states) > 100 or any(len(state) > 100 for state in states):
        raise ValueError("at most 100 states of at most 100 characters")
    return states


Integer = Annotated[int, BeforeValidator(_integer)]
States = Annotated[tuple[str, ...], BeforeValidator(_states)]
#: It becomes an argument of the agent's program, so it can be no option.
Model = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class TrackerPart(_Part):
    """`kind` selects a tracker that hostside.toml names."""

    kind: str | None = None
    name: str | None = None
    active_states: States = ("Todo", "In Progress")
    terminal_states: States = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")


class HooksPart(_Part):
    """Shell scripts of the workspace's life (R-336..R-339)."""

    after_create: str | None = None
    before_run: str | None = None
    after_run: str | None = None
    before_remove: str | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 60_000


class AgentPart(_Part):
    """How long an agent may go on."""

    max_turns: Annotated[Integer, Field(ge=1, le=1_000)] = 20


class RuntimePart(_Part):
    """One agent's timeouts (`codex`, `claude`). A stall timeout of 0 or less switches stall detection off."""

    turn_timeout_ms: Annotated[Integer, Field(ge=1, le=MAX_MS)] = 3_600_000
    read_timeout_ms: Annotated[Integer, Field(ge=1, le=MAX_MS)] = 5_000
    stall_timeout_ms: Annotated[Integer, Field(le=MAX_MS)] = 300_000
    model: Model | None = None


class FrontMatter(_Part):
    """All that is read of the front matter."""

    tracker: TrackerPart = TrackerPart()
    hooks: HooksPart = HooksPart()
    agent: AgentPart = AgentPart()
    codex: RuntimePart = RuntimePart()
    claude: RuntimePart = RuntimePart()


def rule_of(name: str) -> Rule | None:
    """Return the rule of `section.key`, or None for a key that nobody declared."""
    return _RULES.get(name) or _RULES.get(f"{name.partition('.')[0]}.*")


def named_keys(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each key with its value as `section.key`, in file order; a section that is no map, and a whole section
    that one rule covers, as themselves."""
    for section, value in document.items():
        if f"{section}.*" in _RULES or not isinstance(value, Mapping):
            yield section, value
        else:
            yield from ((f"{section}.{key}", item) for key, item in value.items())


def without(document: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return `document` without the keys `names` (as `named_keys` names them), and without whatever is null."""
    kept: dict[str, Any] = {}
    for section, value in document.items():
        if section in names or value is None:
            continue
        if isinstance(value, Mapping):
            kept[section] = {
                key: item for key, item in value.items() if item is not None and f"{section}.{key}" not in names
            }
        else:
            kept[section] = value
    return kept


def bounded(
    document: Mapping[str, Any], limits: WorkflowLimits, *, trusted: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return `document` with every timeout set, and the names of those that were cut to the host's limit.

    Only what is not trusted is cut. A value that is no number, or a section that is no map, stays for the model to
    refuse.
    """
    result = dict(document)
    cut = []
    for name, limit in _ceilings(limits):
        section, key = name.split(".")
        part = result.get(section, {})
        if not isinstance(part, Mapping):
            continue
        try:
            asked = _integer(part.get(key, limit))
        except ValueError:
            continue
        if asked <= 0 and name == "hooks.timeout_ms":
            asked = limit  # Symphony §5.3.4: not positive means the default
        # A stall timeout of 0 means none, which is the longest.
        longer = asked > limit or (asked <= 0 and key == "stall_timeout_ms")
        if longer and not trusted:
            cut.append(name)
            asked = limit
        result[section] = {**part, key: asked}
    return result, tuple(cut)


def _ceilings(limits: WorkflowLimits) -> Iterator[tuple[str, int]]:
    yield "hooks.timeout_ms", limits.hook_timeout_ms
    for section in ("codex", "claude"):
        yield f"{section}.turn_timeout_ms", limits.turn_timeout_ms
        yield f"{section}.read_timeout_ms", limits.read_timeout_ms
        yield f"{section}.stall_timeout_ms", limits.stall_timeout_ms
