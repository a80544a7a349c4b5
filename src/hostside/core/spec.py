"""What a tool is: one spec, one executor, perhaps one verifier (D4, design §5.1).

Safety facts have no defaults: leaving one out is a type error here and a registration error for anything built by hand.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hostside.core.call import MAX_RESULT_BYTES, CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject
from hostside.core.issue import Issue
from hostside.core.locality import Locality
from hostside.core.scope import Target


class Capability(StrEnum):
    """What a session must have been granted before a tool may run."""

    READ = "read"
    WRITE = "write"
    SHELL = "shell"
    NETWORK = "network"
    GIT = "git"
    BROWSER = "browser"
    DESTRUCTIVE = "destructive"
    DYNAMIC = "dynamic"


class SideEffect(StrEnum):
    """What a tool MAY do. What is KNOWN to have happened is a receipt's `effect`."""

    NONE = "none"
    READ = "read"
    MUTATION = "mutation"
    EXTERNAL = "external"
    STATEFUL = "stateful"
    INTERNAL_WRITE = "internal_write"
    ORCHESTRATION = "orchestration"
    UNKNOWN = "unknown"


class Risk(StrEnum):
    """Whether a person would want to look first."""

    NORMAL = "normal"
    HIGH = "high"


class Visibility(StrEnum):
    """Whether a tool is listed at all. A hidden one is still called through the one boundary."""

    PUBLIC = "public"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetContext:
    """The host facts that `targets_of` may use. Targets come from here, never from an argument (R-079)."""

    issue: Issue | None
    workspace: Workspace | None


TargetsOf = Callable[[JsonObject, TargetContext], Iterable[Target]]
ChangesState = Callable[[JsonObject], bool]
Executor = Callable[[JsonObject, CallContext], Awaitable[ToolResult]]
#: True: the real state was read and is as intended. False: it is not. Raising counts as False.
Verifier = Callable[[JsonObject, CallContext, ToolResult], Awaitable[bool]]


def touches_nothing(_arguments: JsonObject, _context: TargetContext) -> Iterable[Target]:
    """Say that a call touches nothing that is scoped."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The contract of one tool. `timeout_seconds` bounds one execution; `result_bytes` the text of one success."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object]
    capability: Capability
    side_effect: SideEffect
    risk: Risk
    locality: Locality
    destructive: bool
    idempotent: bool
    open_world: bool
    timeout_seconds: float
    credentialed: bool
    targets_of: TargetsOf
    visibility: Visibility = Visibility.PUBLIC
    parallel_safe: bool = False
    aliases: tuple[str, ...] = ()
    argument_aliases: Mapping[str, str] | None = None
    confirm_on: frozenset[str] = frozenset()
    version: str = "1"
    source: str = "custom"
    free_text: tuple[str, ...] = ()
    changes_state: ChangesState | None = None
    result_bytes: int = MAX_RESULT_BYTES
    rate_limit_note: str | None = None

    @property
    def read_only(self) -> bool:
        """Derived, never stored: the tool may change nothing."""
        return self.side_effect in (SideEffect.NONE, SideEffect.READ)

    @property
    def approval(self) -> tuple[str, ...]:
        """The surfaces on which a person is asked first, sorted."""
        return tuple(sorted(self.confirm_on))

    @property
    def writes_once(self) -> bool:
        """External and not idempotent: an identical call in a session replays its outcome instead of running (D23)."""
        return self.side_effect is SideEffect.EXTERNAL and self.capability is Capability.WRITE and not self.idempotent

    def is_state_changing(self, arguments: JsonObject) -> bool:
        """Return whether this call changes state, from the spec and typed arguments alone (R-140)."""
        if self.read_only:
            return False
        return True if self.changes_state is None else self.changes_state(arguments)

    def facts(self) -> JsonObject:
        """Return every advertised fact as JSON: the fingerprint, `tools list` and the documents are made of it."""
        return {
            "name": self.name,
            "title": self.title,
            "capability": self.capability.value,
            "side_effect": self.side_effect.value,
            "risk": self.risk.value,
            "locality": self.locality.value,
            "destructive": self.destructive,
            "idempotent": self.idempotent,
            "open_world": self.open_world,
            "approval": list(self.approval),
            "aliases": list(self.aliases),
            "argument_aliases": dict(self.argument_aliases or {}),
            "source": self.source,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A spec with its code. `execute` gets validated arguments and host facts, and returns a ToolResult or raises."""

    spec: ToolSpec
    execute: Executor
    verify: Verifier | None = None
