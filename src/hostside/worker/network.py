"""A run's network: what its processes are told and served, under one of its two policies (D25)."""

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio

from hostside.core.gateway import EventSink
from hostside.core.redaction import Redactor
from hostside.worker.egress.client_configuration import Configuration, client_configuration
from hostside.worker.egress.decisions import Decision
from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.presets import Registries, RegistryUpstream
from hostside.worker.egress.proxy import EgressProxy
from hostside.worker.egress.run_authority import RunAuthority
from hostside.worker.process import RunUser

#: The same for every process of a run, because the files in its home name it; beyond the ports of `RunIsolation.prepare`.
PROXY_ADDRESS = ("127.0.0.1", 8017)
SHARED = "shared"
"""The network in the record of a run that has no wall before it (isolation `user` and `home`)."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """What the configuration opens to a run. `upstreams`: by preset, of those that a policy lists and all configured ones.

    `tokens`: by preset, as `EgressProxy.registry_tokens`. `system_certificates`: the host's list of trusted ones as PEM;
    `apt_sources`: apt's files by name. Raises ConfigError (`invalid_configuration`) when a listed preset has no upstream.
    """

    setup: EgressPolicy
    agent: EgressPolicy
    upstreams: Mapping[str, RegistryUpstream] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    system_certificates: bytes = b""
    apt_sources: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Registries(upstreams=self.upstreams).check(self.presets)

    @property
    def presets(self) -> frozenset[str]:
        """Every preset that one of the policies lists."""
        return self.setup.presets | self.agent.presets

    def describe(self) -> str:
        """Return it in one line, e.g. `setup: npm · agent: none`."""
        return describe_policies(self.setup, self.agent)


def describe_policies(setup: EgressPolicy, agent: EgressPolicy) -> str:
    """Return what `NetworkPlan.describe` does, also where the registries are not known."""
    return f"setup: {setup.describe()} · agent: {agent.describe()}"


def describe(plan: NetworkPlan | None) -> str:
    """Return what a run's record says of its network."""
    return SHARED if plan is None else plan.describe()


NOTHING_LISTED = NetworkPlan(
    setup=EgressPolicy.parse((), name="network.setup"), agent=EgressPolicy.parse((), name="network.agent")
)
"""The network of a run where the configuration lists nothing."""


class RunNetwork:
    """One policy of one run. Every process gets a proxy of its own, so that none outlives its process; what they learn of
    registries, and the authority that their clients trust, are the run's."""

    def __init__(
        self,
        policy: EgressPolicy,
        plan: NetworkPlan,
        *,
        registries: Registries,
        authority: RunAuthority | None,
        event: EventSink,
        redactor: Redactor,
    ) -> None:
        self.policy = policy
        self._plan = plan
        self._registries = registries
        self._authority = authority
        self._event = event
        self._redactor = redactor

    def configuration(self, home_inside: str) -> Configuration:
        """Return the variables of each process, and the files of the run's home (the same under both policies)."""
        return client_configuration(
            PROXY_ADDRESS,
            self.policy,
            home_inside,
            registries=self._registries,
            certificate=b"" if self._authority is None else self._authority.certificate,
            system_certificates=self._plan.system_certificates,
            apt_sources=self._plan.apt_sources,
        )

    async def serve(self, listener: socket.socket) -> None:
        """Serve one process, at `PROXY_ADDRESS` inside, until this is cancelled. Every decision is told as the run's event
        `network_decision`. A proxy that fails closes its listener (event `network_failed`): then nothing gets out."""
        try:
            async with EgressProxy(
                listener,
                self.policy,
                address=PROXY_ADDRESS,
                registries=self._registries,
                decide=self._decided,
                redactor=self._redactor,
                registry_tokens=self._plan.tokens,
                authority=self._authority,
            ):
                await anyio.sleep_forever()
        except (OSError, ExceptionGroup) as error:
            # What it failed on may quote what was sent, so only the kind is told.
            _log.exception("a run's network proxy failed", exc_info=False)
            self._event("network_failed", {"policy": self.policy.name, "error": type(error).__name__})

    def _decided(self, decision: Decision) -> None:
        self._event("network_decision", decision.as_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNetworks:
    """The two of a run: for the hooks that prepare the workspace, and for everything after."""

    setup: RunNetwork
    agent: RunNetwork


def open_networks(plan: NetworkPlan, *, event: EventSink, redactor: Redactor) -> RunNetworks:
    """Return the networks of one run."""
    registries = Registries(upstreams=plan.upstreams)
    authority = RunAuthority(datetime.now(UTC)) if plan.presets else None

    def make(policy: EgressPolicy) -> RunNetwork:
        return RunNetwork(policy, plan, registries=registries, authority=authority, event=event, redactor=redactor)

    return RunNetworks(setup=make(plan.setup), agent=make(plan.agent))


def furnish_home(home: Path, files: Mapping[str, bytes], owner: RunUser | None) -> None:
    """Write `files`, by their path below `home`, as `owner`'s.

    Only into a home in which no process of the run has been: what exists already raises FileExistsError, since anything
    could have been put in its place.
    """
    for name, content in files.items():
        path = home / name
        for folder in reversed([parent for parent in path.parents if parent.is_relative_to(home) and parent != home]):
            if not folder.exists():
                folder.mkdir(mode=0o700)
                _give(folder, owner)
        with path.open("xb") as file:
            file.write(content)
        _give(path, owner)


def _give(path: Path, owner: RunUser | None) -> None:
    if owner is not None:
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
