"""hostside.toml: host-owned, strict, parsed once into frozen settings (D16). Unknown keys are refused."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from hostside.config.host_values import (
    HostPath,
    Listen,
    NetworkEntry,
    Preset,
    PrivateEntry,
    Program,
    RegistryAddress,
    Repository,
    Secret,
    State,
    TrackerName,
    Url,
)
from hostside.config.owned_files import WRITABLE_BY_OTHERS, UnsafeFileError, read_owned
from hostside.config.secrets import SecretReference
from hostside.config.validation_text import describe
from hostside.config.workflow_front import WorkflowLimits
from hostside.core.redaction import Redactor
from hostside.errors import ConfigError

MAX_BYTES = 262_144
_USER = r"^([a-z_][a-z0-9_.-]{0,31}|[1-9][0-9]{0,9})$"
UserName = Annotated[
    str,
    # A number may be written as one: it names the user, as its text does.
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(pattern=_USER),
    WithJsonSchema({"type": "string", "pattern": _USER}),
]


class Section(BaseModel):
    """A section of the file: frozen, no key beyond the declared ones, nothing coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class FileTrackerSection(Section):
    """A tracker in one JSON file on the host."""

    kind: Literal["file"] = Field(description="The tracker is a JSON file.")
    path: HostPath = Field(description="The file: a JSON array of issues.")
    states: tuple[State, ...] = Field(
        default=("Todo", "In Progress", "In Review", "Done"),
        min_length=1,
        strict=False,
        description="The states that an issue can be in, in board order; compared without regard to case.",
    )
    author: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        default="hostside", description="The name under which the host comments."
    )
    lock_seconds: Annotated[float, Field(gt=0, le=30)] = Field(
        default=5.0, strict=False, description="Longest wait for another process that writes the file, in seconds."
    )

    @field_validator("states")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({state.strip().lower() for state in value}) != len(value):
            raise ValueError("two states differ only in case or white space")
        return value


class LinearSection(Section):
    """A Linear project."""

    kind: Literal["linear"] = Field(description="The tracker is Linear.")
    token: Secret = Field(description="A Linear API key that may read, and write issues and comments.")
    project: str = Field(min_length=1, max_length=200, description="The project's slug, as in its address.")


class GithubProjectSection(Section):
    """A GitHub project and the repository of its issues."""

    kind: Literal["github-project"] = Field(description="The tracker is a GitHub project (the new kind).")
    token: Secret = Field(description="A token that may read and write the project and its issues.")
    owner: str = Field(min_length=1, max_length=100, description="The user or organisation that owns the project.")
    project: Annotated[int, Field(ge=1)] = Field(description="The project's number, as in its address.")
    repository: Repository | None = Field(default=None, description="Only issues of this repository, `owner/name`.")


class GiteaSection(Section):
    """One repository of a Gitea or Forgejo server."""

    kind: Literal["gitea"] = Field(description="The tracker is a repository's issues on Gitea or Forgejo.")
    token: Secret = Field(description="A token that may read and write issues of the repository.")
    url: Url = Field(description="The server's address, without credentials.")
    repository: Repository = Field(description="The repository, `owner/name`.")


TrackerSection = Annotated[
    FileTrackerSection | LinearSection | GithubProjectSection | GiteaSection, Field(discriminator="kind")
]


class CodeSection(Section):
    """Where branches go and pull requests open."""

    kind: Literal["github", "gitea", "local"] = Field(description="What serves the repository; `local` is a folder.")
    repository: str = Field(
        min_length=1, max_length=1_000, description="`owner/name`; for `local` the path of a bare repository."
    )
    token: Secret | None = Field(default=None, description="A token that may push branches and open pull requests.")
    url: Url | None = Field(default=None, description="The server's address; required for `gitea`.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "gitea" and self.url is None:
            raise ValueError("`url` is required for the kind gitea")
        if self.kind == "local" and self.token is not None:
            raise ValueError("`token` has no use for the kind local")
        form = HostPath if self.kind == "local" else Repository
        try:
            TypeAdapter[str](form).validate_python(self.repository)
        except ValidationError:
            expected = "an absolute path" if self.kind == "local" else "`owner/name`"
            raise ValueError(f"`repository` is {expected} for the kind {self.kind}") from None
        return self


class AgentSection(Section):
    """Which agent works, and the key of its model."""

    kind: Literal["claude", "codex", "scripted"] = Field(default="claude", description="The agent that works.")
    key: Secret | None = Field(
        default=None, description="The key of its model. It stays with the host; the agent gets a token of the run."
    )
    key_kind: Literal["api-key", "login"] = Field(
        default="api-key",
        description="What the key is: an API key, or a token of Claude Code's own login (`claude setup-token`).",
    )
    max_requests: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="How many requests a run may send to its model; no limit by default."
    )
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = Field(
        default=None,
        description="How many tokens the model may read and write for a run, cached ones included; no limit by default.",
    )
    model: str | None = Field(
        default=None, min_length=1, max_length=200, description="The model; else the agent's own."
    )
    base_url: Url | None = Field(default=None, description="Another address of the model's API.")
    executable: Program | None = Field(default=None, description="The agent's program: a path, or a name in PATH.")
    script: HostPath | None = Field(default=None, description="The calls of the scripted agent, a JSON file.")
    edge: Literal["auto", "inband", "http"] = Field(
        default="auto", description="How it reaches the tools; `auto` prefers the way without a port."
    )
    native_tools: Literal["workspace", "off"] = Field(
        default="workspace", description="Whether the agent's own shell and editor work inside the workspace."
    )

    @model_validator(mode="after")
    def _login(self) -> Self:
        if self.key_kind == "login" and (self.kind != "claude" or self.key is None):
            raise ValueError("`key_kind` login needs a `key` and the kind claude")
        return self


class NetworkSection(Section):
    """What a run may reach: presets and `host:port` entries, none by default (D25)."""

    setup: tuple[NetworkEntry, ...] = Field(
        default=(),
        strict=False,
        description="While hooks prepare the workspace: presets or `host:port`.",
    )
    agent: tuple[NetworkEntry, ...] = Field(
        default=(), strict=False, description="From the agent's start on; the same words."
    )
    private: tuple[PrivateEntry, ...] = Field(
        default=(),
        strict=False,
        description="`host:port` whose addresses may be private ones; opens nothing by itself.",
    )
    registries: dict[Preset, RegistryAddress] = Field(
        default_factory=dict,
        description="Address of a preset's registry, or of each of its roots by name; else this machine's client says it.",
    )
    registry_tokens: dict[Preset, Secret] = Field(
        default_factory=dict,
        description="A token, or `user:password`, of a preset's registry. It stays with the host.",
    )


class RunSection(Section):
    """Isolation, place and limits of a run."""

    isolation: Literal["auto", "bwrap", "user", "home"] = Field(
        default="auto", description="The walls around a run; `auto` takes the strongest that this machine has."
    )
    user: UserName | None = Field(
        default=None,
        description="The operating system user of a run's processes, by name or number; only for a host that is root.",
    )
    workspaces: HostPath | None = Field(
        default=None,
        description="The folder of all workspaces; else one in the state, with `user` `/var/lib/hostside/workspaces`.",
    )
    homes: HostPath | None = Field(
        default=None,
        description="The folder of all run homes; else one in the state, with `user` `/var/lib/hostside/runs`.",
    )
    repository: HostPath | None = Field(default=None, description="The local repository that workspaces are made from.")
    base_branch: str | None = Field(
        default=None, min_length=1, max_length=250, description="What new branches start from; else its HEAD."
    )
    profile: Literal["readonly", "workspace", "full"] = Field(
        default="workspace", description="What the run's tools may do at most."
    )
    tools: tuple[str, ...] = Field(
        default=(), strict=False, description="Tool families beyond those that the agent lacks, e.g. `files`."
    )
    max_minutes: Annotated[int, Field(ge=1, le=1_440)] = Field(
        default=240, description="How long a run may take in all."
    )
    turn_minutes: Annotated[int, Field(ge=1, le=1_440)] = Field(
        default=60, description="How long a turn may take; a WORKFLOW.md that is not trusted can only shorten it."
    )
    stall_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=300,
        description="How long an agent may be silent; a WORKFLOW.md that is not trusted can only shorten it.",
    )
    hook_seconds: Annotated[int, Field(ge=1, le=3_600)] = Field(
        default=60, description="How long a hook may take where WORKFLOW.md says nothing."
    )
    author_name: str = Field(default="Hostside", min_length=1, max_length=200, description="Who commits, by name.")
    author_email: str = Field(
        default="hostside@localhost", min_length=1, max_length=200, description="Who commits, by address."
    )


class PolicySection(Section):
    """Limits of every session."""

    calls_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=600, description="Calls that one session may make in a minute."
    )
    confirm: tuple[str, ...] = Field(default=(), strict=False, description="Tools that always need an approval.")
    list_unreachable: bool = Field(
        default=False, description="Whether tools that a session cannot use are listed, with their class."
    )


class ServeSection(Section):
    """`hostside serve --http`."""

    listen: Listen = Field(default="127.0.0.1:8787", description="Address and port.")
    allowed_hosts: tuple[str, ...] = Field(default=(), strict=False, description="Host names that a request may name.")
    allowed_origins: tuple[str, ...] = Field(default=(), strict=False, description="Origins that a browser may send.")


class HostSettings(Section):
    """The whole file. A missing file is an empty one: embedded defaults, no tracker, nothing allowed."""

    trackers: dict[TrackerName, TrackerSection] = Field(
        default_factory=dict,
        description="Trackers by name. WORKFLOW.md selects one by its kind.",
        json_schema_extra={"additionalProperties": False},
    )
    code: CodeSection | None = Field(default=None, description="Where branches go and pull requests open.")
    agent: AgentSection = Field(default_factory=AgentSection, description="Which agent works.")
    network: NetworkSection = Field(default_factory=NetworkSection, description="What a run may reach.")
    run: RunSection = Field(default_factory=RunSection, description="Isolation, place and limits of a run.")
    policy: PolicySection = Field(default_factory=PolicySection, description="Limits of every session.")
    serve: ServeSection = Field(default_factory=ServeSection, description="The HTTP listener.")

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
        found |= {f"network.registry_tokens.{name}": token for name, token in self.network.registry_tokens.items()}
        return found

    def workflow_limits(self) -> WorkflowLimits:
        """Return what a WORKFLOW.md that is not trusted may not exceed, and what holds where it says nothing (D16)."""
        return WorkflowLimits(
            turn_timeout_ms=self.run.turn_minutes * 60_000,
            stall_timeout_ms=self.run.stall_seconds * 1_000,
            hook_timeout_ms=self.run.hook_seconds * 1_000,
        )


def load_settings(path: Path) -> HostSettings:
    """Return the settings of `path`; a file that does not exist gives the defaults.

    Raises ConfigError(invalid_configuration) that names the key and what is allowed there, or says why the file may
    not be believed: it decides which programs run, so nobody else may be able to change it. No value is repeated in a
    message: it may be a secret that was written in place of a reference.
    """
    try:
        raw = read_owned(path, max_bytes=MAX_BYTES, forbidden=WRITABLE_BY_OTHERS)
    except UnsafeFileError as exc:
        raise ConfigError("invalid_configuration", f"{path}: {exc.message}.", remedy=exc.remedy) from None
    if raw is None:
        return HostSettings()
    try:
        document = tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise ConfigError(
            "invalid_configuration", f"{path} is not TOML: {_why(exc)}"[:300], remedy="Mend the line that is named."
        ) from None
    return settings_from(document, source=str(path))


def settings_from(document: Mapping[str, Any], *, source: str) -> HostSettings:
    """Return settings from parsed TOML. Raises ConfigError as `load_settings` does."""
    try:
        return HostSettings.model_validate(document)
    except ValidationError as exc:
        raise ConfigError(
            "invalid_configuration",
            f"{source}: {describe(exc, place=_place)}",
            remedy="Mend the keys that are named; `docs/reference/settings.md` lists them all.",
        ) from None


def settings_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the file, for editors. It knows the form of each value, not every rule."""
    schema = HostSettings.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_without_null(schema),
        "title": "hostside.toml",
    }


def _without_null(schema: Any) -> Any:
    """Leave out what TOML cannot say (null), and titles that only repeat the key."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
    options = kept.get("anyOf", [])
    if {"type": "null"} in options and len(options) == 2:
        del kept["anyOf"]
        kept |= next(option for option in options if option != {"type": "null"})
    return kept


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    # Pydantic puts the kind of a tracker between its name and its key.
    if location[:1] == ("trackers",) and len(location) > 3:
        return (*location[:2], *location[3:])
    return location


def _why(exc: Exception) -> str:
    if isinstance(exc, tomllib.TOMLDecodeError):
        return Redactor().text(str(exc))
    return "it is not UTF-8" if isinstance(exc, UnicodeDecodeError) else "a value is too long or nested too deeply"
