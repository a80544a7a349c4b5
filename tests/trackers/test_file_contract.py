"""The file tracker does what every tracker does (AX-37, AX-40, AX-41)."""

from pathlib import Path

import pytest

from tests.support.goldens import check_goldens
from tests.trackers.contract import TrackerContract
from tests.trackers.contract_tools import IssueToolContract
from tests.trackers.file_world import FileWorld


@pytest.fixture
def world(tmp_path: Path) -> FileWorld:
    return FileWorld(tmp_path)


class TestFileTracker(TrackerContract):
    """Reading, over a file."""


class TestFileIssueTools(IssueToolContract):
    """The tools, over a file."""


def test_the_tools_look_as_agreed(world: FileWorld) -> None:
    check_goldens(world.adapter.tools())
