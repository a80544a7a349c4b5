"""git_status and git_diff, and the whole set of git tools that need no credential (Part 4 rows 10, 11, 15 and 16)."""

import io
from collections.abc import Iterable
from functools import partial

from hostside.core.call import CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.locality import Locality
from hostside.core.scope import RepositoryTarget, Target, relative_path
from hostside.core.spec import Capability, Risk, SideEffect, TargetContext, Tool, ToolSpec
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.tools.git_changes import PATHS, change_tools, given_paths, the_repository
from hostside.tools.git_repository import SAFE_DIFF, open_repository
from hostside.tools.git_runner import GitRunner
from hostside.tools.git_status import STATUS_WORDS, read_status, shown_path
from hostside.tools.result_size import MAX_TEXT_BYTES, cut_text, fitting_lines, json_bytes
from hostside.tools.workspace_paths import root_of, workspace_target

DIFF_CHARACTERS = 30_000
_DIFF_BYTES = 1024 * 1024


def git_tools(runner: GitRunner, workspace: Workspace | None = None) -> tuple[Tool, ...]:
    """Return git_status, git_diff, git_add and git_commit over the runner of one workspace.

    Bound to `workspace` when given: calls of a session with another one are refused (R-016).
    """
    return (
        Tool(spec=_GIT_STATUS, execute=partial(_git_status, runner, workspace)),
        Tool(spec=_GIT_DIFF, execute=partial(_git_diff, runner, workspace)),
        *change_tools(runner, workspace),
    )


def _repository_and_path(arguments: JsonObject, context: TargetContext) -> Iterable[Target]:
    return (RepositoryTarget(), workspace_target(str(arguments["path"]), context))


_CHANGE = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "status": {"type": "string", "enum": list(STATUS_WORDS)},
        "original_path": {"type": "string"},
    },
    "required": ["path", "status"],
    "additionalProperties": False,
}
_FILTERS = {"type": "array", "items": {"type": "string"}}

_GIT_STATUS = ToolSpec(
    name="git_status",
    title="Status of the repository",
    description=(
        "Show the branch, the last commit and what is staged, changed and untracked in the workspace's repository. "
        "`truncated` says that more changed than is listed: give a `path`. Content filters of the repository "
        "(`disabled_filters`, such as lfs) do not run here, so their files may show as changed."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Only this file or folder.", "default": "."},
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "branch": {"type": ["string", "null"]},
            "head": {"type": ["string", "null"]},
            "staged": {"type": "array", "items": _CHANGE},
            "unstaged": {"type": "array", "items": _CHANGE},
            "untracked": {"type": "array", "items": {"type": "string"}},
            "disabled_filters": _FILTERS,
            "truncated": {"type": "boolean"},
        },
        "required": ["branch", "head", "staged", "unstaged", "untracked", "disabled_filters", "truncated"],
        "additionalProperties": False,
    },
    capability=Capability.READ,
    side_effect=SideEffect.READ,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout_seconds=60.0,
    credentialed=False,
    targets_of=_repository_and_path,
    parallel_safe=True,
    aliases=("status",),
    source="builtin",
)

_GIT_DIFF = ToolSpec(
    name="git_diff",
    title="Differences in the repository",
    description=(
        "Show differences in the workspace's repository: work tree against index, or with `staged` index against the last "
        "commit; with `revision`, against that commit (or between two, `a..b`). At most "
        f"{DIFF_CHARACTERS} characters; `truncated` says that the end is missing: name `paths` or ask for `stat`. "
        "`lossy` says that a file is not UTF-8 and its bytes are shown as \\xNN. External diff programs, text converters "
        "and content filters do not run."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "staged": {
                "type": "boolean",
                "description": "Compare the index instead of the work tree.",
                "default": False,
            },
            "revision": {
                "type": "string",
                "description": "A commit, branch, tag, or range of two.",
                "pattern": "^[^-\\s\\x00-\\x20\\x7f][^\\s\\x00-\\x20\\x7f]*$",
                "maxLength": 500,
            },
            "paths": {**PATHS, "description": "Only these files or folders."},
            "stat": {"type": "boolean", "description": "Only the size of the changes by file.", "default": False},
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "truncated": {"type": "boolean"},
            "lossy": {"type": "boolean"},
            "disabled_filters": _FILTERS,
        },
        "required": ["text", "truncated", "lossy", "disabled_filters"],
        "additionalProperties": False,
    },
    capability=Capability.READ,
    side_effect=SideEffect.READ,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout_seconds=60.0,
    credentialed=False,
    targets_of=the_repository,
    parallel_safe=True,
    aliases=("diff",),
    source="builtin",
)


async def _git_status(
    runner: GitRunner, bound: Workspace | None, arguments: JsonObject, context: CallContext
) -> ToolResult:
    root = root_of(context, bound)
    repository = await open_repository(runner, root)
    status = await read_status(repository, [relative_path(root, str(arguments["path"]))])
    lists: dict[str, list[JsonValue]] = {
        "staged": [change.as_object() for change in status.staged],
        "unstaged": [change.as_object() for change in status.unstaged],
        "untracked": [shown_path(path) for path in status.untracked],
    }
    structured: JsonObject = {
        "branch": status.branch,
        "head": status.head,
        "disabled_filters": _named(repository.filters),
    }
    left = MAX_TEXT_BYTES - json_bytes(structured)
    for key, items in lists.items():
        kept, left = _fitting(items, left)
        structured[key] = kept
    truncated = any(structured[key] != items for key, items in lists.items())
    return ToolResult(structured={**structured, "truncated": truncated}, exit_code=0)


def _fitting(items: list[JsonValue], size: int) -> tuple[list[JsonValue], int]:
    for index, item in enumerate(items):
        cost = json_bytes(item) + 1
        if cost > size:
            return items[:index], 0
        size -= cost
    return items, size


def _named(filters: tuple[str, ...]) -> list[JsonValue]:
    return [name[:100] for name in filters[:20]]


async def _git_diff(
    runner: GitRunner, bound: Workspace | None, arguments: JsonObject, context: CallContext
) -> ToolResult:
    root = root_of(context, bound)
    repository = await open_repository(runner, root)
    words = ["diff", *SAFE_DIFF, "--no-relative", "--src-prefix=a/", "--dst-prefix=b/"]
    words += ["--cached"] if arguments["staged"] else []
    words += ["--stat=120"] if arguments["stat"] else ["--patch"]
    words += ["--end-of-options", *([str(arguments["revision"])] if "revision" in arguments else []), "--"]
    words += [relative_path(root, path) for path in given_paths(arguments)]
    done = await repository.run(*words, limit=_DIFF_BYTES)
    # A runner that cut the output may have stopped git, so its exit code then says nothing.
    if not done.truncated:
        repository.require(done, "diff")
    if done.truncated and not done.stdout:
        raise ToolFailed(
            FailureCode.TOOL_FAILED,
            "git diff had more to say than can be kept, and none of it was a difference.",
            remedy="Name fewer paths.",
            effect=Effect.NONE,
        )
    return ToolResult(
        structured={**_shown(done.stdout, cut=done.truncated), "disabled_filters": _named(repository.filters)},
        exit_code=0,
    )


def _shown(output: bytes, *, cut: bool) -> JsonObject:
    lossy = False
    try:
        text = output.decode()
    except UnicodeDecodeError:
        text, lossy = output.decode("utf-8", "backslashreplace"), True
    lines = io.StringIO(text, newline="\n").readlines()
    kept = fitting_lines(lines, DIFF_CHARACTERS)
    shown = "".join(lines[:kept])
    if not shown and text:
        shown = cut_text(text[:DIFF_CHARACTERS])
    return {"text": shown, "truncated": cut or shown != text, "lossy": lossy}
