"""What a policy may name, and the addresses that no name opens."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.errors import ConfigError
from hostside.worker.egress.addresses import Endpoint, Kind, kind_of, parse_endpoint
from hostside.worker.egress.policy import EgressPolicy

FORBIDDEN = {
    "0.0.0.0": Kind.UNSPECIFIED,
    "10.1.2.3": Kind.PRIVATE,
    "100.64.0.1": Kind.PRIVATE,
    "100.100.100.200": Kind.METADATA,
    "127.0.0.1": Kind.LOOPBACK,
    "127.255.255.254": Kind.LOOPBACK,
    "168.63.129.16": Kind.METADATA,
    "169.254.0.7": Kind.LINK_LOCAL,
    "169.254.169.254": Kind.METADATA,
    "172.16.0.1": Kind.PRIVATE,
    "172.31.255.255": Kind.PRIVATE,
    "192.0.2.1": Kind.RESERVED,
    "192.168.1.1": Kind.PRIVATE,
    "198.18.0.1": Kind.RESERVED,
    "224.0.0.251": Kind.MULTICAST,
    "240.0.0.1": Kind.RESERVED,
    "255.255.255.255": Kind.RESERVED,
    "::": Kind.UNSPECIFIED,
    "::1": Kind.LOOPBACK,
    "::7f00:1": Kind.EMBEDDED,
    "::ffff:127.0.0.1": Kind.EMBEDDED,
    "::ffff:8.8.8.8": Kind.EMBEDDED,
    "64:ff9b::a9fe:a9fe": Kind.EMBEDDED,
    "64:ff9b:1::a00:1": Kind.EMBEDDED,
    "100::1": Kind.RESERVED,
    "2001:0:1::1": Kind.EMBEDDED,
    "2001:db8::1": Kind.RESERVED,
    "2002:7f00:1::": Kind.EMBEDDED,
    "fd00:ec2::254": Kind.METADATA,
    "fd12::1": Kind.PRIVATE,
    "fe80::1": Kind.LINK_LOCAL,
    "fe80::1%2": Kind.LINK_LOCAL,
    "fec0::1": Kind.PRIVATE,
    "ff02::1": Kind.MULTICAST,
    "4000::1": Kind.RESERVED,
}


def test_every_address_that_is_not_of_the_public_internet_has_a_name() -> None:
    found = {text: kind_of(ipaddress.ip_address(text)) for text in FORBIDDEN}
    assert found == FORBIDDEN
    assert [kind_of(ipaddress.ip_address(text)) for text in ("151.101.0.1", "1.1.1.1", "2a04:4e42::1")] == [None] * 3


@given(st.ip_addresses())
def test_an_address_that_python_does_not_call_global_is_never_admitted(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or kind_of(address) is not None


def test_a_policy_names_presets_and_endpoints_in_one_form() -> None:
    policy = EgressPolicy.parse(["npm", "API.Example.com.:443", "[2A04:4E42::1]:8443", "npm"], name="network.setup")
    assert policy == EgressPolicy(
        name="network.setup",
        presets=frozenset({"npm"}),
        endpoints=frozenset({Endpoint("api.example.com", 443), Endpoint("2a04:4e42::1", 8443)}),
    )
    assert (policy.describe(), EgressPolicy.parse([]).describe()) == (
        "npm, [2a04:4e42::1]:8443, api.example.com:443",
        "none",
    )


def test_an_unknown_preset_is_refused_with_the_ones_that_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        EgressPolicy.parse(["nmp"], name="network.setup")
    assert (caught.value.code, caught.value.message, caught.value.remedy) == (
        "invalid_configuration",
        "network.setup: there is no preset 'nmp'",
        'Write "npm", or one of npm, pypi, crates, go, maven, debian, or host:port.',
    )


@pytest.mark.parametrize(
    "entry",
    [
        "example.com:0",
        "example.com:65536",
        "example.com:",
        ":443",
        "exa mple.com:443",
        "127.1:80",
        "2130706433:80",
        "0x7f000001:80",
        "0177.0.0.1:80",
        "::1:80",
        "[::1:80",
        "[fe80::1%eth0]:80",
        "-a.com:1",
        "a..b:1",
        "*.example.com:443",
        "https://example.com:443",
        "user@example.com:443",
        "ex\u00e4mple.com:443",
        "a\n.com:1",
        "example.com:\u0664\u0664",
    ],
)
def test_what_is_no_host_and_port_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="is not host:port"):
        EgressPolicy.parse([entry])


@pytest.mark.parametrize("address", [text for text in FORBIDDEN if "%" not in text])
def test_an_address_that_is_not_public_needs_the_operators_word(address: str) -> None:
    entry = f"[{address}]:80" if ":" in address else f"{address}:80"
    with pytest.raises(ConfigError, match="is no address of the public internet") as caught:
        EgressPolicy.parse([entry])
    shown = str(parse_endpoint(entry))
    assert caught.value.remedy.endswith(f'add "{shown}" to [network] private in hostside.toml.')
    assert EgressPolicy.parse([entry], private=[entry]).endpoints == {parse_endpoint(entry)}


def test_a_name_that_may_be_private_may_not_be_loopback_or_metadata() -> None:
    policy = EgressPolicy.parse(["db.corp.test:5432"], private=["db.corp.test:5432", "127.0.0.1:6379"])
    name, literal = Endpoint("db.corp.test", 5432), Endpoint("127.0.0.1", 6379)
    admitted = {kind: policy.admits_address(name, kind) for kind in Kind}
    assert admitted == {kind: kind is Kind.PRIVATE for kind in Kind}
    assert policy.admits_address(literal, Kind.LOOPBACK)
    assert not policy.admits_address(Endpoint("127.0.0.1", 6380), Kind.LOOPBACK)
    assert not policy.allows(literal)
