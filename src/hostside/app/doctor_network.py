"""What the doctor finds of the network of runs: what is opened, and where each registry is (D25)."""

from collections.abc import Iterator, Mapping

from hostside.app.doctor_findings import Finding, failed, ok
from hostside.app.network import clients_of, configured_registries, policies
from hostside.config.host import HostSettings
from hostside.errors import ConfigError
from hostside.worker.egress.discovery import discover
from hostside.worker.network import describe_policies


def network(settings: HostSettings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Tell what runs may reach, and ask this machine's clients for every listed registry. Raises ConfigError for entries
    that cannot be used."""
    section = settings.network
    setup, agent = policies(section)
    configured = configured_registries(section)
    yield ok("network", describe_policies(setup, agent))
    secrets = {reference.environment_name for reference in settings.secret_references().values()}
    clients = clients_of({name: value for name, value in environment.items() if name not in secrets})
    for preset in sorted(setup.presets | agent.presets):
        name = f"network {preset}"
        try:
            found = discover([preset], configured, clients).upstream(preset)
        except ConfigError as error:
            yield failed(name, error.message, error.remedy)
            continue
        source = "hostside.toml" if preset in configured else "this machine's own client"
        yield ok(name, f"{', '.join(map(str, found.roots.values()))} · says {source}")
