"""The one catalogue of tools (R-001..R-023). Changes are atomic; sessions hold frozen snapshots of it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from hostside.core.canonical import JsonObject, compact, digest, snapshot
from hostside.core.locality import Locality
from hostside.core.schema import CompiledSchema, SchemaRejected, advertised, compile_schema
from hostside.core.spec import Capability, Risk, SideEffect, Tool, ToolSpec, Visibility
from hostside.errors import RegistrationError

NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")
MAX_SCHEMA_CHARACTERS = 5_000
MAX_DESCRIPTION_CHARACTERS = 4_000
#: Names that an agent takes for its own tool, so that the host's is never called (facts on Codex, §3).
SHADOWED = frozenset(
    "exec_command write_stdin view_image request_user_input get_goal create_goal update_goal multi_agent_v1 exec wait "
    "apply_patch shell web_search update_plan mcp functions web python browser computer container file_search image_gen "
    "api_tool terminal submodel_delegator".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTool:
    """A tool that passed every rule, with its compiled schemas and the schema that agents are shown."""

    tool: Tool
    input: CompiledSchema
    output: CompiledSchema
    advertised_input: JsonObject

    @property
    def spec(self) -> ToolSpec:
        """The spec."""
        return self.tool.spec

    @property
    def schema_bytes(self) -> int:
        """The size of the advertised input schema as compact JSON."""
        return len(compact(self.advertised_input).encode())

    def contract(self) -> JsonObject:
        """Return all that an agent or operator can see of the tool. A fresh copy."""
        return {
            **self.spec.facts(),
            "description": self.spec.description,
            "input_schema": snapshot(self.advertised_input),
            "output_schema": snapshot(self.output.document),
            "schema_bytes": self.schema_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySnapshot:
    """A frozen catalogue, by canonical name in a deterministic order, and the fingerprint of its contracts."""

    tools: Mapping[str, RegisteredTool]
    fingerprint: str


class Registry:
    """Tools by canonical name. Every method that changes it either succeeds whole or changes nothing."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, RegisteredTool] = {}
        self.register(*tools)

    def register(self, *tools: Tool) -> None:
        """Add tools. Raises RegistrationError that names the tool and the rule; then none of them was added."""
        staged = dict(self._tools)
        for tool in tools:
            checked = _check(tool)
            _refuse_collision(checked.spec, staged)
            staged[checked.spec.name] = checked
        self._tools = staged

    def replace(self, name: str, *, tool: Tool | None = None, **changes: Any) -> Tool:
        """Replace a tool, or only the named spec fields of it; every other field is kept. Returns the former tool."""
        former = self._require(name)
        base = former if tool is None else tool
        unknown = changes.keys() - {field.name for field in fields(ToolSpec)}
        if unknown:
            raise RegistrationError(name, "field", f"a spec has no field {sorted(unknown)[0]}")
        changed = replace(base, spec=replace(base.spec, **changes)) if changes else base
        staged = {key: value for key, value in self._tools.items() if key != name}
        checked = _check(changed)
        _refuse_collision(checked.spec, staged)
        staged[checked.spec.name] = checked
        self._tools = staged
        return former

    def remove(self, name: str) -> Tool:
        """Remove a tool and return it, so that `register` can restore the identical spec."""
        former = self._require(name)
        self._tools = {key: value for key, value in self._tools.items() if key != name}
        return former

    def get(self, name: str) -> Tool | None:
        """Return a tool with fresh copies of its schemas, or None."""
        found = self._tools.get(name)
        return None if found is None else _copy(found.tool)

    def names(self) -> tuple[str, ...]:
        """Return the canonical names in order."""
        return tuple(sorted(self._tools))

    def snapshot(self, names: Iterable[str] | None = None) -> RegistrySnapshot:
        """Return a frozen catalogue of all tools, or of `names`. Later changes of the registry never reach it."""
        chosen = self._tools.keys() if names is None else set(names)
        tools = {name: self._tools[name] for name in sorted(self._tools) if name in chosen}
        return RegistrySnapshot(
            tools=MappingProxyType(tools), fingerprint=digest([item.contract() for item in tools.values()])
        )

    def _require(self, name: str) -> Tool:
        if name not in self._tools:
            raise RegistrationError(name, "unknown", "no such tool is registered")
        return self._tools[name].tool


def _copy(tool: Tool) -> Tool:
    spec = tool.spec
    inputs, outputs = snapshot(spec.input_schema), snapshot(spec.output_schema)
    assert isinstance(inputs, dict)
    assert isinstance(outputs, dict)
    aliases = None if spec.argument_aliases is None else dict(spec.argument_aliases)
    return replace(tool, spec=replace(spec, input_schema=inputs, output_schema=outputs, argument_aliases=aliases))


def _check(tool: Tool) -> RegisteredTool:
    spec = getattr(tool, "spec", None)
    if not isinstance(spec, ToolSpec):
        raise RegistrationError(str(getattr(tool, "name", tool))[:60], "spec", "a tool needs a ToolSpec")
    for check in (_check_name, _check_types, _check_words, _check_consistency):
        check(spec)
    if not callable(tool.execute):
        raise RegistrationError(spec.name, "execute", "a tool needs an async `execute(arguments, context)`")
    inputs = _compile(spec, "input_schema", closed=True)
    outputs = _compile(spec, "output_schema", closed=False)
    shown = advertised(inputs.document)
    _check_sizes(spec, shown)
    _check_references(spec, inputs)
    _check_output(spec, outputs)
    return RegisteredTool(tool=_copy(tool), input=inputs, output=outputs, advertised_input=shown)


def _check_name(spec: ToolSpec) -> None:
    if not isinstance(spec.name, str) or NAME.fullmatch(spec.name) is None:
        raise RegistrationError(
            str(spec.name)[:100], "name", "a name is [a-z][a-z0-9_]{0,47}; nothing is cut or renamed"
        )
    if spec.name in SHADOWED or spec.name.startswith("mcp__"):
        raise RegistrationError(spec.name, "name", "an agent has its own tool of this name and would call that")
    for alias in spec.aliases:
        if not isinstance(alias, str) or ALIAS.fullmatch(alias) is None:
            raise RegistrationError(spec.name, "alias", f"the alias {str(alias)[:60]!r} is not an identifier")


_ENUMS: tuple[tuple[str, type[StrEnum]], ...] = (
    ("capability", Capability),
    ("side_effect", SideEffect),
    ("risk", Risk),
    ("locality", Locality),
    ("visibility", Visibility),
)


def _check_types(spec: ToolSpec) -> None:
    for field, kind in _ENUMS:
        if not isinstance(getattr(spec, field), kind):
            raise RegistrationError(spec.name, field, f"`{field}` is one of {', '.join(kind)}; there is no default")
    for field in ("destructive", "idempotent", "open_world", "credentialed", "parallel_safe"):
        if not isinstance(getattr(spec, field), bool):
            raise RegistrationError(spec.name, field, f"`{field}` is true or false; there is no default")
    if not callable(spec.targets_of):
        raise RegistrationError(spec.name, "targets_of", "`targets_of` is required; `touches_nothing` says so in words")
    seconds = spec.timeout_seconds
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 3_600:
        raise RegistrationError(spec.name, "timeout_seconds", "`timeout_seconds` is above 0 and at most 3600")
    if not 0 < spec.result_bytes <= 200_000:
        raise RegistrationError(spec.name, "result_bytes", "`result_bytes` is above 0 and at most 200000")


def _check_words(spec: ToolSpec) -> None:
    for field in ("title", "description"):
        value = getattr(spec, field)
        if not isinstance(value, str) or not value.strip():
            raise RegistrationError(spec.name, field, f"a tool needs a {field}")
    if len(spec.description) > MAX_DESCRIPTION_CHARACTERS:
        raise RegistrationError(
            spec.name, "description", f"over {MAX_DESCRIPTION_CHARACTERS} characters: agents cut it"
        )


def _check_consistency(spec: ToolSpec) -> None:
    if spec.parallel_safe and not spec.read_only:
        raise RegistrationError(spec.name, "parallel_safe", "only a tool that changes nothing is parallel-safe")
    if spec.read_only and spec.destructive:
        raise RegistrationError(spec.name, "destructive", "a tool that changes nothing is not destructive")
    if spec.read_only and spec.changes_state is not None:
        raise RegistrationError(spec.name, "changes_state", "`changes_state` is for tools that may change something")


def _compile(spec: ToolSpec, field: str, *, closed: bool) -> CompiledSchema:
    document = getattr(spec, field)
    if not isinstance(document, Mapping):
        raise RegistrationError(spec.name, field, f"`{field}` is an object schema")
    try:
        return compile_schema(document, closed=closed)
    except SchemaRejected as exc:
        raise RegistrationError(spec.name, f"{field}:{exc.rule}", f"{field} {exc}") from None


def _check_sizes(spec: ToolSpec, shown: JsonObject) -> None:
    if len(compact(shown)) >= MAX_SCHEMA_CHARACTERS:
        raise RegistrationError(
            spec.name, "input_schema:size", f"{MAX_SCHEMA_CHARACTERS} characters or more: agents cut its descriptions"
        )
    if spec.source == "custom":
        return
    properties = shown["properties"]
    assert isinstance(properties, dict)
    for name, schema in properties.items():
        assert isinstance(schema, dict)
        if not isinstance(schema.get("type"), str) or not schema.get("description"):
            raise RegistrationError(spec.name, "input_schema:plain", f"/{name} needs one plain type and a description")


def _check_references(spec: ToolSpec, inputs: CompiledSchema) -> None:
    properties = inputs.document["properties"]
    assert isinstance(properties, dict)
    for alias, target in (spec.argument_aliases or {}).items():
        if target not in properties or alias in properties:
            raise RegistrationError(spec.name, "argument_alias", f"{alias} -> {target} does not name one property")
    for pointer in spec.free_text:
        if pointer.split("/")[1:2] == [] or pointer.split("/")[1] not in properties:
            raise RegistrationError(spec.name, "free_text", f"{pointer} does not name a property")


def _check_output(spec: ToolSpec, outputs: CompiledSchema) -> None:
    properties = outputs.document["properties"]
    assert isinstance(properties, dict)
    if "failure" in properties:
        raise RegistrationError(spec.name, "output_schema:failure", "a success never has a top-level `failure` (D22)")
    if spec.writes_once and properties.get("unchanged", {}) != {"type": "boolean"}:
        raise RegistrationError(
            spec.name,
            "output_schema:unchanged",
            'a write that is replayed declares `"unchanged": {"type": "boolean"}` (D23)',
        )


def _refuse_collision(spec: ToolSpec, others: Mapping[str, RegisteredTool]) -> None:
    own = [spec.name, *spec.aliases]
    if len({name.lower() for name in own}) != len(own):
        raise RegistrationError(spec.name, "alias", "an alias repeats the name or another alias")
    taken = {
        name.lower(): other.spec.name for other in others.values() for name in (other.spec.name, *other.spec.aliases)
    }
    for name in own:
        if name.lower() in taken:
            raise RegistrationError(spec.name, "collision", f"{name} is already used by {taken[name.lower()]}")
