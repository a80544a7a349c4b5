"""What every test gets: one async backend, one Hypothesis profile, and no way out but loopback."""

import ipaddress
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# No deadline and no slowness check: a busy machine is not a defect. CI draws the same examples every time.
settings.register_profile("here", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

LOCAL_NAMES = frozenset({"", "localhost"})


class OutsideNetworkError(RuntimeError):
    """A test tried to reach beyond loopback. No `OSError`, so that no code under test takes it for a network fault."""


def _is_local(host: object) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if not isinstance(name, str) or name in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_literal(host: object) -> bool:
    try:
        ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return True


def _stay_on_loopback(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and not _is_local(address[0]):
            raise OutsideNetworkError(f"tests stay on loopback; this one connects to {address[0]!r}")
    elif event == "socket.getaddrinfo" and not _is_local(arguments[0]) and not _is_literal(arguments[0]):
        raise OutsideNetworkError(f"tests stay on loopback; this one looks up {arguments[0]!r}")


sys.addaudithook(_stay_on_loopback)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio alone: the edges run on it."""
    return "asyncio"
