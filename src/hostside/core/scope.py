"""What a session may touch: targets, the granted scope, and the only function that narrows it.

`narrow` never widens. A path is compared lexically here; what only the disk can tell (a symbolic link) is refused by the
executor before its first effect (design §4, step 9).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hostside.core.issue import Issue
from hostside.errors import FailureCode, ToolRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueTarget:
    """One issue of the session's tracker, by its dispatch id."""

    issue_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTarget:
    """One path as the caller gave it: relative to the workspace root, or absolute inside it."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryTarget:
    """The session's own checkout as a whole (its index, its branch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTarget:
    """Something else that is scoped: a project, a branch, a run. `kind` and `id` are compared exactly."""

    kind: str
    id: str


Target = IssueTarget | PathTarget | RepositoryTarget | NamedTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The grant of one session. Absent means no: an empty scope permits no scoped target."""

    issue_id: str | None = None
    workspace_root: str | None = None
    named: frozenset[NamedTarget] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedScope:
    """What one call may touch, proven to lie inside its session's scope. Paths are relative, normalized, without `..`."""

    issue_id: str | None
    paths: tuple[str, ...]
    repository: bool
    named: frozenset[NamedTarget]


def issue_target(issue: Issue | None) -> frozenset[Target]:
    """Return the session's issue as a target. Without an issue (a topic run) tracker tools are refused (R-085)."""
    if issue is None:
        raise ToolRefused(
            FailureCode.OUTSIDE_ISSUE,
            "This session is not bound to an issue.",
            remedy="Use this tool in a run that works on an issue; at a terminal name one: `hostside call TOOL --issue ID`.",
        )
    return frozenset({IssueTarget(issue_id=issue.id)})


def narrow(granted: Scope, requested: Iterable[Target]) -> NarrowedScope:
    """Return `requested` when every target lies inside `granted`; raise ToolRefused for the first that does not.

    The refusal is the same whether or not the foreign object exists.
    """
    issue_id: str | None = None
    paths: list[str] = []
    repository = False
    named: set[NamedTarget] = set()
    for target in requested:
        if isinstance(target, IssueTarget):
            issue_id = _narrow_issue(granted, target)
        elif isinstance(target, PathTarget):
            paths.append(relative_path(granted.workspace_root, target.path))
        elif isinstance(target, RepositoryTarget):
            _require_workspace(granted.workspace_root)
            repository = True
        elif target in granted.named:
            named.add(target)
        else:
            raise ToolRefused(
                FailureCode.OUTSIDE_ISSUE,
                f"This {target.kind} does not belong to this run.",
                remedy="Use only what this run lists as its own.",
            )
    return NarrowedScope(issue_id=issue_id, paths=tuple(sorted(paths)), repository=repository, named=frozenset(named))


def relative_path(root: str | None, path: str) -> str:
    """Return `path` relative to `root`, normalized: `.` for the root itself, `/` between parts, no `..`.

    `~` is an ordinary character (R-088). Raises ToolRefused(outside_workspace) that shows the path as given.
    """
    workspace = _require_workspace(root)
    if "\x00" in path:
        raise _outside(path.replace("\x00", "\\0"), "A path cannot hold a NUL character.")
    if not path:
        raise _outside(path, "An empty path names nothing; use `.` for the workspace root.")
    parts = path.split("/")
    if path.startswith("/"):
        parts = _below_root(workspace, path)
    kept: list[str] = []
    for part in parts:
        if part in ("", "."):
            continue
        if part == "..":
            if not kept:
                raise _outside(path)
            kept.pop()
        else:
            kept.append(part)
    return "/".join(kept) or "."


def _below_root(workspace: str, path: str) -> list[str]:
    root = [part for part in workspace.split("/") if part not in ("", ".")]
    kept: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if kept:
                kept.pop()
        else:
            kept.append(part)
    if kept[: len(root)] != root:
        raise _outside(path)
    return kept[len(root) :]


def _narrow_issue(granted: Scope, target: IssueTarget) -> str:
    if granted.issue_id is None or target.issue_id != granted.issue_id:
        raise ToolRefused(
            FailureCode.OUTSIDE_ISSUE,
            "This issue is not the one that this run works on.",
            remedy="Use the tools without naming an issue: they act on this run's issue.",
        )
    return target.issue_id


def _require_workspace(root: str | None) -> str:
    if root is None:
        raise ToolRefused(
            FailureCode.OUTSIDE_WORKSPACE,
            "This session has no workspace.",
            remedy="Open the session with a workspace.",
        )
    return root


def _outside(path: str, why: str = "The path leaves the workspace.") -> ToolRefused:
    return ToolRefused(
        FailureCode.OUTSIDE_WORKSPACE,
        f"{path[:200]!r}: {why}",
        remedy="Give a path inside the workspace, relative to its root.",
    )
