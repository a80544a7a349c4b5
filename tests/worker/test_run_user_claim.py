"""One run at a time has a user at level `user`, and nothing of that user outlives it (D9, R-219, R-341)."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import pytest

from hostside.core.canonical import JsonValue
from hostside.worker import run_user_claim
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.run_user_claim import RunUserBusy, claimed, end_processes, processes_of
from hostside.worker.workspace import make_run_home
from tests.support.user_worlds import RUN_USER

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as another user needs root"),
]
USER, BWRAP = IsolationLevel.USER, IsolationLevel.BWRAP


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    end_processes(RUN_USER)


def a_process(run_id: str = "") -> "subprocess.Popen[bytes]":
    """One of the user's, in a session of its own, of that run."""
    return subprocess.Popen(
        ["/usr/bin/sleep", "1000"],
        user=RUN_USER.uid,
        group=RUN_USER.gid,
        extra_groups=[],
        cwd="/",
        env={"HOSTSIDE_RUN_ID": run_id} if run_id else {},
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("held", "wanted", "busy"), [(USER, USER, True), (USER, BWRAP, True), (BWRAP, USER, True), (BWRAP, BWRAP, False)]
)
async def test_only_sandboxes_share_a_user(
    held: IsolationLevel, wanted: IsolationLevel, busy: bool, folder: Path
) -> None:
    async with claimed(RUN_USER, held, folder / "homes"):
        context = pytest.raises(RunUserBusy, match="another run has it") if busy else contextlib.nullcontext()
        with context:
            async with claimed(RUN_USER, wanted, folder / "homes"):
                pass
    async with claimed(RUN_USER, wanted, folder / "homes"):
        pass


async def test_without_a_user_nothing_is_held(folder: Path) -> None:
    async with claimed(None, USER, folder / "homes"), claimed(None, USER, folder / "homes"):
        pass
    assert not (folder / "homes").exists()


async def test_whatever_a_run_started_ends_with_its_claim_and_at_bwrap_the_sandbox_sees_to_that(folder: Path) -> None:
    async with claimed(RUN_USER, BWRAP, folder / "homes"):
        with a_process() as beside:
            pass_on = processes_of(RUN_USER)
            beside.kill()
    assert pass_on == (beside.pid,)
    async with claimed(RUN_USER, USER, folder / "homes"):
        started = [a_process(), a_process()]
    assert [process.wait(timeout=10) for process in started] == [-9, -9]
    assert processes_of(RUN_USER) == ()


async def test_what_a_dead_run_of_these_homes_left_is_ended_and_what_is_no_runs_is_named(folder: Path) -> None:
    make_run_home(folder / "homes", "r-dead", RUN_USER)
    left = a_process("r-dead")
    async with claimed(RUN_USER, USER, folder / "homes"):
        assert left.wait(timeout=10) == -9
    for run_id in ("", "r-of-another-host", "..", ".locks", "r-dead/home"):
        other = a_process(run_id)
        with pytest.raises(RunUserBusy) as busy:
            async with claimed(RUN_USER, USER, folder / "homes"):
                pass
        assert (str(other.pid) in busy.value.message, other.poll()) == (True, None)
        other.kill()
        other.wait()


async def test_a_claim_that_was_refused_leaves_the_lock_free(folder: Path) -> None:
    with a_process() as other:
        with pytest.raises(RunUserBusy):
            async with claimed(RUN_USER, USER, folder / "homes"):
                pass
        async with claimed(RUN_USER, BWRAP, folder / "homes"):
            pass
        other.kill()


async def test_processes_that_do_not_end_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_user_claim, "_kill", lambda _pid, _user: None)
    told: list[tuple[str, Mapping[str, JsonValue]]] = []
    async with claimed(RUN_USER, USER, folder / "homes", lambda name, facts: told.append((name, facts))):
        process = a_process()
    process.kill()
    process.wait()
    assert told == [("processes_left", {"uid": RUN_USER.uid, "pids": [process.pid]})]


async def test_a_run_that_is_stopped_ends_its_users_processes_too(folder: Path) -> None:
    started = anyio.Event()
    made: list[subprocess.Popen[bytes]] = []

    async def work() -> None:
        async with claimed(RUN_USER, USER, folder / "homes"):
            made.append(a_process())
            started.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await started.wait()
        group.cancel_scope.cancel()
    assert made[0].wait(timeout=10) == -9
