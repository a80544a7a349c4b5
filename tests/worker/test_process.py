"""Processes outside any sandbox: bounds, ends, and being recognised later."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from hostside.worker.process import Completed, LaunchError, run_bounded, start_process
from hostside.worker.process_identity import kill_recorded, started_at
from tests.worker.conftest import Marked

pytestmark = [pytest.mark.anyio, pytest.mark.system]

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
HERE = Path("/")


async def bounded(*argv: str, stdin: bytes = b"", timeout_seconds: float = 10, limit: int = 1000) -> Completed:
    return await run_bounded(
        argv,
        environment=ENVIRONMENT,
        cwd=HERE,
        stdin=stdin,
        timeout_seconds=timeout_seconds,
        output_limit_bytes=limit,
    )


async def test_a_command_returns_its_code_and_both_outputs() -> None:
    assert await bounded("sh", "-c", "cat; echo wrong >&2; exit 3", stdin=b"fed") == Completed(
        exit_code=3, stdout=b"fed", stderr=b"wrong\n", timed_out=False, truncated=False
    )


async def test_output_is_bounded_and_the_command_still_runs_to_its_end() -> None:
    script = "import sys; sys.stdout.write('a' * 5_000_000); sys.stderr.write('b' * 5_000_000 + 'end'); sys.exit(4)"
    assert await bounded(sys.executable, "-c", script, limit=10) == Completed(
        exit_code=4, stdout=b"a" * 10, stderr=b"b" * 7 + b"end", timed_out=False, truncated=True
    )


async def test_input_that_nobody_reads_does_not_block() -> None:
    done = await bounded("true", stdin=b"x" * 5_000_000)
    assert (done.exit_code, done.timed_out) == (0, False)


async def test_at_the_deadline_the_whole_process_group_is_killed(marked: Marked) -> None:
    script = f"sleep {marked.seconds} & echo started; sleep {marked.seconds}"
    done = await bounded("sh", "-c", script, timeout_seconds=0.5)
    assert done == Completed(exit_code=137, stdout=b"started\n", stderr=b"", timed_out=True, truncated=False)
    await marked.gone()


async def test_what_a_command_leaves_behind_is_killed_and_does_not_hold_the_output_open(marked: Marked) -> None:
    with anyio.fail_after(5):
        done = await bounded("sh", "-c", f"sleep {marked.seconds} & echo done")
    assert (done.exit_code, done.stdout, done.timed_out) == (0, b"done\n", False)
    await marked.gone()


async def test_cancellation_kills_the_process_group(marked: Marked) -> None:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(bounded, "sh", "-c", f"sleep {marked.seconds} & sleep {marked.seconds}")
            await marked.sleeping(2)
            group.cancel_scope.cancel()
    await marked.gone()


@pytest.mark.parametrize("problem", [["/no/such/program"], ["no-such-program"], ["/etc/passwd"]])
async def test_a_program_that_cannot_start_is_a_typed_error_and_leaves_no_descriptor(problem: list[str]) -> None:
    await bounded("true")
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(LaunchError):
        await bounded(*problem, stdin=b"x")
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_child_gets_exactly_its_environment() -> None:
    done = await bounded("/usr/bin/env", "-0")
    assert done.stdout == b"PATH=/usr/bin:/bin\0"


async def test_a_child_writes_no_core_dump_whatever_the_host_may() -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if before[1] == 0:
        pytest.skip("the hard limit for core dumps is 0 here already")
    resource.setrlimit(resource.RLIMIT_CORE, (1024, before[1]))
    try:
        async with start_process(["cat"], environment=ENVIRONMENT, cwd=HERE, stdin=True) as child:
            assert resource.prlimit(child.pid, resource.RLIMIT_CORE) == (0, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


async def test_stop_lets_a_program_end_by_itself() -> None:
    script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    async with start_process(["sh", "-c", script], environment=ENVIRONMENT, cwd=HERE) as child:
        assert await child.receive_line() == b"ready"
        await child.stop(grace_seconds=5)
        assert (await child.receive_line(), child.exit_code) == (b"bye", 5)


async def test_stop_kills_a_program_that_ignores_it() -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    async with start_process(["sh", "-c", script], environment=ENVIRONMENT, cwd=HERE) as child:
        assert await child.receive_line() == b"ready"
        await child.stop(grace_seconds=0.2)
        assert child.exit_code == 137


async def test_many_tasks_may_wait_for_one_child() -> None:
    codes = []
    async with start_process(["cat"], environment=ENVIRONMENT, cwd=HERE, stdin=True) as child:

        async def wait() -> None:
            codes.append(await child.wait())

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                child.close_stdin()
    assert codes == [0, 0, 0]


async def test_without_pidfd_the_end_of_a_child_is_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise PermissionError(pid)

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with anyio.fail_after(5):
        assert (await bounded("sh", "-c", "exit 6")).exit_code == 6


async def test_a_reused_number_is_recognised_and_left_alone() -> None:
    async with start_process(["cat"], environment=ENVIRONMENT, cwd=HERE, stdin=True) as child:
        assert child.pid_started_at == started_at(child.pid)
        assert not kill_recorded(child.pid, child.pid_started_at - 1)
        await child.send(b"alive\n")
        assert await child.receive_line() == b"alive"


async def test_a_recorded_process_is_killed_with_its_group_once(marked: Marked) -> None:
    script = f"sleep {marked.seconds} & echo ready; sleep {marked.seconds}"
    async with start_process(["sh", "-c", script], environment=ENVIRONMENT, cwd=HERE) as child:
        assert await child.receive_line() == b"ready"
        assert kill_recorded(child.pid, child.pid_started_at)
        await marked.gone()
        assert await child.wait() == 137
        assert not kill_recorded(child.pid, child.pid_started_at)


def test_the_start_of_a_process_is_read_behind_a_hostile_name(tmp_path: Path) -> None:
    program = tmp_path / ") S 1 (x"
    program.symlink_to("/usr/bin/sleep")
    with subprocess.Popen([program, "100"]) as hostile, subprocess.Popen(["/usr/bin/sleep", "100"]) as plain:
        first, second = started_at(hostile.pid), started_at(plain.pid)
        hostile.kill()
        plain.kill()
    assert first is not None
    assert second is not None
    assert 0 <= second - first < 100
    assert started_at(hostile.pid) is None
