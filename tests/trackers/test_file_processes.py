"""Several processes and one tracker file: nothing lost, nothing half written, no endless wait (R-265, AX-45)."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from hostside.errors import Effect, FailureCode
from hostside.trackers import file_document
from tests.support.gateways import call
from tests.trackers.contract import code_of, gateway_for
from tests.trackers.file_world import FileWorld, issue_record
from tests.trackers.file_writer import ISSUES, body_of

pytestmark = pytest.mark.system
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120


@pytest.fixture
def world(tmp_path: Path) -> FileWorld:
    made = FileWorld(tmp_path)
    made.write([issue_record("DEMO-1"), "not an issue", issue_record("DEMO-2", extra={"kept": [1, 2.5, None]})])
    return made


def spawn(what: str, world: FileWorld, name: str, count: int) -> "subprocess.Popen[str]":
    """Start a writer whose input and output are pipes."""
    command = [sys.executable, "-m", "tests.trackers.file_writer", what, str(world.path), name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def output_of(process: "subprocess.Popen[str]") -> IO[str]:
    """Return the process's output."""
    assert process.stdout is not None
    return process.stdout


@contextmanager
def a_held_lock(world: FileWorld) -> Iterator[Callable[[], None]]:
    """Let another process hold the lock; yields what makes it let go, and waits until it has."""
    process = spawn("hold", world, "holder", 0)

    def release() -> None:
        process.communicate(timeout=SECONDS)

    try:
        assert output_of(process).readline() == "held\n"
        yield release
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def test_no_comment_of_four_processes_is_lost(world: FileWorld) -> None:
    names, count = ("a", "b", "c", "d"), 12
    writers = [spawn("comment", world, name, count) for name in names]
    try:
        codes = [(writer.communicate(timeout=SECONDS), writer.returncode)[1] for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(SECONDS)
    expected = sorted(body_of(name, number) for name in names for number in range(count))
    assert codes == [0, 0, 0, 0]
    assert [sorted(world.bodies(identifier)) for identifier in ("DEMO-1", "DEMO-2")] == [expected, expected]
    ids = [comment["id"] for name in ("DEMO-1", "DEMO-2") for comment in world.entry(name)["comments"]]
    assert sorted(map(int, ids)) == list(range(1, 2 * len(expected) + 1))
    assert world.entries()[1] == "not an issue"


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(world: FileWorld) -> None:
    chosen = random.Random(7)
    for attempt in range(12):
        before = {name: world.bodies(name) for name in ("DEMO-1", "DEMO-2")}
        process = spawn("comment", world, f"run{attempt}", 10_000)
        try:
            for _ in range(chosen.randint(1, 12)):
                assert output_of(process).readline()
        finally:
            process.kill()
            process.communicate(timeout=SECONDS)
        entries = json.loads(world.path.read_bytes())
        assert [entry["id"] for entry in (entries[0], entries[2])] == list(ISSUES)
        for name, old in before.items():
            now = world.bodies(name)
            added = [body_of(f"run{attempt}", number) for number in range(len(now) - len(old))]
            assert now == old + added
    assert {path.name for path in world.path.parent.iterdir()} <= {
        "issues.json",
        ".issues.json.lock",
        ".issues.json.tmp",
    }


@pytest.mark.anyio
async def test_a_lock_held_elsewhere_is_a_typed_failure_after_a_bounded_wait(tmp_path: Path) -> None:
    world = FileWorld(tmp_path, lock_seconds=0.1)
    world.write([issue_record("DEMO-1")])
    gateway = await gateway_for(world, "DEMO-1")
    before = world.path.read_bytes()
    with a_held_lock(world) as release:
        for tool, arguments in (
            ("file_issue_comment_add", {"body": "x"}),
            ("file_issue_move", {"target_state": "Done"}),
        ):
            result = await call(gateway, tool, arguments)
            assert result.failure is not None
            assert (result.failure.code, result.failure.effect) == (FailureCode.TRACKER_REQUEST, Effect.NONE)
        assert (await call(gateway, "file_issue_get", {})).ok
        assert world.path.read_bytes() == before
        release()
        assert code_of(await call(gateway, "file_issue_comment_add", {"body": "x"})) is None
    assert world.bodies("DEMO-1") == ["x"]


@pytest.mark.anyio
async def test_a_writer_waits_for_another_and_then_writes(world: FileWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = await gateway_for(world, "DEMO-1")
    waits: list[float] = []
    with a_held_lock(world) as release:

        def let_go_instead_of_sleeping(seconds: float) -> None:
            if not waits:
                release()
            waits.append(seconds)

        monkeypatch.setattr(file_document, "pause", let_go_instead_of_sleeping)
        result = await call(gateway, "file_issue_comment_add", {"body": "after"})
    assert (result.ok, world.bodies("DEMO-1"), len(waits) > 0) == (True, ["after"], True)
