"""Which workspace a call acts in, and which names in it no file tool touches (R-016, R-088, C-22, C-24)."""

from collections.abc import Iterable

from hostside.core.call import CallContext, Workspace
from hostside.core.canonical import JsonObject
from hostside.core.scope import PathTarget, Target, relative_path
from hostside.core.spec import TargetContext
from hostside.errors import FailureCode, ToolRefused


def outside(
    path: str, why: str, *, remedy: str = "Give a path inside the workspace, relative to its root."
) -> ToolRefused:
    """Return the refusal `outside_workspace`. It shows the path as given, never the real one (C-24)."""
    return ToolRefused(FailureCode.OUTSIDE_WORKSPACE, f"{path[:200]!r}: {why}", remedy=remedy)


def is_git_name(name: str) -> bool:
    """True for `.git` in any case: folders of some disks ignore case."""
    return name.casefold() == ".git"


def refuse_git(path: str, parts: Iterable[str]) -> None:
    """Raise ToolRefused(outside_workspace) when a part of the path is `.git` (C-22): what is in there decides what git
    runs, and in a worktree `.git` is a file that names another folder."""
    if any(map(is_git_name, parts)):
        raise outside(
            path,
            "The path is inside git's own folder.",
            remedy="Use git_status, git_diff, git_add or git_commit; git's own files are not read or written as files.",
        )


def workspace_target(path: str, context: TargetContext) -> PathTarget:
    """Return the path as a target, after a look at its names alone; links are looked at when it is opened."""
    root = None if context.workspace is None else context.workspace.root
    refuse_git(path, relative_path(root, path).split("/"))
    return PathTarget(path=path)


def the_path(arguments: JsonObject, context: TargetContext) -> Iterable[Target]:
    """Name the argument `path` as the target."""
    return (workspace_target(str(arguments["path"]), context),)


def root_of(context: CallContext, bound: Workspace | None) -> str:
    """Return the root of the session's workspace.

    `bound` is the workspace that a tool was made for; another session's workspace is refused (R-016).
    """
    workspace = context.workspace
    if workspace is None:
        raise ToolRefused(
            FailureCode.OUTSIDE_WORKSPACE,
            "This session has no workspace.",
            remedy="Open the session with a workspace.",
        )
    if bound is not None and (bound.id, bound.root) != (workspace.id, workspace.root):
        raise ToolRefused(
            FailureCode.OUTSIDE_WORKSPACE,
            "This tool was made for another workspace.",
            remedy="Report this to the operator: each workspace has its own tools.",
        )
    return workspace.root
