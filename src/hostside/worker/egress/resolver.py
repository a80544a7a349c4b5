"""From a name to a connection: looked up once, checked, and connected to exactly what was checked (D25).

Between check and connect there is no second look-up, so an answer that changes in between changes nothing.
"""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Protocol

import anyio
import anyio.abc

from hostside.worker.egress.addresses import Endpoint, IPAddress, Kind, kind_of
from hostside.worker.egress.policy import EgressLimits, EgressPolicy
from hostside.worker.egress.refusals import EgressRefused

MAX_ADDRESSES = 4


class Resolver(Protocol):
    """Looks names up."""

    async def resolve(self, host: str, port: int) -> tuple[IPAddress, ...]:
        """Return the addresses of a name, best first. Raises OSError when there are none."""
        ...


class Connector(Protocol):
    """Opens TCP connections."""

    async def connect(self, address: IPAddress, port: int) -> anyio.abc.ByteStream:
        """Return a stream to this very address. Raises OSError."""
        ...


class SystemResolver:
    """The host's own resolver."""

    async def resolve(self, host: str, port: int) -> tuple[IPAddress, ...]:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(ipaddress.ip_address(address[0]) for *_, address in found))


class TcpConnector:
    """Connects from the host."""

    async def connect(self, address: IPAddress, port: int) -> anyio.abc.ByteStream:
        # A literal: nothing is looked up again.
        return await anyio.connect_tcp(str(address), port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialed:
    """An open connection, and the one address that it leads to."""

    stream: anyio.abc.ByteStream
    address: str


class Dialer:
    """Every connection of a proxy to the outside is opened here."""

    def __init__(self, policy: EgressPolicy, resolver: Resolver, connector: Connector, limits: EgressLimits) -> None:
        self._policy = policy
        self._resolver = resolver
        self._connector = connector
        self._limits = limits

    async def dial(self, endpoint: Endpoint) -> Dialed:
        """Return a connection to `endpoint`, which the caller has allowed.

        Raises EgressRefused: `private_address` when it has no address but forbidden ones, `name_not_found`, `name_slow`,
        `upstream_unreachable`, `upstream_slow`.
        """
        failure: EgressRefused | None = None
        for address in self._admitted(endpoint, await self._look_up(endpoint)):
            where = str(address)
            try:
                with anyio.fail_after(self._limits.connect_seconds):
                    return Dialed(stream=await self._connector.connect(address, endpoint.port), address=where)
            except TimeoutError:
                text = f"hostside: {endpoint} did not answer in time"
                failure = EgressRefused(504, "upstream_slow", text, address=where)
            except OSError:
                text = f"hostside: {endpoint} could not be reached"
                failure = EgressRefused(502, "upstream_unreachable", text, address=where)
        assert failure is not None
        raise failure

    async def _look_up(self, endpoint: Endpoint) -> tuple[IPAddress, ...]:
        if endpoint.literal is not None:
            return (endpoint.literal,)
        try:
            with anyio.fail_after(self._limits.resolve_seconds):
                addresses = await self._resolver.resolve(endpoint.host, endpoint.port)
        except (OSError, UnicodeError):
            addresses = ()
        except TimeoutError:
            raise EgressRefused(504, "name_slow", f"hostside: the name {endpoint.host} was not found in time") from None
        if not addresses:
            raise EgressRefused(502, "name_not_found", f"hostside: there is no address of {endpoint.host}")
        return addresses

    def _admitted(self, endpoint: Endpoint, addresses: tuple[IPAddress, ...]) -> tuple[IPAddress, ...]:
        kinds = {address: kind_of(address) for address in addresses}
        admitted = tuple(address for address, kind in kinds.items() if self._policy.admits_address(endpoint, kind))
        if not admitted:
            address, kind = next(iter(kinds.items()))
            raise self._forbidden(endpoint, address, kind or Kind.RESERVED)
        return admitted[:MAX_ADDRESSES]

    def _forbidden(self, endpoint: Endpoint, address: IPAddress, kind: Kind) -> EgressRefused:
        # Which address it is stays with the host: inside, it would tell about the host's network.
        message = f"hostside: {endpoint} is refused: its address is not public ({kind.value})."
        if kind is Kind.PRIVATE or endpoint.literal is not None:
            message += f" {self._policy.line(str(endpoint), key='private')}"
        return EgressRefused(403, "private_address", message, address=str(address))
