"""C-21.e: the files that a run leaves belong to one user. C-28.a: the answer got lost, the comment did not."""

import stat
from pathlib import Path
from typing import Any

import pytest

from hostside.core.canonical import JsonObject
from hostside.core.receipt import Finished
from hostside.errors import ReceiptUnavailable
from tests.cases.rows import rows
from tests.support.gateways import call, ok
from tests.support.host_world import make_world
from tests.support.memory_receipts import MemoryReceipts
from tests.trackers.contract import comment_in, gateway_for
from tests.trackers.file_world import FileWorld, issue_record


@pytest.mark.system
def test_c_21_e_after_a_run_every_file_and_folder_of_the_state_is_the_owners_alone(tmp_path: Path) -> None:
    (row,) = rows("C-21.e")
    world = make_world(tmp_path)
    (tmp_path / "script.json").write_text('[{"tool": "file_issue_get"}]', encoding="utf-8")
    world.configure(f'[agent]\nkind = "scripted"\nscript = "{tmp_path / "script.json"}"\n')
    assert world.run("run", "DEMO-1", "--json").exit_code == 0
    inside_the_run = [*world.state.glob("runs/*/*")]
    found = [path for path in [world.state, *world.state.rglob("*")] if not _below(path, inside_the_run)]
    modes = {(path.is_dir(), f"{stat.S_IMODE(path.lstat().st_mode):04o}") for path in found}
    assert modes == {(True, row.expect["folder_mode"]), (False, row.expect["file_mode"])}


def _below(path: Path, folders: list[Path]) -> bool:
    """What the agent made in its own home is the agent's; the home itself is closed to others."""
    return any(folder in path.parents for folder in folders)


class LosesTheAnswer(MemoryReceipts):
    """A log that breaks off before the first end: as after a kill between the write and its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = False

    async def finished(self, event: Finished, *, outcome: JsonObject) -> None:
        """Lose the first end, keep every later one."""
        if not self.lost:
            self.lost = True
            raise ReceiptUnavailable("the host is gone")
        await super().finished(event, outcome=outcome)


@pytest.mark.anyio
async def test_c_28_a_a_repeat_after_a_lost_answer_finds_the_first_comment(tmp_path: Path) -> None:
    (row,) = rows("C-28.a")
    world, log = FileWorld(tmp_path), LosesTheAnswer()
    world.write([issue_record("DEMO-1")])
    arguments: dict[str, Any] = {"body": "ping"}
    first = await call(await gateway_for(world, "DEMO-1", receipts=log), "file_issue_comment_add", arguments)
    assert first.failure is not None
    assert (first.failure.code.value, first.failure.effect.value) == ("effect_unknown", "unknown")
    written = world.entry("DEMO-1")["comments"]
    # Within the session the outcome is unknown and nothing is sent; the next session of the run looks and finds it.
    again = await call(await gateway_for(world, "DEMO-1", receipts=log), "file_issue_comment_add", arguments)
    assert again.failure is not None
    assert again.failure.code.value == "effect_unknown"
    next_session = await gateway_for(world, "DEMO-1", session_id="s-2", receipts=log)
    second = await ok(next_session, "file_issue_comment_add", arguments)
    assert (second["unchanged"], comment_in(second)["id"]) == (True, written[0]["id"])
    assert world.bodies("DEMO-1") == ["ping"] * row.expect["comments_upstream"]
    assert row.expect["second_call"] == "returns the first comment"
