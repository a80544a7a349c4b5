"""Hosts and ports as a policy names them, and the addresses that no policy opens by a name. Pure."""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_PORT = 65_535
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Kind(StrEnum):
    """Why an address is not one of the public internet."""

    UNSPECIFIED = "unspecified"
    LOOPBACK = "loopback"
    METADATA = "metadata"
    LINK_LOCAL = "link_local"
    PRIVATE = "private"
    MULTICAST = "multicast"
    EMBEDDED = "embedded"
    RESERVED = "reserved"


# In this order: the first that holds the address names it. Spelled out because what the standard library calls global
# has changed between Python versions, and because two providers serve metadata on addresses that are global (D25).
_NETWORKS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    (Kind.METADATA, ("169.254.169.254/32", "169.254.170.2/32", "168.63.129.16/32", "100.100.100.200/32")),
    (Kind.METADATA, ("192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128")),
    (Kind.LOOPBACK, ("127.0.0.0/8", "::1/128")),
    (Kind.UNSPECIFIED, ("0.0.0.0/8", "::/128")),
    (Kind.LINK_LOCAL, ("169.254.0.0/16", "fe80::/10")),
    (Kind.PRIVATE, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")),
    (Kind.MULTICAST, ("224.0.0.0/4", "ff00::/8")),
    # An IPv4 address in another dress: mapped, translated, compatible, NAT64, then 6to4 and Teredo.
    (Kind.EMBEDDED, ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48")),
    (Kind.EMBEDDED, ("2002::/16", "2001::/32")),
)
_TABLE = tuple((kind, ipaddress.ip_network(text)) for kind, texts in _NETWORKS for text in texts)
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")


def kind_of(address: IPAddress) -> Kind | None:
    """Return why `address` is not to be connected to; None for an address of the public internet."""
    for kind, network in _TABLE:
        if address.version == network.version and address in network:
            return kind
    if address.version == 6 and (address not in _GLOBAL_V6 or "%" in str(address)):
        return Kind.RESERVED
    return None if address.is_global and not address.is_reserved else Kind.RESERVED


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A host, as `normal_host` writes it, and a port. `str` gives `host:port`, with brackets around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def literal(self) -> IPAddress | None:
        """The address that the host is written as; None for a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def authority(self, scheme: str) -> str:
        """Return what a Host header says."""
        text = str(self)
        return text.removesuffix(f":{self.port}") if DEFAULT_PORTS.get(scheme) == self.port else text


def parse_endpoint(text: str, *, default_port: int | None = None) -> Endpoint:
    """Return the endpoint that `host:port` names. Raises ValueError, which says what is wrong."""
    host, separator, port = text.rpartition(":")
    if not separator or (default_port is not None and text.endswith("]")):
        host, port = text, ""
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError("an IPv6 address stands in brackets")
    if not port and default_port is not None and not text.endswith(":"):
        return Endpoint(normal_host(host), default_port)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= MAX_PORT):
        raise ValueError(f"a port is a number from 1 to {MAX_PORT}")
    return Endpoint(normal_host(host), int(port))


def normal_host(text: str) -> str:
    """Return the one form of a host: lower case, no final dot, no brackets, addresses in their shortest form.

    Raises ValueError for what is no host name of the internet, `127.1` and `0x7f000001` among it: resolvers read those
    as addresses.
    """
    if text.startswith("[") and text.endswith("]"):
        return str(_ipv6(text[1:-1]))
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("a host is a name in ASCII letters, digits, hyphens and dots, or an address")
    if _NUMBER.fullmatch(labels[-1]) is None:
        return name
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        raise ValueError("an IPv4 address is written as four decimal numbers") from None


def _ipv6(text: str) -> ipaddress.IPv6Address:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError("what stands in brackets is an IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError("an address names no interface")
    return address
