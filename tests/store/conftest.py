"""A store in a file of its own, closed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.rows import Store, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The place of a database that does not exist yet."""
    return tmp_path / "state" / "hostside.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An open, empty store."""
    opened = open_store(path)
    yield opened
    opened.close()
