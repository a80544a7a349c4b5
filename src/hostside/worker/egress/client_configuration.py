"""What tells the clients inside a run where its proxy is: variables, and files in the run's home (D25). Pure.

Every client is pointed at the proxy whether its registry is listed or not: a registry that is not answers at once with
the line that would allow it, where a client that is left alone tries for a minute and blames the network.
"""

from collections.abc import Mapping
from xml.sax.saxutils import escape

from hostside.worker.egress.policy import EgressPolicy
from hostside.worker.egress.presets import PREFIX, Registries

OWN_FOLDER = ".config/hostside"
BUNDLE = f"{OWN_FOLDER}/certificates.pem"
AUTHORITY = f"{OWN_FOLDER}/run-authority.pem"
APT_CONFIG = f"{OWN_FOLDER}/apt.conf"
APT_SOURCES = f"{OWN_FOLDER}/apt-sources"
APT_STATE = ".local/state/apt"
NOT_PROXIED = ("127.0.0.1", "localhost", "::1")
_NOTHING: Mapping[str, bytes] = {}

Configuration = tuple[dict[str, str], dict[str, bytes]]


def client_configuration(
    proxy_address: tuple[str, int],
    policy: EgressPolicy,
    home_inside: str,
    *,
    registries: Registries,
    certificate: bytes = b"",
    system_certificates: bytes = b"",
    apt_sources: Mapping[str, bytes] = _NOTHING,
) -> Configuration:
    """Return environment variables, and files by their path below the run's home.

    `proxy_address`: where the proxy answers inside. `certificate`: the run's authority (`RunAuthority.certificate`);
    `system_certificates`: the host's bundle of trusted ones, both as PEM. Without either no client is told to trust the
    authority, and uv, which writes the index's address into its lock file, is given the proxy's own address.
    `apt_sources`: files of apt's sources by name (`discovery.apt_sources`). Holds no secret; sets no `GIT_*` variable.
    """
    proxy = f"http://{proxy_address[0]}:{proxy_address[1]}"
    trusted = bool(certificate and system_certificates)
    environment = _proxies(proxy)
    files = {
        ".cargo/config.toml": _cargo(proxy).encode(),
        ".m2/settings.xml": _maven(proxy, proxy_address).encode(),
        APT_CONFIG: _apt(proxy, home_inside, trusted=trusted).encode(),
        f"{APT_STATE}/status": b"",
        **{f"{APT_SOURCES}/{name}": content for name, content in apt_sources.items()},
    }
    environment |= _npm(proxy, registries)
    environment |= _python(proxy, policy, registries, trusted=trusted)
    environment |= {
        "CARGO_NET_RETRY": "1",
        "GOPROXY": f"{proxy}{PREFIX}go",
        # The toolchain is the host's: a go.mod that asks for another one is not answered with a download.
        "GOTOOLCHAIN": "local",
        "APT_CONFIG": f"{home_inside}/{APT_CONFIG}",
    }
    if trusted:
        environment |= _trust(home_inside)
        files |= {BUNDLE: system_certificates.rstrip(b"\n") + b"\n" + certificate, AUTHORITY: certificate}
    return environment, files


def _proxies(proxy: str) -> dict[str, str]:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    excepted = ",".join(NOT_PROXIED)
    return dict.fromkeys(names, proxy) | {"NO_PROXY": excepted, "no_proxy": excepted, "NODE_USE_ENV_PROXY": "1"}


def _trust(home: str) -> dict[str, str]:
    bundle = f"{home}/{BUNDLE}"
    # Node adds to its own list; everything else takes the file instead of its own.
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "CARGO_HTTP_CAINFO")
    return dict.fromkeys(names, bundle) | {"NODE_EXTRA_CA_CERTS": f"{home}/{AUTHORITY}"}


def _npm(proxy: str, registries: Registries) -> dict[str, str]:
    settings = {
        "registry": f"{proxy}{PREFIX}npm/",
        # These only send what nobody asked for.
        "audit": "false",
        "fund": "false",
        "update_notifier": "false",
        "fetch_retry_mintimeout": "1000",
        "fetch_retry_maxtimeout": "5000",
    }
    if (npm := registries.upstreams.get("npm")) is not None:
        # Addresses in lock files stay the registry's; the client goes to the proxy where it meets this host.
        settings["replace_registry_host"] = npm.root.endpoint.authority(npm.root.scheme)
    return {f"npm_config_{name}": value for name, value in settings.items()}


def _python(proxy: str, policy: EgressPolicy, registries: Registries, *, trusted: bool) -> dict[str, str]:
    by_path = f"{proxy}{PREFIX}pypi/simple/"
    pypi = registries.upstreams.get("pypi") if "pypi" in policy.presets else None
    # uv writes the index that it reads into its lock file: it has to read the registry's own address.
    by_address = pypi is not None and (trusted or pypi.root.scheme == "http")
    return {
        "PIP_INDEX_URL": by_path,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "1",
        "UV_DEFAULT_INDEX": str(pypi.root).rstrip("/") if pypi is not None and by_address else by_path,
        "UV_HTTP_RETRIES": "1",
    }


def _cargo(proxy: str) -> str:
    return f"""\
# The registry keeps its name: Cargo.lock does not change.
[source.crates-io]
replace-with = "hostside"

[source.hostside]
registry = "sparse+{proxy}{PREFIX}crates/"
"""


def _maven(proxy: str, address: tuple[str, int]) -> str:
    proxies = "".join(
        f"""
    <proxy>
      <id>hostside-{protocol}</id>
      <active>true</active>
      <protocol>{protocol}</protocol>
      <host>{escape(address[0])}</host>
      <port>{address[1]}</port>
      <nonProxyHosts>127.0.0.1|localhost</nonProxyHosts>
    </proxy>"""
        for protocol in ("http", "https")
    )
    return f"""\
<settings>
  <mirrors>
    <mirror>
      <id>hostside</id>
      <mirrorOf>central</mirrorOf>
      <url>{escape(proxy)}{PREFIX}maven/</url>
    </mirror>
  </mirrors>
  <proxies>{proxies}
  </proxies>
</settings>
"""


def _apt(proxy: str, home: str, *, trusted: bool) -> str:
    lines = [
        f'Acquire::http::Proxy "{proxy}";',
        f'Acquire::https::Proxy "{proxy}";',
        'Acquire::Retries "1";',
        f'Dir::State "{home}/{APT_STATE}";',
        f'Dir::State::status "{home}/{APT_STATE}/status";',
        f'Dir::Cache "{home}/.cache/apt";',
        'Dir::Etc::sourcelist "/dev/null";',
        f'Dir::Etc::sourceparts "{home}/{APT_SOURCES}";',
        'Dir::Etc::trustedparts "/usr/share/keyrings";',
    ]
    if trusted:
        lines.append(f'Acquire::https::CaInfo "{home}/{BUNDLE}";')
    return "\n".join(lines) + "\n"
