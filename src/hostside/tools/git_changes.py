"""git_add and git_commit: exactly the named paths and exactly the given message (R-096, R-140, C-06, C-22, C-23)."""

from collections.abc import Iterable, Sequence
from functools import partial

from hostside.core.call import CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.locality import Locality
from hostside.core.scope import RepositoryTarget, Target, relative_path
from hostside.core.spec import Capability, Risk, SideEffect, TargetContext, Tool, ToolSpec
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.tools.git_repository import Repository, command_failed, open_repository
from hostside.tools.git_runner import GitRunner
from hostside.tools.git_status import Status, read_status, shown_path
from hostside.tools.result_size import MAX_TEXT_BYTES, json_bytes
from hostside.tools.workspace_paths import root_of, workspace_target

#: Of git_diff and git_add. The pattern keeps out what git could read as an option (C-22).
PATHS: dict[str, object] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 4_096, "pattern": "^[^-]"},
    "minItems": 1,
    "maxItems": 200,
}


def change_tools(runner: GitRunner, workspace: Workspace | None = None) -> tuple[Tool, ...]:
    """Return git_add and git_commit (see `git_tools`)."""
    return (
        Tool(
            spec=_GIT_ADD,
            execute=partial(_git_add, runner, workspace),
            verify=partial(_is_added, runner, workspace),
        ),
        Tool(
            spec=_GIT_COMMIT,
            execute=partial(_git_commit, runner, workspace),
            verify=partial(_is_committed, runner, workspace),
        ),
    )


def given_paths(arguments: JsonObject) -> list[str]:
    """Return the argument `paths`, empty when absent."""
    paths = arguments.get("paths", [])
    assert isinstance(paths, list)
    return [str(path) for path in paths]


def the_repository(arguments: JsonObject, context: TargetContext) -> Iterable[Target]:
    """Name the repository and each of `paths` as targets."""
    return (RepositoryTarget(), *(workspace_target(path, context) for path in given_paths(arguments)))


_GIT_ADD = ToolSpec(
    name="git_add",
    title="Stage changes",
    description=(
        "Stage changed, new and deleted files of the workspace's repository, all of them or those at or below `paths`. "
        "Ignored files are left out. Repositories inside the repository are skipped and named in `skipped`. A file that "
        "goes through a content filter (such as lfs) is refused, since filters do not run here."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "paths": {**PATHS, "description": "Files or folders to stage; left out, everything is."},
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "staged": {"type": "array", "items": {"type": "string"}},
            "count": {"type": "integer"},
            "skipped": {"type": "array", "items": {"type": "string"}},
            "truncated": {"type": "boolean"},
        },
        "required": ["staged", "count", "skipped", "truncated"],
        "additionalProperties": False,
    },
    capability=Capability.GIT,
    side_effect=SideEffect.MUTATION,
    risk=Risk.HIGH,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout_seconds=120.0,
    credentialed=False,
    targets_of=the_repository,
    aliases=("add",),
    confirm_on=frozenset({"tui"}),
    source="builtin",
)

_GIT_COMMIT = ToolSpec(
    name="git_commit",
    title="Commit what is staged",
    description=(
        "Commit what is staged on the branch of this run. The message is kept byte for byte, lines with `#` too. Hooks and "
        "signing programs of the repository do not run. With nothing staged it fails."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "message": {
                "type": "string",
                "description": "The whole message.",
                "minLength": 1,
                "maxLength": 65_536,
                "pattern": "^[^\\x00]*[^\\s\\x00][^\\x00]*$",
            }
        },
        "required": ["message"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "commit": {"type": "string"},
            "parent": {"type": ["string", "null"]},
            "branch": {"type": ["string", "null"]},
        },
        "required": ["commit", "parent", "branch"],
        "additionalProperties": False,
    },
    capability=Capability.GIT,
    side_effect=SideEffect.MUTATION,
    risk=Risk.HIGH,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=False,
    open_world=False,
    timeout_seconds=120.0,
    credentialed=False,
    targets_of=the_repository,
    aliases=("commit",),
    confirm_on=frozenset({"tui"}),
    source="builtin",
    free_text=("/message",),
)


async def _git_add(
    runner: GitRunner, bound: Workspace | None, arguments: JsonObject, context: CallContext
) -> ToolResult:
    root = root_of(context, bound)
    paths = [relative_path(root, path) for path in given_paths(arguments)]
    repository = await open_repository(runner, root)
    status = await read_status(repository, paths, each_file=True, renames=False)
    changed = [change.path for change in status.unstaged if not change.submodule]
    # A path that ends in `/` here is a whole repository; staging one would run git in it, with its own configuration.
    changed += [path for path in status.untracked if not path.endswith(b"/")]
    skipped = [change.path for change in status.unstaged if change.submodule]
    skipped += [path for path in status.untracked if path.endswith(b"/")]
    await _require_known(repository, paths, status)
    await _refuse_filtered(repository, changed)
    if changed:
        # By exact names, not by `git add`: that would run git inside changed submodules.
        done = await repository.run(
            "update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=_joined(changed), changes=True
        )
        # The new index takes the old one's place in one step, at the very end.
        repository.require(done, "update-index")
    staged = [shown_path(path) for path in sorted(changed)]
    shown = _fitting([*staged])
    return ToolResult(
        structured={
            "staged": shown,
            "count": len(staged),
            "skipped": [shown_path(path)[:500] for path in sorted(skipped)[:10]],
            "truncated": len(shown) < len(staged),
        },
        effect=Effect.REPORTED,
        exit_code=0,
    )


def _joined(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _fitting(items: list[JsonValue]) -> list[JsonValue]:
    size = MAX_TEXT_BYTES - 8_000
    for index, item in enumerate(items):
        size -= json_bytes(item) + 1
        if size < 0:
            return items[:index]
    return items


async def _require_known(repository: Repository, paths: Sequence[str], status: Status) -> None:
    """Raise ToolFailed for a named path that is neither changed nor tracked: it is missing or ignored."""
    listed = [change.path for change in (*status.unstaged, *status.staged)] + list(status.untracked)
    unlisted = [path for path in paths if not _covers(path, listed)]
    if not unlisted:
        return
    done = await repository.run("ls-files", "--error-unmatch", "-z", "--", *unlisted, limit=65_536)
    if done.exit_code != 0 and not done.truncated:
        raise command_failed("add", done, effect=Effect.NONE)


def _covers(path: str, listed: Sequence[bytes]) -> bool:
    name = path.encode()
    return path == "." or any(item.rstrip(b"/") == name or item.startswith(name + b"/") for item in listed)


async def _refuse_filtered(repository: Repository, paths: Sequence[bytes]) -> None:
    """Raise ToolFailed when a path goes through a content filter: staged without it, the wrong content (a whole large
    file, a secret in plain text) would get into the repository."""
    if not paths:
        return
    output = await repository.output("check-attr", "-z", "--stdin", "filter", stdin=_joined(paths))
    fields = output.split(b"\0")
    for path, value in zip(fields[0::3], fields[2::3], strict=False):
        if value not in (b"unspecified", b"unset"):
            name = value.decode("utf-8", "backslashreplace")[:100]
            raise ToolFailed(
                FailureCode.PRECONDITION_FAILED,
                f"{shown_path(path)[:200]!r} goes through the content filter filter.{name}, which does not run here. "
                "Nothing was staged.",
                remedy="Stage this file with git in the agent's own shell, or name only other paths.",
                effect=Effect.NONE,
                details=[{"rule": "filter", "key": f"filter.{name}", "path": shown_path(path)[:500]}],
            )


async def _is_added(
    runner: GitRunner, bound: Workspace | None, _arguments: JsonObject, context: CallContext, result: ToolResult
) -> bool:
    """No path that the result names still differs from the index."""
    names = result.structured["staged"]
    assert isinstance(names, list)
    repository = await open_repository(runner, root_of(context, bound))
    status = await read_status(repository, each_file=True, renames=False)
    left = {shown_path(change.path) for change in status.unstaged} | {shown_path(path) for path in status.untracked}
    return left.isdisjoint(map(str, names))


async def _git_commit(
    runner: GitRunner, bound: Workspace | None, arguments: JsonObject, context: CallContext
) -> ToolResult:
    repository = await open_repository(runner, root_of(context, bound))
    branch = await _branch(repository)
    assigned = None if context.workspace is None else context.workspace.branch
    if assigned is not None and branch != assigned:
        raise ToolFailed(
            FailureCode.PRECONDITION_FAILED,
            f"The checkout is on {_on(branch)}, not on this run's branch {assigned!r}. Nothing was committed.",
            remedy=f"Check out {assigned} in the workspace and call again.",
            effect=Effect.NONE,
            details=[{"rule": "branch", "expected": assigned, "got": branch}],
        )
    before = await _head(repository)
    done = await repository.run(
        "commit",
        "--quiet",
        "--no-verify",
        "--no-gpg-sign",
        "--no-post-rewrite",
        "--cleanup=verbatim",
        "--file=-",
        stdin=str(arguments["message"]).encode(),
        changes=True,
    )
    after = await _head(repository)
    if done.exit_code != 0:
        if after == before and not done.stderr.strip():
            await _require_staged(repository, done.exit_code)
        repository.require(done, "commit", effect=Effect.NONE if after == before else Effect.UNKNOWN)
    assert after is not None
    return ToolResult(
        structured={"commit": after, "parent": before, "branch": branch}, effect=Effect.REPORTED, exit_code=0
    )


async def _require_staged(repository: Repository, exit_code: int) -> None:
    # Git says it on standard output, where `--quiet` silences it.
    if (await repository.run("diff", "--cached", "--quiet", "--no-ext-diff", "--no-textconv")).exit_code != 0:
        return
    raise ToolFailed(
        FailureCode.TOOL_FAILED,
        f"git commit failed with exit code {exit_code}: nothing is staged",
        remedy="Stage what belongs into the commit with git_add and call again.",
        effect=Effect.NONE,
        exit_code=exit_code,
    )


def _on(branch: str | None) -> str:
    return "no branch" if branch is None else f"the branch {branch!r}"


async def _branch(repository: Repository) -> str | None:
    done = await repository.run("symbolic-ref", "--quiet", "HEAD")
    name = done.stdout.decode("utf-8", "backslashreplace").rstrip("\n")
    return name.removeprefix("refs/heads/") if done.exit_code == 0 and name.startswith("refs/heads/") else None


async def _head(repository: Repository) -> str | None:
    done = await repository.run("rev-parse", "--quiet", "--verify", "--end-of-options", "HEAD^{commit}")
    return done.stdout.decode("ascii", "replace").strip() if done.exit_code == 0 else None


async def _is_committed(
    runner: GitRunner, bound: Workspace | None, arguments: JsonObject, context: CallContext, result: ToolResult
) -> bool:
    """The assigned branch stands at the commit, and the commit holds the message as sent."""
    repository = await open_repository(runner, root_of(context, bound))
    commit, branch = str(result.structured["commit"]), result.structured["branch"]
    ref = "HEAD" if branch is None else f"refs/heads/{branch}"
    at = await repository.output("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    raw = await repository.output("cat-file", "commit", commit)
    message = raw.partition(b"\n\n")[2]
    return at.decode("ascii", "replace").strip() == commit and message == str(arguments["message"]).encode()
