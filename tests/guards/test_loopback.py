"""A test that would reach beyond loopback fails at once, whatever the machine's network would have said."""

import socket
from collections.abc import Callable

import pytest

# 192.0.2.0/24 and 2001:db8::/32 are reserved for documentation: nobody answers there.
OUTSIDE: dict[str, Callable[[], object]] = {
    "connect": lambda: socket.create_connection(("192.0.2.1", 80), timeout=0.2),
    "connect, IPv6": lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 80)),
    "look up": lambda: socket.getaddrinfo("example.invalid", 80),
    "look up as bytes": lambda: socket.getaddrinfo(b"example.invalid", 80),
}


@pytest.mark.parametrize("reach_out", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_reaching_beyond_loopback_is_refused(reach_out: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="tests stay on loopback"):
        reach_out()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_open(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()[:2]) as client:
            assert client.getpeername() == server.getsockname()
        assert socket.getaddrinfo(host, server.getsockname()[1], family=socket.AF_INET) != []
