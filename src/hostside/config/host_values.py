"""The kinds of values in hostside.toml, each with the form that it must have."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from hostside.config.secrets import SecretReference, parse_reference
from hostside.errors import ConfigError

Preset = Literal["npm", "pypi", "crates", "go", "maven", "debian"]
PRESETS: tuple[Preset, ...] = ("npm", "pypi", "crates", "go", "maven", "debian")
MAX_PORT = 65_535
_ROOT = r"^[A-Za-z0-9._-]{1,100}$"
_ADDRESS = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}"


def _reference(value: Any) -> SecretReference:
    if isinstance(value, SecretReference):
        return value
    if not isinstance(value, str):
        raise ValueError("a secret is a reference in text")
    try:
        return parse_reference(value)
    except ConfigError as exc:
        raise ValueError(f"{exc.message} {exc.remedy}") from None


def _path(value: str) -> str:
    if "\0" in value or not value.startswith(("/", "~/")):
        raise ValueError("a path is absolute or starts with ~/; the current directory never decides")
    return value


def _program(value: str) -> str:
    return value if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", value) else _path(value)


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_ok = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        raise ValueError("an address starts with https:// or http:// and a host")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("an address has no user, password, query or fragment; a credential is a key of its own")
    if re.search(r"[\x00-\x20\x7f]", value):
        raise ValueError("an address has no white space")
    return value


def _listen(value: str) -> str:
    if re.fullmatch(_ADDRESS, value) is None or int(value.rpartition(":")[2]) > MAX_PORT:
        raise ValueError("expected an address and a port, e.g. 127.0.0.1:8787")
    return value


def _entry(value: str) -> str:
    if value in PRESETS or (re.fullmatch(_ADDRESS, value) and 0 < int(value.rpartition(":")[2]) <= MAX_PORT):
        return value
    raise ValueError(f"expected host:port or one of {', '.join(PRESETS)}")


def _registry(value: Any) -> str | dict[str, str]:
    if isinstance(value, str):
        return _url(value)
    if not isinstance(value, dict) or not value:
        raise ValueError("expected the address of a registry, or a table of names and addresses")
    for name, address in value.items():
        if re.fullmatch(_ROOT, name) is None or not isinstance(address, str):
            raise ValueError("a root has a name of letters, digits, dots, dashes and underscores, and an address")
        _url(address)
    return value


def _private(value: str) -> str:
    if value in PRESETS:
        raise ValueError("expected host:port; private says of an endpoint what its addresses may be")
    return _entry(value)


Secret = Annotated[
    SecretReference,
    BeforeValidator(_reference),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": "^(env:[A-Za-z_][A-Za-z0-9_]*$|file:(/|~/)|command:\\[)"}),
]
"""`env:NAME`, `file:PATH` or `command:[...]`."""
State = Annotated[str, Field(min_length=1, max_length=100)]
TrackerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$")]
Repository = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}$")]
HostPath = Annotated[
    str, AfterValidator(_path), Field(min_length=1, max_length=4_096, json_schema_extra={"pattern": "^(/|~/)"})
]
Program = Annotated[str, AfterValidator(_program), Field(min_length=1, max_length=4_096)]
Url = Annotated[str, AfterValidator(_url), Field(max_length=2_000, json_schema_extra={"pattern": "^https?://"})]
Listen = Annotated[str, AfterValidator(_listen), Field(json_schema_extra={"pattern": f"^{_ADDRESS}$"})]
NetworkEntry = Annotated[
    str,
    AfterValidator(_entry),
    Field(json_schema_extra={"pattern": f"^({'|'.join(PRESETS)}|{_ADDRESS})$"}),
]
PrivateEntry = Annotated[str, AfterValidator(_private), Field(json_schema_extra={"pattern": f"^{_ADDRESS}$"})]
RegistryAddress = Annotated[
    str | dict[str, str],
    BeforeValidator(_registry),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^https?://"},
                {
                    "type": "object",
                    "patternProperties": {_ROOT: {"type": "string", "pattern": "^https?://"}},
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        }
    ),
]
"""A registry's address; where it has several roots, the address of each by a name of one's own."""
