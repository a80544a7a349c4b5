"""What a run may reach, as hostside.toml says it (D25). Pure."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from hostside.errors import ConfigError
from hostside.worker.egress.addresses import Endpoint, Kind, kind_of, parse_endpoint
from hostside.worker.egress.presets import PRESETS

GIGABYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """Bounds of one proxy. Bytes and seconds are those of one connection or answer unless they say otherwise."""

    connections: int = 256
    """At once; one more is answered with 503."""
    upstream_connections: int = 64
    head_bytes: int = 16_384
    head_seconds: float = 15.0
    keep_alive_seconds: float = 60.0
    resolve_seconds: float = 5.0
    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
    """No byte in either direction for so long ends an exchange."""
    tunnel_idle_seconds: float = 300.0
    total_seconds: float = 3_600.0
    response_bytes: int = 2 * GIGABYTE
    """Of one answer, or of what one tunnel receives."""
    tunnel_sent_bytes: int = 256 * 1024 * 1024
    index_bytes: int = 64 * 1024 * 1024
    """Of a registry's document that is read whole because the addresses in it are changed."""
    redirects: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """One of a run's two policies. `name` is its place in the file: `network.setup` or `network.agent`."""

    name: str
    presets: frozenset[str] = frozenset()
    endpoints: frozenset[Endpoint] = frozenset()
    private: frozenset[Endpoint] = frozenset()
    """Endpoints whose addresses may be private: a name's only private ones, a written address itself."""

    @classmethod
    def parse(cls, entries: Sequence[str], *, name: str = "network.agent", private: Sequence[str] = ()) -> Self:
        """Return the policy of a list of presets and `host:port` entries.

        `private`: `host:port` entries whose addresses may be private. It opens nothing by itself.

        Raises ConfigError (`invalid_configuration`) that names the entry and what would be right: an unknown preset, an
        entry that is no `host:port`, an address of this machine, a private network or a metadata service that `private`
        does not name.
        """
        exempt = frozenset(_endpoint(entry, f"{_section(name)}.private") for entry in private)
        presets = frozenset(entry for entry in entries if entry in PRESETS)
        endpoints = frozenset(_endpoint(entry, name) for entry in entries if entry not in PRESETS)
        for endpoint in sorted(endpoints - exempt):
            address = endpoint.literal
            if address is not None and (kind := kind_of(address)) is not None:
                raise _wrong(
                    f"{name}: {endpoint} is no address of the public internet ({kind.value})",
                    f'Name it in private as well if a run shall reach it: add "{endpoint}" to '
                    f"[{_section(name)}] private in hostside.toml.",
                )
        return cls(name=name, presets=presets, endpoints=endpoints, private=exempt)

    @property
    def is_empty(self) -> bool:
        """Nothing may be reached."""
        return not self.presets and not self.endpoints

    def describe(self) -> str:
        """Return one line for a run's record: the entries in order, or `none`."""
        return ", ".join([*sorted(self.presets), *map(str, sorted(self.endpoints))]) or "none"

    def allows(self, endpoint: Endpoint) -> bool:
        """Return whether `endpoint` is listed by itself. What a preset opens is not asked here."""
        return endpoint in self.endpoints

    def admits_address(self, endpoint: Endpoint, kind: Kind | None) -> bool:
        """Return whether an address of this kind, which `endpoint` is or has, may be connected to."""
        if kind is None:
            return True
        if endpoint not in self.private:
            return False
        return endpoint.literal is not None or kind is Kind.PRIVATE

    def line(self, entry: str, key: str | None = None) -> str:
        """Return the sentence that says how `entry` is allowed."""
        section, _, own = self.name.rpartition(".")
        return f'To allow it: add "{entry}" to [{section}] {key or own} in hostside.toml.'

    def not_listed(self, entry: str) -> str:
        """Return the refusal of something that the policy does not list."""
        return f"hostside: {entry} is not in {self.name}. {self.line(entry)}"


def _endpoint(entry: str, name: str) -> Endpoint:
    if ":" not in entry:
        near = difflib.get_close_matches(entry, PRESETS, n=1)
        meant = f'Write "{near[0]}", or' if near else "Write"
        raise _wrong(
            f"{name}: there is no preset {entry!r}",
            f"{meant} one of {', '.join(PRESETS)}, or host:port.",
        )
    try:
        return parse_endpoint(entry)
    except ValueError as error:
        raise _wrong(f"{name}: {entry!r} is not host:port: {error}", "Write it as in example.com:443.") from None


def _section(name: str) -> str:
    return name.rpartition(".")[0] or name


def _wrong(message: str, remedy: str) -> ConfigError:
    return ConfigError("invalid_configuration", message, remedy=remedy)
