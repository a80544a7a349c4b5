"""`serve --http` as other processes find it: where it listens and under which id its tokens are good (D10).

One small file (0600) a listening address, in the host's state. The id belongs to the address and what may be done
there: a server that starts again in the same way keeps it, so that open sessions go on.
"""

import contextlib
import ipaddress
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hostside.config.paths import HostPaths, make_private
from hostside.core.policy import PROFILES, Profile
from hostside.errors import ConfigError
from hostside.worker.process_identity import started_at

_ADDRESS = re.compile(r"(?:(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):)?([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen. `host` is an IP address without brackets; port 0 lets the system choose."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True when only this machine can connect."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def is_wildcard(self) -> bool:
        """True when every interface is listened on, so that the address names no host to connect to."""
        return ipaddress.ip_address(self.host).is_unspecified

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """One server. `pid` with `pid_started_at` names its process; `remote` says that it has no filesystem reach (D11).

    `configuration_sha256`: what it was started with; a session of another configuration would mean other trackers.
    """

    server_id: str
    url: str
    address: str
    remote: bool
    profile: str
    configuration_sha256: str
    pid: int
    pid_started_at: int

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return started_at(self.pid) == self.pid_started_at


def parse_address(text: str) -> Address:
    """Return the address of `[HOST:]PORT`; without a host it is 127.0.0.1. Raises ConfigError for anything else.

    A host is an IP address or `localhost`: a name would be looked up, and what it means could change.
    """
    match = _ADDRESS.fullmatch(text)
    host = "127.0.0.1" if match is None or match[1] in (None, "localhost") else match[1].strip("[]")
    port = 65_536 if match is None else int(match[2])
    try:
        ipaddress.ip_address(host)
        valid = port <= 65_535
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(
            "invalid_configuration",
            f"{text!r} is no address to listen on.",
            remedy="Write PORT, 127.0.0.1:PORT or [::1]:PORT; port 0 takes any free one.",
        )
    return Address(host=host, port=port)


def profile_within(wished: str | None, limit: str) -> Profile:
    """Return the profile of a session on a server that allows up to `limit`. Raises ConfigError for more than that."""
    chosen = wished or limit
    if chosen not in tuple(Profile):
        raise ConfigError(
            "invalid_configuration", f"there is no profile {chosen}.", remedy=f"Use one of: {', '.join(Profile)}."
        )
    if not PROFILES[Profile(chosen)] <= PROFILES[Profile(limit)]:
        raise ConfigError(
            "invalid_configuration",
            f"the server was started with --profile {limit}; a session cannot have {chosen}.",
            remedy=f"Start it with `hostside serve --http PORT --profile {chosen}`, or open a narrower session.",
        )
    return Profile(chosen)


class ServerFolder:
    """The records of one host."""

    def __init__(self, paths: HostPaths) -> None:
        self._path = paths.state / "servers"

    def take_dead(self) -> tuple[str, ...]:
        """Remove the records of servers that are gone, and return their ids."""
        dead = [record for record in self._all() if not record.alive]
        for record in dead:
            self._file(record.address).unlink(missing_ok=True)
        return tuple(record.server_id for record in dead)

    def remove(self, record: ServerRecord) -> None:
        """Forget a server that ends."""
        self._file(record.address).unlink(missing_ok=True)

    def write(self, record: ServerRecord) -> None:
        """Make the record known, replacing an earlier one of the same address. Raises ConfigError."""
        file = self._file(record.address)
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        make_private(self._path)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(asdict(record), stream)
            temporary.replace(file)
        except OSError as error:
            raise ConfigError(
                "invalid_configuration", f"{file} cannot be written: {error.strerror}.", remedy="Check the folder."
            ) from None

    def live(self) -> tuple[ServerRecord, ...]:
        """Return the servers that run now, by address."""
        return tuple(record for record in self._all() if record.alive)

    def find(self, wanted: str | None) -> ServerRecord:
        """Return the running server with this id, address or URL; None means the only one. Raises ConfigError."""
        running = self.live()
        found = [item for item in running if wanted in (None, item.server_id, item.address, item.url)]
        if len(found) == 1:
            return found[0]
        if not running:
            raise ConfigError(
                "invalid_configuration",
                "no HTTP server of this host is running.",
                remedy="Start one first: hostside serve --http 8787",
            )
        names = ", ".join(f"{item.server_id} ({item.url})" for item in running)
        raise ConfigError(
            "invalid_configuration",
            f"{len(found)} running servers answer to {wanted or 'the default'}; running: {names}.",
            remedy="Name one with --server.",
        )

    def _file(self, address: str) -> Path:
        return self._path / f"{re.sub(r'[^0-9A-Za-z.-]', '_', address)}.json"

    def _all(self) -> Iterator[ServerRecord]:
        with contextlib.suppress(FileNotFoundError):
            for file in sorted(self._path.iterdir()):
                record = _read(file) if file.suffix == ".json" else None
                if record is not None:
                    yield record


def _read(file: Path) -> ServerRecord | None:
    try:
        return ServerRecord(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # gone, or of another version: not a server that can be used
        return None
