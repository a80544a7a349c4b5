"""Two preparations at once, and ones that are killed: a whole checkout or none, and never two (R-337)."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from hostside.worker.checkout import Checkout
from hostside.worker.checkout_lock import alone_at, mark_unfinished, new_building
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.workspace import WorkspaceError
from tests.worker.checkouts import Yard, git, make_yard

pytestmark = [pytest.mark.anyio, pytest.mark.system]
ROOT = Path(__file__).resolve().parents[2]
KILLS = 12
PREPARE = """
import json, sys
from pathlib import Path
import anyio
from hostside.worker.isolation_level import IsolationLevel
from tests.worker.checkouts import Yard

async def main():
    async def after(checkout):
        hook = checkout.path / "hooked"
        hook.write_text("half")
        print("hook", flush=True)
        if sys.argv[3] == "hang":
            await anyio.sleep_forever()
        hook.write_text("whole")

    yard = Yard(folder=Path(sys.argv[1]), level=IsolationLevel(sys.argv[2]))
    checkout = await yard.prepare(after_create=after)
    print(json.dumps(checkout.created), flush=True)

anyio.run(main)
"""


@pytest.fixture(params=["bwrap", "home"])
def yard(request: pytest.FixtureRequest, folder: Path) -> Yard:
    if request.param == "bwrap":
        request.getfixturevalue("bwrap")
    return make_yard(folder, IsolationLevel(request.param))


def start(yard: Yard, how: str = "end") -> "subprocess.Popen[bytes]":
    argv = [sys.executable, "-c", PREPARE, str(yard.folder), yard.level.value, how]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def hooked(checkout: Checkout) -> None:
    (checkout.path / "hooked").write_text("whole")


async def failing(checkout: Checkout) -> None:
    (checkout.path / "read-only").mkdir()
    (checkout.path / "read-only/file").write_text("half")
    (checkout.path / "read-only").chmod(0o500)
    raise RuntimeError("the hook failed")


async def test_of_two_preparations_at_once_one_makes_it_and_one_finds_it(yard: Yard) -> None:
    made: list[Checkout] = []

    async def one() -> None:
        made.append(await yard.prepare(after_create=hooked))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one)
    assert sorted(checkout.created for checkout in made) == [False, False, False, True]
    assert yard.left() == ["ENG-1"]


def test_of_processes_at_once_one_makes_it_and_the_others_find_it(yard: Yard) -> None:
    running = [start(yard) for _ in range(3)]
    said = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], [error for _, error in said]
    assert sorted(json.loads(output.splitlines()[-1]) for output, _ in said) == [False, False, True]
    assert (yard.root / "ENG-1/hooked").read_text() == "whole"


async def test_a_preparation_that_goes_on_too_long_is_refused_in_words(yard: Yard) -> None:
    where = yard.place()
    async with alone_at(where):
        with pytest.raises(WorkspaceError, match=r"another run has been preparing .*/ENG-1 for 0\.1 s"):
            async with alone_at(where, wait_seconds=0.1):
                raise NotImplementedError
        async with alone_at(yard.place("ENG-2"), wait_seconds=1):
            pass
    async with alone_at(where, wait_seconds=1):
        pass


async def test_half_built_leftovers_of_dead_preparations_go_and_those_of_living_ones_stay(yard: Yard) -> None:
    dead, other_dead, alive = yard.place(), yard.place("ENG-2"), yard.place("ENG-3")
    for where in (dead, other_dead):
        async with alone_at(where):
            building = new_building(where)
            (building / "read-only").mkdir()
            (building / "read-only/file").write_text("")
            (building / "read-only").chmod(0o500)
    async with alone_at(alive):
        kept = new_building(alive)
        await yard.prepare()
        assert yard.left() == [kept.name, "ENG-1"]
    await yard.prepare("ENG-4")
    assert yard.left() == ["ENG-1", "ENG-4"]


async def test_a_failed_after_create_hook_leaves_no_checkout_and_is_due_again(yard: Yard) -> None:
    with pytest.raises(RuntimeError, match="the hook failed"):
        await yard.prepare(after_create=failing)
    assert yard.left() == []
    assert (await yard.prepare(after_create=hooked)).created is True
    assert (await yard.prepare(after_create=failing)).created is False


async def test_a_cancelled_preparation_leaves_nothing(yard: Yard) -> None:
    async def cancelled(checkout: Checkout) -> None:
        group.cancel_scope.cancel()
        await anyio.sleep_forever()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            await yard.prepare(after_create=cancelled)
    assert yard.left() == []


async def test_what_was_never_finished_is_discarded_and_made_anew(yard: Yard) -> None:
    first = await yard.prepare()
    (first.path / "half").write_text("")
    mark_unfinished(yard.place())
    again = await yard.prepare()
    assert (again.created, (again.path / "half").exists(), yard.left()) == (True, False, ["ENG-1"])


def test_a_preparation_killed_in_its_hook_is_begun_anew(yard: Yard) -> None:
    process = start(yard, "hang")
    assert process.stdout is not None
    assert process.stdout.readline() == b"hook\n"
    process.kill()
    process.communicate(timeout=10)
    assert (yard.root / "ENG-1/hooked").read_text() == "half"
    output, error = start(yard).communicate(timeout=60)
    assert output.splitlines() == [b"hook", b"true"], error
    assert ((yard.root / "ENG-1/hooked").read_text(), yard.left()) == ("whole", ["ENG-1"])


def test_a_preparation_killed_at_any_moment_leaves_a_whole_checkout_or_none(yard: Yard) -> None:
    began = time.monotonic()
    output, error = start(yard).communicate(timeout=60)
    assert output, error
    longest = time.monotonic() - began
    path = yard.root / "ENG-1"
    moments = random.Random(7)
    for number in range(KILLS):
        path.rename(yard.folder / f"done-{number}")
        process = start(yard)
        try:
            process.wait(timeout=longest * moments.uniform(0.3, 1.0))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
        output, error = start(yard).communicate(timeout=60)
        assert output, error
        assert yard.left() == ["ENG-1"]
        assert git(path, "status", "--porcelain").decode() == "?? hooked\n"
        assert git(path, "fsck", "--full", "--no-dangling") == b""
        assert (path / "hooked").read_text() == "whole"
