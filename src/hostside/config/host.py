"""hostside.toml: host-owned, strict, parsed once into frozen settings (D16). Unknown keys are refused."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, WithJsonSchema

from hostside.config.secrets import SecretReference, parse_reference
from hostside.errors import ConfigError


def _reference(value: Any) -> SecretReference:
    if isinstance(value, SecretReference):
        return value
    if not isinstance(value, str):
        raise ValueError("a secret is a reference in text")
    try:
        return parse_reference(value)
    except ConfigError as exc:
        raise ValueError(f"{exc.message} {exc.remedy}") from None


Secret = Annotated[
    SecretReference,
    BeforeValidator(_reference),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": "^(env:|file:|command:)"}),
]
State = Annotated[str, Field(min_length=1, max_length=100)]


class Section(BaseModel):
    """A section of the file: frozen, no key beyond the declared ones, nothing coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class FileTrackerSection(Section):
    """A tracker in one JSON file on the host."""

    kind: Literal["file"]
    path: str
    states: tuple[State, ...] = Field(default=("Todo", "In Progress", "In Review", "Done"), min_length=1, strict=False)


class LinearSection(Section):
    """A Linear project."""

    kind: Literal["linear"]
    token: Secret
    project: str


class GithubProjectSection(Section):
    """A GitHub project and the repository of its issues."""

    kind: Literal["github-project"]
    token: Secret
    owner: str
    project: int
    repository: str | None = None


class GiteaSection(Section):
    """One repository of a Gitea or Forgejo server."""

    kind: Literal["gitea"]
    token: Secret
    url: str
    repository: str


TrackerSection = Annotated[
    FileTrackerSection | LinearSection | GithubProjectSection | GiteaSection, Field(discriminator="kind")
]


class CodeSection(Section):
    """Where branches go and pull requests open."""

    kind: Literal["github", "gitea", "local"]
    repository: str
    token: Secret | None = None
    url: str | None = None


class AgentSection(Section):
    """Which agent works, and the key of its model."""

    kind: Literal["claude", "codex", "scripted"] = "claude"
    key: Secret | None = None
    model: str | None = None
    base_url: str | None = None
    executable: str | None = None
    script: str | None = None
    edge: Literal["auto", "inband", "http"] = "auto"
    native_tools: Literal["workspace", "off"] = "workspace"


class NetworkSection(Section):
    """What a run may reach: presets and `host:port` entries, none by default (D25)."""

    setup: tuple[str, ...] = Field(default=(), strict=False)
    agent: tuple[str, ...] = Field(default=(), strict=False)


class RunSection(Section):
    """Isolation, place and limits of a run."""

    isolation: Literal["auto", "bwrap", "user", "home"] = "auto"
    workspaces: str | None = None
    repository: str | None = None
    base_branch: str | None = None
    profile: Literal["readonly", "workspace", "full"] = "workspace"
    tools: tuple[str, ...] = Field(default=(), strict=False)
    max_minutes: Annotated[int, Field(ge=1, le=1_440)] = 240
    author_name: str = "Hostside"
    author_email: str = "hostside@localhost"


class PolicySection(Section):
    """Limits of every session."""

    calls_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = 600
    confirm: tuple[str, ...] = Field(default=(), strict=False)
    list_unreachable: bool = False


class ServeSection(Section):
    """`hostside serve --http`."""

    listen: str = "127.0.0.1:8787"
    allowed_hosts: tuple[str, ...] = Field(default=(), strict=False)
    allowed_origins: tuple[str, ...] = Field(default=(), strict=False)


class HostSettings(Section):
    """The whole file. A missing file is an empty one: embedded defaults, no tracker, nothing allowed."""

    trackers: dict[str, TrackerSection] = Field(default_factory=dict)
    code: CodeSection | None = None
    agent: AgentSection = Field(default_factory=AgentSection)
    network: NetworkSection = Field(default_factory=NetworkSection)
    run: RunSection = Field(default_factory=RunSection)
    policy: PolicySection = Field(default_factory=PolicySection)
    serve: ServeSection = Field(default_factory=ServeSection)

    def secret_references(self) -> dict[str, SecretReference]:
        """Return every configured secret by the place of its key, e.g. `trackers.main.token`."""
        found: dict[str, SecretReference] = {}
        for name, tracker in self.trackers.items():
            token = getattr(tracker, "token", None)
            if isinstance(token, SecretReference):
                found[f"trackers.{name}.token"] = token
        if self.code is not None and self.code.token is not None:
            found["code.token"] = self.code.token
        if self.agent.key is not None:
            found["agent.key"] = self.agent.key
        return found


def load_settings(path: Path) -> HostSettings:
    """Return the settings of `path`; a file that does not exist gives the defaults.

    Raises ConfigError(invalid_configuration) that names the key and what is allowed there. No value is repeated in a
    message: it may be a secret that was written in place of a reference.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return HostSettings()
    except OSError as exc:
        raise ConfigError(
            "invalid_configuration", f"{path} cannot be read: {exc.strerror}.", remedy="Check its owner and mode."
        ) from None
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(
            "invalid_configuration", f"{path} is not TOML: {exc}"[:300], remedy="Mend the line that is named."
        ) from None
    return settings_from(document, source=str(path))


def settings_from(document: Mapping[str, Any], *, source: str) -> HostSettings:
    """Return settings from parsed TOML. Raises ConfigError as `load_settings` does."""
    try:
        return HostSettings.model_validate(document)
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors(include_input=False)[:5]
        )
        raise ConfigError(
            "invalid_configuration",
            f"{source}: {problems}",
            remedy="Mend the keys that are named; `docs/reference/settings.md` lists them all.",
        ) from None


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **HostSettings.model_json_schema()}
