"""Runs on this machine: folders, isolation levels, and a way to see which processes are left."""

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, LevelStatus, probe_levels
from hostside.worker.process import RunUser

IsolationFactory = Callable[..., RunIsolation]
MARKED_SECONDS = "100000"
OTHER_USER = RunUser(uid=23_456, gid=23_456)


class Marked:
    """Processes that can be told from all others of the machine: they sleep for a duration that nobody else does."""

    def __init__(self) -> None:
        self.seconds = f"{MARKED_SECONDS}.{uuid.uuid4().int}"

    def pids(self, command_starts: str = "") -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if not command.startswith(command_starts.encode()):
                continue
            if self.seconds.encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    async def sleeping(self, count: int) -> None:
        """Wait until exactly `count` of them sleep; shells on their way do not count."""
        with anyio.fail_after(10):
            while len(self.pids("sleep\0")) != count:
                await anyio.sleep(0.01)

    async def gone(self) -> None:
        with anyio.fail_after(10):
            while self.pids():
                await anyio.sleep(0.01)


@pytest.fixture
def marked() -> Marked:
    return Marked()


@pytest.fixture(scope="session")
def bwrap_status() -> LevelStatus:
    return probe_levels().status(IsolationLevel.BWRAP)


@pytest.fixture(params=["bwrap", "bwrap, another user", "user", "home"])
def walls(request: pytest.FixtureRequest) -> dict[str, object]:
    """Each level, and the one that root may combine with another user: keywords for `isolate`."""
    level, _, other = str(request.param).partition(", ")
    if level == "bwrap":
        request.getfixturevalue("bwrap")
    if not other and level != "user":
        return {"level": IsolationLevel(level)}
    if os.geteuid() != 0:
        pytest.skip("starting processes as another user needs root")
    return {"level": IsolationLevel(level), "user": OTHER_USER}


@pytest.fixture
def bwrap(bwrap_status: LevelStatus) -> None:
    if not bwrap_status.available:
        pytest.skip(f"isolation level bwrap not available: {bwrap_status.reason}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder that another user may walk through, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="hostside-test-", ignore_cleanup_errors=True) as name:
        path = Path(name).resolve()
        path.chmod(0o755)
        yield path


@pytest.fixture
def isolate(folder: Path) -> IsolationFactory:
    """Makes a `RunIsolation` with fresh folders, owned by its user; keywords override."""

    def make(level: IsolationLevel, **changes: object) -> RunIsolation:
        settings: dict[str, object] = {
            "level": level,
            "workspace": folder / "workspace",
            "home": folder / "home",
            "environment": EnvironmentSource(base={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}),
        }
        user = changes.get("user")
        for path in (folder / "workspace", folder / "home"):
            path.mkdir(mode=0o700, exist_ok=True)
            if isinstance(user, RunUser) and os.geteuid() == 0:
                os.chown(path, user.uid, user.gid)
        return RunIsolation(**(settings | changes))  # type: ignore[arg-type]

    return make
