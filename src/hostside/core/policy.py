"""Who may do what: named profiles, modes and the intersection of every layer (R-056..R-064). No layer widens another."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hostside.core.spec import Capability, ToolSpec
from hostside.errors import FailureCode, ToolRefused

ALL: frozenset[Capability] = frozenset(Capability)


class Profile(StrEnum):
    """A named set of capabilities."""

    READONLY = "readonly"
    WORKSPACE = "workspace"
    FULL = "full"


PROFILES: dict[Profile, frozenset[Capability]] = {
    Profile.READONLY: frozenset({Capability.READ, Capability.NETWORK}),
    Profile.WORKSPACE: frozenset(
        {
            Capability.READ,
            Capability.WRITE,
            Capability.SHELL,
            Capability.NETWORK,
            Capability.GIT,
            Capability.BROWSER,
        }
    ),
    Profile.FULL: ALL,
}


class Mode(StrEnum):
    """Ask and Plan reduce authority to reading, whatever else is granted (R-061)."""

    WORK = "work"
    ASK = "ask"
    PLAN = "plan"


MODES: dict[Mode, frozenset[Capability]] = {
    Mode.WORK: ALL,
    Mode.ASK: PROFILES[Profile.READONLY],
    Mode.PLAN: PROFILES[Profile.READONLY],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The host's policy of one session. `confirm` asks on these tools on every surface; `calls_per_minute` 0 means none."""

    configuration: frozenset[Capability] = ALL
    confirm: frozenset[str] = frozenset()
    calls_per_minute: int = 600
    list_unreachable: bool = False


def effective(
    *,
    configuration: frozenset[Capability],
    profile: Profile,
    mode: Mode,
    token: frozenset[Capability] | None = None,
    child: frozenset[Capability] | None = None,
) -> frozenset[Capability]:
    """Return the intersection of every layer. A layer that is absent (None) narrows nothing."""
    layers: Iterable[frozenset[Capability] | None] = (configuration, PROFILES[profile], MODES[mode], token, child)
    granted = ALL
    for layer in layers:
        if layer is not None:
            granted &= layer
    return granted


def authorize(spec: ToolSpec, granted: frozenset[Capability], *, profile: Profile, mode: Mode) -> None:
    """Raise ToolRefused(capability_denied) unless the tool's capability is granted; the blocker names the layer."""
    if spec.capability in granted:
        return
    if spec.capability not in MODES[mode]:
        blocker, remedy = f"mode_{mode}", f"Leave {mode} mode to use this tool."
    elif spec.capability not in PROFILES[profile]:
        blocker, remedy = (
            f"profile_{profile}",
            f"An operator can open a session with a profile that has `{spec.capability}`.",
        )
    else:
        blocker, remedy = "grant", "An operator can grant this capability to a new session."
    raise ToolRefused(
        FailureCode.CAPABILITY_DENIED,
        f"{spec.name} needs the capability `{spec.capability}`, which this session does not have.",
        remedy=remedy,
        blocker=blocker,
    )


def needs_approval(spec: ToolSpec, policy: Policy, edge: str) -> bool:
    """Return whether a person has to decide first, from metadata and policy, never from the name's look (R-064)."""
    return spec.name in policy.confirm or edge in spec.confirm_on
