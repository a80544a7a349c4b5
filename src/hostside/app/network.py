"""The network of runs as hostside.toml and this machine's own clients say it (D25)."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from hostside.app.host import App
from hostside.config.host import NetworkSection
from hostside.errors import ConfigError
from hostside.worker.egress.discovery import Clients, apt_sources, discover
from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.presets import RegistryUpstream, upstream
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.network import NetworkPlan

#: Where distributions keep their list, for a Python that was built elsewhere.
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_MAX_BUNDLE_BYTES = 4_000_000


async def plan_network(app: App, level: IsolationLevel) -> NetworkPlan | None:
    """Return the network of a run; None where its level has no wall before it. Raises ConfigError (`policies`, `discover`),
    also for the token of a listed registry that has no value."""
    if level is not IsolationLevel.BWRAP:
        return None
    section = app.settings.network
    setup, agent = policies(section)
    presets = setup.presets | agent.presets
    hidden = app.secrets.names
    clients = clients_of({name: value for name, value in app.environment.items() if name not in hidden})
    found = await anyio.to_thread.run_sync(lambda: discover(presets, configured_registries(section), clients))
    return NetworkPlan(
        setup=setup,
        agent=agent,
        upstreams=found.upstreams,
        tokens=_tokens(app, presets),
        system_certificates=_system_certificates() if presets else b"",
        apt_sources=apt_sources(clients) if "debian" in presets else {},
    )


def policies(section: NetworkSection) -> tuple[EgressPolicy, EgressPolicy]:
    """Return the policy of the hooks that prepare the workspace, and that of everything after. Raises ConfigError."""
    return (
        EgressPolicy.parse(section.setup, name="network.setup", private=section.private),
        EgressPolicy.parse(section.agent, name="network.agent", private=section.private),
    )


def configured_registries(section: NetworkSection) -> dict[str, RegistryUpstream]:
    """Return the registries that the configuration names, by preset. Raises ConfigError."""
    return {preset: upstream(preset, address) for preset, address in section.registries.items()}


def clients_of(environment: Mapping[str, str]) -> Clients:
    """Return the clients of this machine, as the operator starts them."""
    home = environment.get("HOME")
    return Clients(environment=environment, home=Path(home) if home else Path.home())


def _tokens(app: App, presets: frozenset[str]) -> dict[str, str]:
    found = {}
    for preset, reference in app.settings.network.registry_tokens.items():
        key = f"network.registry_tokens.{preset}"
        value = app.secrets.values.get(key)
        if value is not None:
            found[str(preset)] = value
        elif preset in presets:
            raise ConfigError(
                "invalid_configuration",
                f"{key} refers to a secret that has no value.",
                remedy=f"Provide {reference}; leave the key out where the registry needs none.",
            )
    return found


def _system_certificates() -> bytes:
    for path in filter(None, (ssl.get_default_verify_paths().cafile, *_BUNDLES)):
        try:
            with Path(path).open("rb") as file:
                return file.read(_MAX_BUNDLE_BYTES)
        except OSError:
            continue
    return b""
