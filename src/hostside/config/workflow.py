"""WORKFLOW.md: the repository's own file, after the Symphony specification, with a `claude` section (D16).

Whoever can change the repository can change it. So prompt, states, turns and shorter timeouts always work; a key that
chooses a command, an endpoint, a secret, a hook, a sandbox or an approval policy works only in content that the operator
has trusted, by hash.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from liquid import Environment, StrictUndefined
from liquid.exceptions import LiquidError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hostside.core.issue import Issue
from hostside.errors import ConfigError

MAX_BYTES = 262_144
DEFAULT_PROMPT = "You are working on issue {{ issue.identifier }}: {{ issue.title }}\n\n{{ issue.description }}\n"
#: Keys that need trust, as `section.key`. A trailing `.*` covers the whole section.
GUARDED = (
    "tracker.endpoint",
    "tracker.api_key",
    "workspace.root",
    "hooks.after_create",
    "hooks.before_run",
    "hooks.after_run",
    "hooks.before_remove",
    "codex.command",
    "codex.approval_policy",
    "codex.thread_sandbox",
    "codex.turn_sandbox_policy",
    "claude.command",
    "claude.permission_mode",
    "server.*",
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", strict=False)


class TrackerPart(_Part):
    """`kind` selects a tracker that hostside.toml names."""

    kind: str | None = None
    name: str | None = None
    active_states: tuple[str, ...] = ("Todo", "In Progress")
    terminal_states: tuple[str, ...] = ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")


class HooksPart(_Part):
    """Shell scripts of the workspace's life (R-336..R-339)."""

    after_create: str | None = None
    before_run: str | None = None
    after_run: str | None = None
    before_remove: str | None = None
    timeout_ms: int = Field(default=60_000, ge=1, le=3_600_000)


class AgentPart(_Part):
    """How long an agent may go on."""

    max_turns: int = Field(default=20, ge=1, le=1_000)


class RuntimePart(_Part):
    """One agent's timeouts (`codex`, `claude`). A stall timeout of 0 or less switches stall detection off."""

    turn_timeout_ms: int = Field(default=3_600_000, ge=1)
    read_timeout_ms: int = Field(default=5_000, ge=1)
    stall_timeout_ms: int = 300_000
    model: str | None = None


class _Front(_Part):
    tracker: TrackerPart = TrackerPart()
    hooks: HooksPart = HooksPart()
    agent: AgentPart = AgentPart()
    codex: RuntimePart = RuntimePart()
    claude: RuntimePart = RuntimePart()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One reading of the file. `ignored` names the guarded keys that were set but not trusted, in file order."""

    sha256: str
    trusted: bool
    tracker: TrackerPart
    hooks: HooksPart
    agent: AgentPart
    codex: RuntimePart
    claude: RuntimePart
    prompt: str
    ignored: tuple[str, ...]

    def render(self, issue: Issue, *, attempt: int | None) -> str:
        """Return the prompt for `issue`. Unknown variables and filters are errors (ConfigError)."""
        environment = Environment(undefined=StrictUndefined, strict_filters=True)
        try:
            return environment.from_string(self.prompt or DEFAULT_PROMPT).render(
                issue=_issue_variables(issue), attempt=attempt
            )
        except LiquidError as exc:
            raise ConfigError(
                "invalid_configuration",
                f"the prompt of WORKFLOW.md cannot be rendered: {exc.args[0] if exc.args else type(exc).__name__}"[
                    :300
                ],
                remedy="Use only the fields of `issue` and `attempt`, and Liquid's own filters.",
            ) from None


def workflow_digest(raw: bytes) -> str:
    """Return the hash by which content is trusted."""
    return hashlib.sha256(raw).hexdigest()


def parse_workflow(raw: bytes, *, trusted: bool) -> Workflow:
    """Return the workflow of `raw`. Raises ConfigError: over 256 KiB, not UTF-8, front matter that is not a YAML map,
    duplicate keys, or a value of the wrong kind."""
    if len(raw) > MAX_BYTES:
        raise _invalid(f"it is larger than {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None
    front, prompt = _split(text)
    document = _load(front)
    ignored = () if trusted else tuple(_guarded_keys(document))
    usable = document if trusted else _without(document, ignored)
    try:
        parts = _Front.model_validate(usable)
    except ValidationError as exc:
        problem = exc.errors(include_input=False)[0]
        raise _invalid(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    return Workflow(
        sha256=workflow_digest(raw),
        trusted=trusted,
        tracker=parts.tracker,
        hooks=parts.hooks,
        agent=parts.agent,
        codex=parts.codex,
        claude=parts.claude,
        prompt=prompt.strip(),
        ignored=ignored,
    )


def default_workflow() -> Workflow:
    """Return the workflow of a repository that has none."""
    return parse_workflow(b"", trusted=True)


class _StrictLoader(yaml.SafeLoader):
    """YAML without a second meaning: duplicate keys are refused, aliases too (they can grow without bound)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.YAMLError(f"the key {name[:60]!r} is given twice")
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*\r?$\n?(.*)\Z", re.DOTALL | re.MULTILINE)


def _split(text: str) -> tuple[str, str]:
    if not text.startswith("---"):
        return "", text
    match = _FRONT.match(text)
    if match is None:
        raise _invalid("its front matter is not closed by a line `---`")
    return match.group(1), match.group(2)


def _load(front: str) -> dict[str, Any]:
    try:
        document = yaml.load(front, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise _invalid(f"its front matter is not YAML: {' '.join(str(exc).split())[:160]}") from None
    if document is None:
        return {}
    if not isinstance(document, dict) or any(not isinstance(key, str) for key in document):
        raise _invalid("its front matter is not a map")
    return document


def _guarded_keys(document: Mapping[str, Any]) -> list[str]:
    found = []
    for section, value in document.items():
        if f"{section}.*" in GUARDED:
            found.append(section)
        elif isinstance(value, Mapping):
            found += [f"{section}.{key}" for key in value if f"{section}.{key}" in GUARDED]
    return found


def _without(document: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for section, value in document.items():
        if section in names:
            continue
        if isinstance(value, Mapping):
            kept[section] = {key: item for key, item in value.items() if f"{section}.{key}" not in names}
        else:
            kept[section] = value
    return kept


def _issue_variables(issue: Issue) -> dict[str, Any]:
    return {
        "id": issue.id,
        "identifier": issue.identifier,
        "title": issue.title,
        "description": issue.description or "",
        "state": issue.state,
        "priority": issue.priority,
        "labels": list(issue.labels),
        "branch_name": issue.branch_name,
        "url": issue.url,
        "assignees": list(issue.assignees),
        "blocked_by": [
            {"id": item.id, "identifier": item.identifier, "state": item.state} for item in issue.blocked_by
        ],
        "created_at": None if issue.created_at is None else issue.created_at.isoformat(),
        "updated_at": None if issue.updated_at is None else issue.updated_at.isoformat(),
    }


def _invalid(why: str) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"WORKFLOW.md cannot be used: {why}.",
        remedy="Mend the file; `hostside workflow show FILE` reads it without running anything.",
    )
