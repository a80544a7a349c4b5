"""Hooks: where they run, with what, for how long, and what their failure means (AX-53, R-336..R-339)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from hostside.config.workflow import parse_workflow
from hostside.core.canonical import JsonValue
from hostside.core.redaction import Redactor
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.hooks import FATAL, LOGGED_CHARACTERS, HookFailed, HookName, HookRunner, trusted_scripts
from hostside.worker.isolation_level import IsolationLevel
from tests.worker.conftest import IsolationFactory, Marked

pytestmark = [pytest.mark.anyio, pytest.mark.system]
SECRET = "canary-of-the-host-0123456789"
Events = list[tuple[str, Mapping[str, JsonValue]]]
MakeRunner = Callable[..., tuple[HookRunner, Events]]


@pytest.fixture(params=["bwrap", "home"])
def make_runner(request: pytest.FixtureRequest, isolate: IsolationFactory) -> MakeRunner:
    """Makes a runner in which every hook is one script, and the list that its events go to."""
    if request.param == "bwrap":
        request.getfixturevalue("bwrap")
    base = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LINEAR_API_KEY": SECRET, "SSH_AUTH_SOCK": "/canary-agent"}
    source = EnvironmentSource(
        base=base,
        declared_secrets=frozenset({"DECLARED"}),
        secret_values=frozenset({SECRET}),
        run_facts={"HOSTSIDE_ISSUE_IDENTIFIER": "DEMO-1", "DECLARED": "x"},
    )

    def make(script: str, *, seconds: float = 20.0) -> tuple[HookRunner, Events]:
        events: Events = []
        runner = HookRunner(
            isolation=isolate(IsolationLevel(request.param), environment=source),
            scripts=dict.fromkeys(HookName, script),
            timeout_seconds=seconds,
            redactor=Redactor([SECRET]),
            event=lambda name, facts: events.append((name, facts)),
        )
        return runner, events

    return make


async def ended(runner: HookRunner, name: HookName) -> str | None:
    """The words of a hook's failure, None when the run goes on."""
    try:
        with anyio.fail_after(30):
            await runner.run(name)
    except HookFailed as failed:
        return str(failed)
    return None


async def test_every_hook_runs_in_the_workspace_in_turn(make_runner: MakeRunner) -> None:
    runner, events = make_runner("pwd; echo made >> made.txt")
    for name in HookName:
        assert await ended(runner, name) is None
    workspace = runner.isolation.workspace
    assert (workspace / "made.txt").read_text() == "made\n" * 4
    assert events == [
        event
        for name in HookName
        for event in (
            ("hook_started", {"hook": name.value}),
            ("hook_finished", {"hook": name.value, "exit_code": 0, "timed_out": False, "output": str(workspace)}),
        )
    ]


async def test_the_environment_is_that_of_the_run_and_holds_no_secret(make_runner: MakeRunner) -> None:
    runner, _ = make_runner("env -0 > environment")
    await ended(runner, HookName.BEFORE_RUN)
    dump = (runner.isolation.workspace / "environment").read_bytes().decode()
    found = dict(item.split("=", 1) for item in dump.rstrip("\0").split("\0"))
    # The shell and the sandbox name the folder they start in, the shell also itself.
    assert {name: found.pop(name, "") for name in ("PWD", "_", "OLDPWD", "SHLVL")}["PWD"]
    assert found == runner.isolation.environment()
    assert (found["HOSTSIDE_ISSUE_IDENTIFIER"], SECRET in dump, "DECLARED" in found) == ("DEMO-1", False, False)


@pytest.mark.parametrize("name", HookName)
async def test_a_failure_stops_the_run_before_the_agent_and_not_after_it(
    make_runner: MakeRunner, name: HookName
) -> None:
    runner, events = make_runner("echo the reason >&2; exit 7")
    expected = f"the hook {name} exited with 7: the reason" if name in FATAL else None
    assert await ended(runner, name) == expected
    assert events[-1][1]["exit_code"] == 7
    assert {HookName.AFTER_CREATE, HookName.BEFORE_RUN} == FATAL


@pytest.mark.parametrize("name", HookName)
async def test_at_the_deadline_the_hook_and_all_that_it_started_are_killed(
    make_runner: MakeRunner, marked: Marked, name: HookName
) -> None:
    runner, events = make_runner(f"sleep {marked.seconds} & sleep {marked.seconds}", seconds=0.5)
    expected = f"the hook {name} did not end within 0.5 s and was killed" if name in FATAL else None
    assert await ended(runner, name) == expected
    assert events[-1][1]["timed_out"] is True
    await marked.gone()


async def test_what_a_hook_prints_is_redacted_and_cut(make_runner: MakeRunner) -> None:
    runner, events = make_runner(f"head -c 1000000 /dev/zero | tr '\\0' x; echo {SECRET[:6]}{SECRET[6:]} >&2; exit 1")
    failed = await ended(runner, HookName.BEFORE_RUN)
    output = str(events[-1][1]["output"])
    assert len(output) <= LOGGED_CHARACTERS
    assert output.endswith("[redacted]")
    assert SECRET not in f"{failed} {events}"


async def test_cancelling_the_run_ends_its_hook(make_runner: MakeRunner, marked: Marked) -> None:
    runner, _ = make_runner(f"sleep {marked.seconds} & sleep {marked.seconds}")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(ended, runner, HookName.BEFORE_RUN)
            await marked.sleeping(2)
            group.cancel_scope.cancel()
    await marked.gone()


TEXT = b"---\nhooks: {after_create: echo a, before_run: echo b, after_run: echo c, before_remove: echo d}\n---\nWork.\n"


def test_hooks_of_a_file_run_only_once_it_is_trusted(tmp_path: Path) -> None:
    assert trusted_scripts(parse_workflow(TEXT, trusted=False)) == {}
    trusted = parse_workflow(TEXT, trusted=True)
    assert trusted_scripts(replace(trusted, trusted=False)) == {}
    assert trusted_scripts(trusted) == dict(zip(HookName, ("echo a", "echo b", "echo c", "echo d"), strict=True))


def test_a_hook_has_a_minute_where_nobody_says_otherwise() -> None:
    assert parse_workflow(TEXT, trusted=True).hooks.timeout_ms == 60_000
