"""One workspace repository, opened so that nothing in it decides what git runs (C-22, C-23, R-096).

Hooks, fsmonitor, pagers, external diffs, text converters, content filters, merge drivers, signing programs and
transports of the repository's own configuration are switched off for every command. Drivers have names that only the
configuration knows, so their keys are listed first (which runs nothing) and each is overridden by name. A repository
that is changed while a command runs can still defeat that; it then runs its program inside the run's own isolation.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.tools.git_runner import GitCompleted, GitRunner, GitUnavailable

COMMAND_SECONDS = 30.0
LIST_BYTES = 4 * 1024 * 1024
MAX_DRIVERS = 200
#: For every command that can show a difference; submodules are compared by commit alone, since git would run in them.
SAFE_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty")
_FIXED = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "core.editor=:",
    "core.askPass=/bin/false",
    "core.sshCommand=/bin/false",
    "core.alternateRefsCommand=/bin/false",
    "core.quotePath=false",
    "credential.helper=",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=/bin/false",
    "gc.auto=0",
    "maintenance.auto=false",
    "diff.ignoreSubmodules=dirty",
    "submodule.recurse=false",
    "status.submoduleSummary=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
)
_LOCK = re.compile(rb"Unable to create '([^'\n]+\.lock)': File exists")
_BASE = ("git", "--no-pager", "--literal-pathspecs", *(word for pair in _FIXED for word in ("-c", pair)))
#: What each kind of driver is overridden with. An empty command is no command; `required` would make that an error.
_OVERRIDES = {
    "filter": ("clean=", "smudge=", "process=", "required=false"),
    "merge": ("driver=/bin/false",),
    "protocol": ("allow=never",),
    "hook": ("enabled=false",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The repository of one workspace, as it was when a call began. `filters` are the content filters it configures."""

    runner: GitRunner
    root: str
    git_dir: str
    overrides: tuple[str, ...]
    filters: tuple[str, ...]

    async def run(
        self, *words: str, stdin: bytes | None = None, limit: int = LIST_BYTES, changes: bool = False
    ) -> GitCompleted:
        """Run one git command on exactly this repository and work tree, whatever the configuration says.

        Raises ToolFailed when git does not start or exceeds its time; `changes` says that its effect is then unknown.
        """
        where = (f"--git-dir={self.git_dir}", f"--work-tree={self.root}")
        locks = () if changes else ("--no-optional-locks",)
        argv = (*_BASE, *self.overrides, *locks, *where, *words)
        return await _run(self.runner, argv, words[0], limit=limit, stdin=stdin, changes=changes)

    async def output(self, *words: str, stdin: bytes | None = None) -> bytes:
        """Return the whole output of a command that must succeed and only reads. Raises ToolFailed."""
        done = await self.run(*words, stdin=stdin)
        self.require(done, words[0])
        if done.truncated:
            raise ToolFailed(
                FailureCode.TOOL_FAILED,
                f"git {words[0]} has more than {LIST_BYTES} bytes to say about this repository.",
                remedy="Name fewer paths.",
                effect=Effect.NONE,
            )
        return done.stdout

    def require(self, done: GitCompleted, command: str, *, effect: Effect = Effect.NONE) -> None:
        """Raise ToolFailed unless the command succeeded; a lock that another git holds is `precondition_failed`."""
        if done.exit_code == 0:
            return
        lock = _LOCK.search(done.stderr)
        if lock is not None:
            raise _locked(self.root, self.git_dir, os.fsdecode(lock.group(1)))
        raise command_failed(command, done, effect=effect)


async def open_repository(runner: GitRunner, root: str) -> Repository:
    """Return the repository whose top level is `root`.

    Raises ToolFailed(precondition_failed) when the workspace is no repository, or only lies inside another one.
    """
    argv = (*_BASE, "rev-parse", "--absolute-git-dir", "--show-toplevel")
    done = await _run(runner, argv, "rev-parse")
    git_dir, _, top = done.stdout.removesuffix(b"\n").partition(b"\n")
    if done.exit_code != 0 or os.fsdecode(top) != root:
        raise ToolFailed(
            FailureCode.PRECONDITION_FAILED,
            "The workspace root is not the top level of a git repository.",
            remedy="Git tools act on the workspace's own repository only. Check it, or tell the operator.",
            effect=Effect.NONE,
            exit_code=done.exit_code,
        )
    names = await _configured_names(runner)
    return Repository(
        runner=runner,
        root=root,
        git_dir=os.fsdecode(git_dir),
        overrides=_overrides(names),
        filters=tuple(sorted({name for section, name in names if section == "filter"})),
    )


def command_failed(command: str, done: GitCompleted, *, effect: Effect) -> ToolFailed:
    """Return the failure of a git command with its exit code and the end of what it said."""
    said = done.stderr.decode("utf-8", "backslashreplace").strip()[-1_000:]
    return ToolFailed(
        FailureCode.TOOL_FAILED,
        f"git {command} failed with exit code {done.exit_code}: {said or 'it said nothing'}",
        remedy="Read what git says, correct the arguments or the state, and call again.",
        effect=effect,
        exit_code=done.exit_code,
    )


async def _run(
    runner: GitRunner,
    argv: Sequence[str],
    command: str,
    *,
    limit: int = LIST_BYTES,
    stdin: bytes | None = None,
    changes: bool = False,
) -> GitCompleted:
    try:
        done = await runner.run(argv, timeout_seconds=COMMAND_SECONDS, output_limit_bytes=limit, stdin=stdin)
    except GitUnavailable as exc:
        raise ToolFailed(
            FailureCode.TOOL_FAILED,
            f"git could not be started: {exc}",
            remedy="Tell the operator: git has to be there in the run's isolation.",
            effect=Effect.NONE,
        ) from None
    if done.timed_out:
        raise ToolFailed(
            FailureCode.TIMED_OUT,
            f"git {command} did not end within {COMMAND_SECONDS:g} seconds.",
            remedy="Name fewer paths, or look at the state of the repository first.",
            effect=Effect.UNKNOWN if changes else Effect.NONE,
        )
    return done


async def _configured_names(runner: GitRunner) -> frozenset[tuple[str, str]]:
    """Return `(section, driver)` for every configured key of a kind that is overridden. Listing runs nothing."""
    done = await _run(runner, (*_BASE, "config", "--list", "--name-only", "-z"), "config")
    if done.exit_code != 0 or done.truncated:
        raise command_failed("config", done, effect=Effect.NONE)
    names: set[tuple[str, str]] = set()
    for key in os.fsdecode(done.stdout).split("\0"):
        section, _, rest = key.partition(".")
        driver, dot, _ = rest.rpartition(".")
        if section in _OVERRIDES and dot:
            names.add((section, driver))
    return frozenset(names)


def _overrides(names: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    if len(names) > MAX_DRIVERS:
        raise _unsafe(f"more than {MAX_DRIVERS} filters, merge drivers, hooks and protocols")
    words: list[str] = []
    for section, driver in sorted(names):
        if "=" in driver or "\n" in driver:
            # `-c` ends a key at the first `=`, so this one could not be overridden.
            raise _unsafe(f"the key {f'{section}.{driver}'[:100]!r}")
        for assignment in _OVERRIDES[section]:
            words += ["-c", f"{section}.{driver}.{assignment}"]
    return tuple(words)


def _unsafe(what: str) -> ToolFailed:
    return ToolFailed(
        FailureCode.PRECONDITION_FAILED,
        f"The repository's configuration has {what}, which the host cannot switch off.",
        remedy="Remove it from the repository's git configuration.",
        effect=Effect.NONE,
    )


def _locked(root: str, git_dir: str, lock: str) -> ToolFailed:
    """Return the failure for a lock that another git holds or left: reported with its age, never removed (C-23)."""
    name = lock.removeprefix(f"{git_dir}/")
    seconds = _age_seconds(root, name) if git_dir == f"{root.rstrip('/')}/.git" else None
    age = "of unknown age" if seconds is None else f"{seconds} seconds old"
    return ToolFailed(
        FailureCode.PRECONDITION_FAILED,
        f"The repository is locked: {name} exists ({age}).",
        remedy="Another git may be at work: wait and call again. If none is, the owner of the workspace removes the file.",
        effect=Effect.NONE,
        details=[{"rule": "locked", "lock": name, "age_seconds": seconds}],
    )


def _age_seconds(root: str, name: str) -> int | None:
    if "/" in name:
        return None
    try:
        folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            inner = os.open(".git", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            return max(0, int(time.time() - os.stat(name, dir_fd=inner, follow_symlinks=False).st_mtime))
        finally:
            os.close(inner)
    except OSError:
        return None
