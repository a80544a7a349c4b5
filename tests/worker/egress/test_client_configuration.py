"""What the clients inside are told."""

import tomllib
from xml.etree import ElementTree

from hostside.worker.child_environment import build_environment
from hostside.worker.egress.client_configuration import client_configuration
from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.presets import Registries, upstream

HOME = "/home/agent"
PROXY = "http://127.0.0.1:8003"
REGISTRIES = Registries(
    upstreams={
        "npm": upstream("npm", "https://npm.test/base"),
        "pypi": upstream("pypi", "https://index.test/simple"),
    }
)


def test_every_client_is_pointed_at_the_proxy_whether_its_registry_is_listed_or_not() -> None:
    environment, files = client_configuration(("127.0.0.1", 8003), EgressPolicy.parse([]), HOME, registries=REGISTRIES)
    assert environment == {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), PROXY),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1"),
        "NODE_USE_ENV_PROXY": "1",
        "npm_config_registry": f"{PROXY}/registry/npm/",
        "npm_config_replace_registry_host": "npm.test",
        "npm_config_audit": "false",
        "npm_config_fund": "false",
        "npm_config_update_notifier": "false",
        "npm_config_fetch_retry_mintimeout": "1000",
        "npm_config_fetch_retry_maxtimeout": "5000",
        "PIP_INDEX_URL": f"{PROXY}/registry/pypi/simple/",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "1",
        "UV_DEFAULT_INDEX": f"{PROXY}/registry/pypi/simple/",
        "UV_HTTP_RETRIES": "1",
        "CARGO_NET_RETRY": "1",
        "GOPROXY": f"{PROXY}/registry/go",
        "GOTOOLCHAIN": "local",
        "APT_CONFIG": f"{HOME}/.config/hostside/apt.conf",
    }
    assert tomllib.loads(files[".cargo/config.toml"].decode())["source"] == {
        "crates-io": {"replace-with": "hostside"},
        "hostside": {"registry": f"sparse+{PROXY}/registry/crates/"},
    }
    assert (
        ElementTree.fromstring(files[".m2/settings.xml"]).findtext("mirrors/mirror/url") == f"{PROXY}/registry/maven/"
    )
    assert set(files) == {
        ".cargo/config.toml",
        ".m2/settings.xml",
        ".config/hostside/apt.conf",
        ".local/state/apt/status",
    }


def test_with_an_authority_the_clients_trust_it_beside_the_hosts_own_list() -> None:
    environment, files = client_configuration(
        ("127.0.0.1", 8003),
        EgressPolicy.parse(["pypi"]),
        HOME,
        registries=REGISTRIES,
        certificate=b"RUN\n",
        system_certificates=b"SYSTEM\n\n",
    )
    bundle = f"{HOME}/.config/hostside/certificates.pem"
    assert {name for name, value in environment.items() if value == bundle} == {
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "CURL_CA_BUNDLE",
        "CARGO_HTTP_CAINFO",
    }
    assert environment["UV_DEFAULT_INDEX"] == "https://index.test/simple"
    assert files[".config/hostside/certificates.pem"] == b"SYSTEM\nRUN\n"
    assert files[".config/hostside/run-authority.pem"] == b"RUN\n"


def test_the_childs_environment_keeps_all_of_it() -> None:
    environment, _ = client_configuration(
        ("127.0.0.1", 8003),
        EgressPolicy.parse(["pypi"]),
        HOME,
        registries=REGISTRIES,
        certificate=b"RUN\n",
        system_certificates=b"SYSTEM\n",
    )
    built = build_environment(home=HOME, declared_secrets=(), run_facts={}, extras=environment, base={})
    assert environment.items() <= built.items()
