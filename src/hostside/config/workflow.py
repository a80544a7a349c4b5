"""WORKFLOW.md: the repository's own file, after the Symphony specification, with a `claude` section (D16).

Whoever can change the repository can change it. So prompt, states, turns and shorter timeouts always work; a key that
chooses a command, an endpoint, a secret, a hook, a sandbox or an approval policy works only in content that the operator
has trusted, by hash. `workflow_front.KEYS` says which is which.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hostside.config.owned_files import UnsafeFileError, read_owned
from hostside.config.validation_text import describe
from hostside.config.workflow_front import (
    CREDENTIAL,
    GUARDED,
    AgentPart,
    FrontMatter,
    HooksPart,
    Rule,
    RuntimePart,
    TrackerPart,
    WorkflowLimits,
    bounded,
    named_keys,
    rule_of,
    without,
)
from hostside.config.workflow_template import TemplateError, issue_variables, render_template
from hostside.config.workflow_yaml import FrontMatterError, load_front_matter
from hostside.core.issue import Issue
from hostside.errors import ConfigError

__all__ = [
    "DEFAULT_PROMPT",
    "GUARDED",
    "MAX_BYTES",
    "AgentPart",
    "HooksPart",
    "RuntimePart",
    "TrackerPart",
    "Workflow",
    "WorkflowLimits",
    "default_workflow",
    "parse_workflow",
    "read_workflow",
    "workflow_digest",
]

MAX_BYTES = 262_144
DEFAULT_PROMPT = "You are working on issue {{ issue.identifier }}: {{ issue.title }}\n\n{{ issue.description }}\n"
_DEFAULT_LIMITS = WorkflowLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One reading of the file.

    `ignored` names the guarded keys that were set but not trusted; `capped` the timeouts that were longer than the
    host allows; `unused` keys of the specification that have no effect here; `unknown` keys that nobody declared; all
    in file order. `guarded` holds the values of trusted guarded keys by name, never a credential.
    `literal_secret`: the file holds a credential as itself, which is used by nobody (R-229).
    """

    sha256: str
    trusted: bool
    tracker: TrackerPart
    hooks: HooksPart
    agent: AgentPart
    codex: RuntimePart
    claude: RuntimePart
    prompt: str
    ignored: tuple[str, ...]
    capped: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    guarded: Mapping[str, Any] = field(default_factory=dict)
    literal_secret: bool = False

    def render(self, issue: Issue, *, attempt: int | None) -> str:
        """Return the prompt for `issue`; what the issue says is data, also where it looks like a template.

        Unknown variables, filters and tags are errors, and so is a template that does too much (ConfigError). Blocks
        up to 10 seconds, usually a fifth of one.
        """
        try:
            return render_template(self.prompt or DEFAULT_PROMPT, {"issue": issue_variables(issue), "attempt": attempt})
        except TemplateError as exc:
            raise ConfigError(
                "invalid_configuration",
                f"the prompt of WORKFLOW.md cannot be rendered: {exc}",
                remedy="Use only the fields of `issue` and `attempt`, and Liquid's own filters.",
            ) from None

    def notices(self) -> tuple[str, ...]:
        """Return what the operator must read before a run, one sentence for each key (D16, R-360). No value is in it."""
        said = [
            f"{name} is ignored: this content is not trusted (`hostside workflow trust FILE`)." for name in self.ignored
        ]
        said += [f"{name} is longer than this host allows; the host's limit is used." for name in self.capped]
        if self.literal_secret:
            said.append(f"{CREDENTIAL} holds a secret as itself. It is not used: remove and revoke it.")
        said += [f"{name} has no effect here." for name in self.unused]
        said += [f"{name} is not a known key and is ignored." for name in self.unknown]
        return tuple(said)


def workflow_digest(raw: bytes) -> str:
    """Return the hash by which content is trusted."""
    return hashlib.sha256(raw).hexdigest()


def read_workflow(path: Path) -> bytes:
    """Return the content of the operator's file. Raises ConfigError: missing, no regular file, another user's, or over
    256 KiB. There is no fallback: a file that was named and cannot be read must stop the run (Symphony §5.5)."""
    try:
        raw = read_owned(path, max_bytes=MAX_BYTES, forbidden=0)
    except UnsafeFileError as exc:
        raise ConfigError("invalid_configuration", f"{path}: {exc.message}.", remedy=exc.remedy) from None
    if raw is None:
        raise ConfigError("invalid_configuration", f"{path} does not exist.", remedy="Give the path of a WORKFLOW.md.")
    return raw


def parse_workflow(raw: bytes, *, trusted: bool, limits: WorkflowLimits = _DEFAULT_LIMITS) -> Workflow:
    """Return the workflow of `raw`. `limits`: the host's own (`HostSettings.workflow_limits`).

    Raises ConfigError, without repeating a value: over 256 KiB, not UTF-8, front matter that is not a YAML map or over
    64 KiB, duplicate keys, aliases or tags, or a value of the wrong kind.
    """
    if len(raw) > MAX_BYTES:
        raise _invalid(f"it is larger than {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None
    if "\0" in text:
        raise _invalid("it holds a null character")
    front, prompt = _split(text)
    try:
        document = load_front_matter(front)
    except FrontMatterError as exc:
        raise _invalid(str(exc)) from None
    rules = {name: rule_of(name) for name, _ in named_keys(document)}
    ignored = () if trusted else _having(rules, Rule.TRUSTED)
    credential = dict(named_keys(document)).get(CREDENTIAL)
    usable, capped = bounded(without(document, frozenset(ignored)), limits, trusted=trusted)
    try:
        parts = FrontMatter.model_validate(usable)
    except ValidationError as exc:
        raise _invalid(describe(exc, place=lambda location: location)) from None
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
        capped=capped,
        unused=_having(rules, Rule.UNUSED),
        unknown=tuple(name for name in _having(rules, None) if name not in FrontMatter.model_fields),
        guarded=_guarded(document) if trusted else {},
        literal_secret=credential not in (None, "") and not str(credential).startswith("$"),
    )


def default_workflow() -> Workflow:
    """Return the workflow of a repository that has none."""
    return parse_workflow(b"", trusted=True)


def _having(rules: Mapping[str, Rule | None], rule: Rule | None) -> tuple[str, ...]:
    return tuple(name for name, found in rules.items() if found is rule)


def _guarded(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named_keys(document) if rule_of(name) is Rule.TRUSTED and name != CREDENTIAL}


def _split(text: str) -> tuple[str, str]:
    """Return front matter and prompt (Symphony §5.2)."""
    first, _, rest = text.partition("\n")
    if not first.startswith("---") or (first.strip().strip("-") == "" and first.strip() != "---"):
        # Nothing, or a Markdown rule of more than three dashes.
        return "", text
    if first.strip() != "---":
        raise _invalid("its first line starts with `---` and goes on; front matter starts with `---` alone")
    lines = rest.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("---") and line.rstrip() == "---":
            return "\n".join(lines[:number]), "\n".join(lines[number + 1 :])
    raise _invalid("its front matter is not closed by a line `---`")


def _invalid(why: str) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"WORKFLOW.md cannot be used: {why}.",
        remedy="Mend the file; `hostside workflow show FILE` reads it without running anything.",
    )
