"""Which tools this host knows, and which of them each transport offers. Needs no open host, no secret and no store."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hostside.app.host import SESSION_LIFE, policy_of, workspace_tools
from hostside.app.planning import offered_tools
from hostside.config.host import FileTrackerSection, HostSettings
from hostside.core.call import Workspace
from hostside.core.explain import Explanation, explain
from hostside.core.issue import Issue
from hostside.core.locality import CallerDisk, Reach
from hostside.core.policy import Profile
from hostside.core.registry import Registry, RegistrySnapshot
from hostside.core.session import Session, open_session
from hostside.core.spec import Tool
from hostside.errors import ConfigError, FailureCode
from hostside.tools.git_runner import GitCompleted, GitUnavailable
from hostside.trackers.base import TrackerAdapter
from hostside.trackers.file import FileTracker, FileTrackerSettings

#: An edge of a managed run reaches that run's workspace and nothing else (D6).
RUN_TRANSPORTS = ("run-http", "inband", "codex", "functions")
TRANSPORTS = ("stdio", *RUN_TRANSPORTS, "http")
_DISKS = {"stdio": CallerDisk.SHARED, "http": CallerDisk.UNPROVEN}
_STAND_IN_KEY = bytes(32)
_STAND_IN_STATES = ("Todo", "In Progress", "In Review", "Done")


class NoGit:
    """The runner of tools that are listed and never executed: a session without reach cannot come to it."""

    async def run(
        self, argv: Sequence[str], *, timeout_seconds: float, output_limit_bytes: int, stdin: bytes | None = None
    ) -> GitCompleted:
        """Raise GitUnavailable."""
        raise GitUnavailable("this surface has no checkout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Every tool by its contract, and the tracker kinds of the configuration that this version has no tools for."""

    registry: RegistrySnapshot
    unsupported: tuple[str, ...]


def catalogue(settings: HostSettings) -> Catalogue:
    """Return the tools of every configured tracker kind, the file tracker's where none is configured, and those of a
    workspace. Their executors are not to be called."""
    trackers, unsupported = _tracker_tools(settings)
    return Catalogue(
        registry=Registry([*trackers, *workspace_tools(NoGit())]).snapshot(), unsupported=tuple(sorted(unsupported))
    )


def listed_adapter() -> TrackerAdapter:
    """Return a file tracker that stands for its kind: its tools and profile are read, its file never."""
    return FileTracker(
        FileTrackerSettings(path=Path("/nonexistent/issues.json"), states=_STAND_IN_STATES, key=_STAND_IN_KEY)
    )


def explain_on(
    settings: HostSettings,
    tool: str,
    transport: str,
    *,
    profile: str | None,
    arguments: object | None,
    folder: Path,
    now: datetime,
) -> Explanation:
    """Return what a session on `transport` would say of a call, with an issue and the workspace `folder` behind it.

    Raises ConfigError for an unknown transport, profile or tool.
    """
    known = catalogue(settings).registry
    if transport not in TRANSPORTS:
        raise _unknown("transport", transport, TRANSPORTS)
    if tool not in known.tools:
        raise unknown_tool(tool, known.tools)
    session = _hypothetical(settings, transport, profile_of(profile, settings, transport), folder, now)
    found = explain(session, tool, arguments)
    return found if tool in session.registry.tools else _not_offered(found, tool, transport)


def profile_of(wished: str | None, settings: HostSettings, transport: str) -> Profile:
    """Return the profile of a session: as wished, else the run's own on its edges, else readonly. Raises ConfigError."""
    text = wished or (settings.run.profile if transport in RUN_TRANSPORTS else Profile.READONLY.value)
    if text not in tuple(Profile):
        raise _unknown("profile", text, tuple(Profile))
    return Profile(text)


def unknown_tool(name: str, known: Iterable[str]) -> ConfigError:
    """Return the error of a tool name that this host has not."""
    return _unknown("tool", name, known, more="`hostside tools list` shows them with their facts.")


def _unknown(what: str, name: str, known: Iterable[str], *, more: str = "") -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"there is no {what} {name}.",
        remedy=f"Use one of: {', '.join(sorted(known))}. {more}".strip(),
    )


def _tracker_tools(settings: HostSettings) -> tuple[tuple[Tool, ...], frozenset[str]]:
    sections = settings.trackers.values()
    unsupported = frozenset(section.kind for section in sections if not isinstance(section, FileTrackerSection))
    if sections and not any(isinstance(section, FileTrackerSection) for section in sections):
        return (), unsupported
    return listed_adapter().tools(), unsupported


def _hypothetical(settings: HostSettings, transport: str, profile: Profile, folder: Path, now: datetime) -> Session:
    return open_session(
        session_id="s-explain",
        registry=Registry(_TOOLS_ON.get(transport, _run_tools)(settings)).snapshot(),
        edge=transport,
        server_id="srv-explain",
        principal="explain",
        profile=profile,
        reach=Reach(caller_disk=_DISKS.get(transport, CallerDisk.SHARED), server_checkout=False),
        opened_at=now,
        expires_at=now + SESSION_LIFE,
        issue=Issue(id="any", identifier="ANY-1", title="Any issue", state="Todo", dispatchable=True),
        workspace=Workspace(id=folder.name, root=str(folder)),
        policy=policy_of(settings),
    )


def _stdio_tools(_settings: HostSettings) -> Iterable[Tool]:
    return workspace_tools(NoGit())


def _http_tools(settings: HostSettings) -> Iterable[Tool]:
    return (*_tracker_tools(settings)[0], *workspace_tools(NoGit()))


def _run_tools(settings: HostSettings) -> Iterable[Tool]:
    native = "off" if settings.agent.kind == "scripted" else settings.agent.native_tools
    return (*_tracker_tools(settings)[0], *offered_tools(settings, native)(NoGit()))


_TOOLS_ON: dict[str, Callable[[HostSettings], Iterable[Tool]]] = {"stdio": _stdio_tools, "http": _http_tools}


def _not_offered(found: Explanation, tool: str, transport: str) -> Explanation:
    if transport == "stdio":
        message = f"{tool} is not offered here: a stdio server that an agent starts holds no credential."
        alternative = "Use it in a managed run, through `hostside call --issue ID`, or over `hostside serve --http`."
    else:
        message = f"{tool} is not offered in runs: the agent has its own, and every listed tool costs context."
        alternative = 'Name its family in hostside.toml: [run] tools = ["files", "git"].'
    return Explanation(
        would_run=False,
        code=FailureCode.UNKNOWN_TOOL,
        blocker="not_offered",
        message=message,
        alternative=alternative,
        checks=found.checks,
    )
