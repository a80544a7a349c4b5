"""The registries that a run may read by name: where they are, and which of their addresses a run may see (D25). Pure.

No address of a registry is written here. They come from hostside.toml or from the clients that are installed on the host
(`discovery`), so that a run reads the registry that its operator reads.
"""

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from hostside.errors import ConfigError
from hostside.worker.egress.addresses import DEFAULT_PORTS, Endpoint, parse_endpoint

PRESETS = ("npm", "pypi", "crates", "go", "maven", "debian")
PREFIX = "/registry/"
"""What the path of every registry begins with, on the proxy's own address."""
_CONTROL = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed http or https address. `path` begins with a slash; `query` is without its question mark."""

    scheme: str
    endpoint: Endpoint
    path: str
    query: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for anything but a plain address: no user, nothing that a URL may not hold."""
        if _CONTROL.search(text):
            raise ValueError("an address has only printable ASCII characters")
        parts: SplitResult = urlsplit(text)
        if parts.scheme not in DEFAULT_PORTS or not parts.netloc or "@" in parts.netloc:
            raise ValueError("an address starts with https:// or http:// and a host, and has no user")
        endpoint = parse_endpoint(parts.netloc, default_port=DEFAULT_PORTS[parts.scheme])
        return cls(scheme=parts.scheme, endpoint=endpoint, path=parts.path or "/", query=parts.query)

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.endpoint.authority(self.scheme)}{self.path}{query}"

    @property
    def origin(self) -> tuple[str, Endpoint]:
        return self.scheme, self.endpoint

    @property
    def target(self) -> str:
        """Path and query, as a request line has them."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def decoded(self) -> str:
        """The address with its path decoded: clients write one path in several ways."""
        return str(replace(self, path=unquote(self.path)))

    def is_below(self, base: "Address") -> bool:
        """Return whether it is `base`, which ends with a slash, or below it."""
        return self.origin == base.origin and (self.path + "/").startswith(base.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryUpstream:
    """One registry. `roots`: an address by the first segment of the path under the preset; most have the one root `""`.

    `artifact_hosts`: where its files are, beside its own host. Its own documents add to them while a run reads them.
    """

    preset: str
    roots: Mapping[str, Address]
    artifact_hosts: frozenset[Endpoint] = frozenset()

    @property
    def root(self) -> Address:
        """The address of the registry's first root."""
        return next(iter(self.roots.values()))

    def is_own(self, address: Address) -> bool:
        """Return whether the address is on one of the registry's own origins: those get its token."""
        return any(address.origin == root.origin for root in self.roots.values())

    def is_below_root(self, address: Address) -> bool:
        """Return whether the address belongs to the registry."""
        return any(address.is_below(root) for root in self.roots.values())


def upstream(preset: str, url: str | Mapping[str, str], *, files: Iterable[str] = ()) -> RegistryUpstream:
    """Return the registry of a preset at `url` (or, with several roots, at the URL of each name).

    `files`: `host:port` of the hosts that its files are on. Raises ConfigError (`invalid_configuration`).
    """
    roots = {"": url} if isinstance(url, str) else dict(url)
    try:
        parsed = {name: _root(text) for name, text in roots.items()}
        hosts = frozenset(parse_endpoint(host) for host in files)
        if preset not in PRESETS or not parsed or not all(re.fullmatch(r"[A-Za-z0-9._-]*", name) for name in parsed):
            raise ValueError(f"a registry is one of {', '.join(PRESETS)}")
    except ValueError as error:
        raise ConfigError(
            "invalid_configuration",
            f"network.registries.{preset}: {error}",
            remedy=f"Set it in hostside.toml: [network.registries] {preset} with the registry's address.",
        ) from None
    return RegistryUpstream(preset=preset, roots=parsed, artifact_hosts=hosts)


def _root(text: str) -> Address:
    address = Address.parse(text)
    if address.query:
        raise ValueError("a registry's address has no query")
    return Address(scheme=address.scheme, endpoint=address.endpoint, path=address.path.rstrip("/") + "/")


@dataclass(slots=True, kw_only=True)
class Registries:
    """The registries of one run, and what its proxies have learned about them. Share one between a run's proxies."""

    upstreams: Mapping[str, RegistryUpstream] = field(default_factory=dict)
    learned: dict[str, set[Endpoint]] = field(default_factory=dict)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Marks the addresses that a registry's own documents have named."""

    def upstream(self, preset: str) -> RegistryUpstream:
        """Raises ConfigError (`invalid_configuration`) for a preset whose registry is not known."""
        if preset not in self.upstreams:
            raise unknown_registry(preset)
        return self.upstreams[preset]

    def mark(self, address: Address) -> str:
        """Return what only the host can write for an address."""
        return hmac.new(self.key, address.decoded.encode(), "sha256").hexdigest()[:32]

    def learn(self, preset: str, endpoints: Iterable[Endpoint]) -> None:
        """Remember hosts that the registry's own documents name as those of its files."""
        self.learned.setdefault(preset, set()).update(endpoints)

    def has_files_on(self, preset: str, endpoint: Endpoint) -> bool:
        """Return whether the registry has files on `endpoint`, beside its own roots."""
        return endpoint in self.upstream(preset).artifact_hosts or endpoint in self.learned.get(preset, ())

    def owner(self, address: Address, presets: Iterable[str]) -> str | None:
        """Return which of `presets` the address belongs to."""
        for preset in sorted(set(presets) & set(self.upstreams)):
            if self.upstreams[preset].is_below_root(address) or self.has_files_on(preset, address.endpoint):
                return preset
        return None

    def endpoints(self, presets: Iterable[str]) -> frozenset[Endpoint]:
        """Return every endpoint that the presets read from, as far as it is known."""
        chosen = [self.upstreams[preset] for preset in presets if preset in self.upstreams]
        own = {root.endpoint for one in chosen for root in one.roots.values()}
        return frozenset(own.union(*(one.artifact_hosts | self.learned.get(one.preset, set()) for one in chosen)))

    def check(self, presets: Iterable[str]) -> None:
        """Raise ConfigError (`invalid_configuration`) when the registry of one of the presets is not known."""
        for preset in sorted(presets):
            self.upstream(preset)


def unknown_registry(preset: str) -> ConfigError:
    """The refusal of a preset that nothing on this machine says the address of."""
    value = '{debian = "https://..."}' if preset == "debian" else '"https://..."'
    return ConfigError(
        "invalid_configuration",
        f"the registry of the preset {preset} is not known: no client of this machine names it",
        remedy=f"Set it in hostside.toml: [network.registries] {preset} = {value}.",
    )
