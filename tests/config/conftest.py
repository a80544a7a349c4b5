"""Files of a configuration, with the owner and mode that a test asks for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

WriteFile = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    """Writes a file (0600 unless told) and returns its path."""

    def make(name: str, content: str | bytes, mode: int = 0o600) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    return make


@pytest.fixture
def stranger() -> int:
    """The number of another user; only root can give a file away."""
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    return 23_456
