"""The facts that an adapter publishes about itself (R-232, R-240). Its reference page is generated from them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from hostside.core.canonical import JsonObject, snapshot
from hostside.core.spec import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFact:
    """One key of the tracker's settings. `default` is the value in words, None where the key is required."""

    key: str
    meaning: str
    default: str | None
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFact:
    """One row of an error map: the failure code (or start-up code), and what natively leads to it."""

    code: str
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProfile:
    """What an operator has to know of one tool beyond its schema. `permission` is the least that the provider must grant."""

    name: str
    input_schema: Mapping[str, object]
    mutates: bool
    idempotent: bool
    scope: str
    results: str
    errors: tuple[str, ...]
    idempotency: str
    rate_limits: str
    permission: str

    @staticmethod
    def of(
        tool: Tool,
        *,
        scope: str,
        results: str,
        errors: tuple[str, ...],
        idempotency: str,
        rate_limits: str,
        permission: str,
    ) -> "ToolProfile":
        """Return the profile of a tool; name, schema and safety facts are read off its spec, never typed twice."""
        return ToolProfile(
            name=tool.spec.name,
            input_schema=tool.spec.input_schema,
            mutates=not tool.spec.read_only,
            idempotent=tool.spec.idempotent,
            scope=scope,
            results=results,
            errors=errors,
            idempotency=idempotency,
            rate_limits=rate_limits,
            permission=permission,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerProfile:
    """One adapter's page as data. Every field says something, also where that is "none".

    `normalization` maps each field of the normalized issue to where it comes from; `secrets` are the environment names
    of `secret_environment_names`.
    """

    kind: str
    settings: tuple[SettingFact, ...]
    secrets: tuple[str, ...]
    validation_errors: tuple[ErrorFact, ...]
    scope: str
    paging: str
    limits: tuple[str, ...]
    ids: str
    native_ref: str
    normalization: Mapping[str, str]
    tools: tuple[ToolProfile, ...]
    errors: tuple[ErrorFact, ...]

    def as_object(self) -> JsonObject:
        """Return the profile as JSON, with every field."""
        value = snapshot(_plain(self))
        assert isinstance(value, dict)
        return value


def _plain(value: object) -> object:
    if isinstance(value, SettingFact | ErrorFact | ToolProfile | TrackerProfile):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
