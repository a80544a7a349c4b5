"""C-22: a repository that tries to run a program through its configuration, attributes or hooks runs none."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from hostside.errors import Effect, FailureCode
from tests.support.gateways import call, ok
from tests.support.system_git import a_repository, git
from tests.support.workspaces import refusal, workspace_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.system]


class Trap:
    """A repository beside a program that leaves a marker; `config` and `attributes` set it."""

    def __init__(self, folder: Path) -> None:
        self.root = a_repository(folder / "ws")
        self.marker = folder / "marker"
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\ntouch {self.marker}\ncat\n")
        self.program.chmod(0o755)

    def config(self, *pairs: tuple[str, str]) -> None:
        for key, value in pairs:
            git(self.root, "config", key, value)

    def attributes(self, text: str) -> None:
        (self.root / ".git/info").mkdir(exist_ok=True)
        (self.root / ".git/info/attributes").write_text(text)

    def touch(self) -> None:
        """Make git look at the content of a file whose size and content are as committed."""
        (self.root / "a.txt").write_bytes(b"one\ntwo\n")


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    """A clean repository beside the program."""
    return Trap(tmp_path)


def _fsmonitor(trap: Trap) -> None:
    trap.config(("core.fsmonitor", str(trap.program)))


def _filter(trap: Trap) -> None:
    trap.config(
        ("filter.z.clean", str(trap.program)), ("filter.z.smudge", str(trap.program)), ("filter.z.required", "true")
    )
    trap.attributes("* filter=z\n")


def _filter_process(trap: Trap) -> None:
    trap.config(("filter.Odd .Name.process", str(trap.program)))
    trap.attributes('* filter="Odd .Name"\n* filter=z\n')
    trap.config(("filter.z.process", str(trap.program)))


def _included_filter(trap: Trap) -> None:
    more = trap.root.parent / "more"
    more.write_text(f'[filter "z"]\n\tclean = {trap.program}\n')
    trap.config(("include.path", str(more)))
    (trap.root / ".gitattributes").write_text("* filter=z\n")


def _worktree_filter(trap: Trap) -> None:
    trap.config(("extensions.worktreeConfig", "true"))
    git(trap.root, "config", "--worktree", "filter.z.clean", str(trap.program))
    trap.attributes("* filter=z\n")


def _external_diff(trap: Trap) -> None:
    trap.config(("diff.external", str(trap.program)))


def _diff_driver(trap: Trap) -> None:
    trap.config(("diff.z.command", str(trap.program)))
    trap.attributes("* diff=z\n")


def _text_converter(trap: Trap) -> None:
    trap.config(("diff.z.textconv", str(trap.program)), ("diff.z.cacheTextconv", "true"))
    trap.attributes("* diff=z\n")


def _hooks_path(trap: Trap) -> None:
    folder = trap.root / ".githooks"
    folder.mkdir()
    _hooks(folder, trap)
    trap.config(("core.hooksPath", ".githooks"))


def _hooks_folder(trap: Trap) -> None:
    _hooks(trap.root / ".git/hooks", trap)


def _hooks(folder: Path, trap: Trap) -> None:
    folder.mkdir(exist_ok=True)
    for name in (
        "pre-commit prepare-commit-msg commit-msg post-commit pre-push post-index-change reference-transaction "
        "pre-auto-gc post-rewrite fsmonitor-watchman"
    ).split():
        (folder / name).symlink_to(trap.program)


def _configured_hook(trap: Trap) -> None:
    trap.config(("hook.x.command", str(trap.program)), ("hook.x.event", "pre-commit"))


def _signing(trap: Trap) -> None:
    trap.config(("commit.gpgSign", "true"), ("gpg.program", str(trap.program)), ("log.showSignature", "true"))


def _pager_and_editor(trap: Trap) -> None:
    trap.config(*((key, str(trap.program)) for key in ("core.pager", "pager.diff", "pager.status", "core.editor")))


def _transports(trap: Trap) -> None:
    """A partial clone whose missing objects would be fetched through a program."""
    trap.config(
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::{trap.program}"),
        ("protocol.ext.allow", "always"),
        ("protocol.allow", "always"),
        ("core.sshCommand", str(trap.program)),
        ("credential.helper", f"!{trap.program}"),
    )
    blob = git(trap.root, "rev-parse", "HEAD:a.txt").decode().strip()
    (trap.root / ".git/objects" / blob[:2] / blob[2:]).unlink()


def _automatic_gc(trap: Trap) -> None:
    _hooks_folder(trap)
    trap.config(("gc.auto", "1"), ("maintenance.auto", "true"), ("gc.autoDetach", "false"))


def _submodule(trap: Trap) -> None:
    """A submodule whose own configuration sets the trap: git starts a status in it."""
    other = a_repository(trap.root.parent / "other")
    other.rename(trap.root / "sub")
    git(trap.root, "add", "sub")
    git(trap.root, "commit", "--quiet", "--message=sub")
    inner = trap.root / "sub"
    git(inner, "config", "filter.q.clean", str(trap.program))
    git(inner, "config", "core.fsmonitor", str(trap.program))
    (inner / ".git/info").mkdir(exist_ok=True)
    (inner / ".git/info/attributes").write_text("* filter=q\n")
    (inner / "a.txt").write_bytes(b"one\nTWO\n")


def _submodule_log(trap: Trap) -> None:
    _submodule(trap)
    trap.config(("diff.submodule", "diff"), ("status.submoduleSummary", "true"), ("diff.ignoreSubmodules", "none"))


TRAPS = [
    _fsmonitor,
    _filter,
    _filter_process,
    _included_filter,
    _worktree_filter,
    _external_diff,
    _diff_driver,
    _text_converter,
    _hooks_path,
    _hooks_folder,
    _configured_hook,
    _signing,
    _pager_and_editor,
    _transports,
    _automatic_gc,
    _submodule,
    _submodule_log,
]


@pytest.mark.parametrize("spring", TRAPS, ids=lambda spring: str(spring.__name__).strip("_"))
async def test_no_host_side_git_runs_the_repositorys_program(trap: Trap, spring: Callable[[Trap], None]) -> None:
    spring(trap)
    trap.marker.unlink(missing_ok=True)
    trap.touch()
    gateway = workspace_gateway(trap.root, branch="run-1")
    outcomes: list[tuple[FailureCode, Effect] | None] = []
    for changed in (False, True):
        if changed:
            (trap.root / "a.txt").write_bytes(b"changed\n")
            (trap.root / "b.txt").write_bytes(b"new\n")
        outcomes += [
            refusal(await call(gateway, "git_status", {})),
            refusal(await call(gateway, "git_diff", {})),
            refusal(await call(gateway, "git_diff", {"revision": "HEAD"})),
            refusal(await call(gateway, "git_add", {})),
            refusal(await call(gateway, "git_diff", {"staged": True, "stat": True})),
            refusal(await call(gateway, "git_commit", {"message": "m"})),
            refusal(await call(gateway, "git_status", {"path": "a.txt"})),
        ]
    assert not trap.marker.exists()
    crashed = {FailureCode.TOOL_CRASHED, FailureCode.TIMED_OUT, FailureCode.EFFECT_UNKNOWN}
    assert [outcome for outcome in outcomes if outcome is not None and outcome[0] in crashed] == []


async def test_the_traps_do_work_on_a_git_that_is_not_careful(trap: Trap) -> None:
    """The program is one that git runs: without this the table above would prove nothing."""
    sprung = []
    for number, (spring, words) in enumerate(
        (
            (_fsmonitor, ["status"]),
            (_filter, ["status"]),
            (_external_diff, ["diff", "HEAD"]),
            (_hooks_path, ["commit", "--allow-empty", "--message=m"]),
            (_signing, ["commit", "--allow-empty", "--message=m"]),
            (_submodule, ["status"]),
        )
    ):
        (trap.root.parent / str(number)).mkdir()
        fresh = Trap(trap.root.parent / str(number))
        spring(fresh)
        fresh.marker.unlink(missing_ok=True)
        fresh.touch()
        if spring is _external_diff:
            (fresh.root / "a.txt").write_bytes(b"changed\n")
        with contextlib.suppress(AssertionError):
            git(fresh.root, *words)
        sprung.append((spring.__name__, fresh.marker.exists()))
    assert [name for name, worked in sprung if not worked] == []


async def test_a_file_with_a_content_filter_is_not_staged_without_it(trap: Trap) -> None:
    _filter(trap)
    (trap.root / "a.txt").write_bytes(b"large\n")
    gateway = workspace_gateway(trap.root)
    status = await ok(gateway, "git_status")
    result = await call(gateway, "git_add", {})
    assert result.failure is not None
    assert status["disabled_filters"] == ["z"]
    assert refusal(result) == (FailureCode.PRECONDITION_FAILED, Effect.NONE)
    assert "filter.z" in result.failure.message
    assert git(trap.root, "diff", "--cached", "--name-only") == b""


async def test_a_driver_whose_name_cannot_be_overridden_is_refused_by_name(trap: Trap) -> None:
    trap.config(("filter.a=b.clean", str(trap.program)))
    trap.attributes('* filter="a=b"\n')
    trap.touch()
    result = await call(workspace_gateway(trap.root), "git_status", {})
    assert result.failure is not None
    assert (refusal(result), trap.marker.exists()) == ((FailureCode.PRECONDITION_FAILED, Effect.NONE), False)
    assert "filter.a=b" in result.failure.message


async def test_inner_repositories_are_named_and_not_entered(trap: Trap) -> None:
    _submodule(trap)
    git(trap.root / "sub", "-c", "filter.q.clean=cat", "commit", "--quiet", "--all", "--message=inner")
    trap.marker.unlink(missing_ok=True)
    a_repository(trap.root / "embedded")
    (trap.root / "b.txt").touch()
    added = await ok(workspace_gateway(trap.root), "git_add")
    assert (added["staged"], added["skipped"], trap.marker.exists()) == (["b.txt"], ["embedded/", "sub"], False)
