"""Registration is atomic and strict; snapshots are frozen (AX-01..AX-04, C-07, C-08, R-001..R-023)."""

from dataclasses import fields, replace
from typing import Any

import pytest

from hostside.core.registry import SHADOWED, Registry
from hostside.core.spec import Capability, SideEffect, Tool, ToolSpec
from hostside.errors import RegistrationError
from tests.support.tools import a_post_spec, a_spec, a_tool, a_write_spec, never, schema


def contracts(registry: Registry) -> list[Any]:
    return [item.contract() for item in registry.snapshot().tools.values()]


BAD: dict[str, Any] = {
    "capability": "read",
    "side_effect": "harmless",
    "risk": None,
    "locality": None,
    "visibility": "secret",
    "destructive": None,
    "idempotent": "no",
    "open_world": None,
    "credentialed": 1,
    "timeout_seconds": 0,
    "targets_of": None,
    "input_schema": {"type": "object"},
    "output_schema": {"description": "no type"},
    "title": " ",
    "description": "",
    "result_bytes": 0,
    "aliases": ("not an identifier",),
    "argument_aliases": {"x": "missing"},
    "free_text": ("/missing",),
}


@pytest.mark.parametrize("field", BAD)
def test_a_spec_with_a_bad_fact_is_refused_and_changes_nothing(field: str) -> None:
    registry = Registry([a_tool(name="good")])
    before = contracts(registry)
    with pytest.raises(RegistrationError) as caught:
        registry.register(a_tool(name="fine"), a_tool(name="demo_bad", **{field: BAD[field]}))
    assert caught.value.tool == "demo_bad"
    assert contracts(registry) == before


def test_a_safety_fact_has_no_default() -> None:
    required = {
        "name title description input_schema output_schema capability side_effect risk locality destructive idempotent "
        "open_world timeout_seconds credentialed targets_of"
    }
    without = {field.name for field in fields(ToolSpec) if field.default is field.default_factory}
    assert {" ".join(field.name for field in fields(ToolSpec) if field.name in without)} == required
    with pytest.raises(TypeError):
        ToolSpec(name="x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name",
    [
        "t" * 65,
        "t" * 49,
        "tracker.comment",
        "tracker/comment",
        "comment add",
        "kommentär",
        "",
        " x",
        "Issue_get",
        "a-b",
        "_a",
        "1a",
        "mcp__x",
        "project_issue_comment_create_with_idempotency_key_x",
        *sorted(SHADOWED),
    ],
)
def test_a_name_that_an_agent_would_change_or_shadow_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        Registry([a_tool(name=name)])
    assert caught.value.tool == name[:100]


def test_the_longest_name_still_fits_with_the_longest_prefix() -> None:
    (name,) = Registry([a_tool(name="t" * 48)]).names()
    assert len(f"mcp__hostside__{name}") < 64


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "a"}, {"name": "a"}),
        ({"name": "a", "aliases": ("Run",)}, {"name": "b", "aliases": ("run",)}),
        ({"name": "run_it"}, {"name": "b", "aliases": ("RUN_IT",)}),
        ({"name": "a", "aliases": ("b",)}, {"name": "b"}),
    ],
)
def test_names_and_aliases_collide_whatever_their_case(first: dict[str, Any], second: dict[str, Any]) -> None:
    registry = Registry([a_tool(**first)])
    before = contracts(registry)
    with pytest.raises(RegistrationError, match="already used"):
        registry.register(a_tool(**second))
    assert contracts(registry) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": a_write_spec(parallel_safe=True)},
        {"spec": a_spec(destructive=True)},
        {"spec": a_spec(changes_state=lambda _: True)},
        {"spec": a_post_spec(output_schema=schema({"id": {"type": "string"}}))},
        {"spec": a_spec(output_schema=schema({"failure": {"type": "string"}}))},
        {"spec": a_spec(input_schema=schema({"a": {"type": "string", "description": "x" * 5_000}}))},
        {
            "spec": a_spec(
                source="builtin", input_schema=schema({"a": {"type": ["string", "null"], "description": "d"}})
            )
        },
        {"spec": a_spec(source="builtin", input_schema=schema({"a": {"type": "string"}}))},
        {"execute": "not callable"},
    ],
)
def test_facts_that_contradict_each_other_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError):
        Registry([a_tool(**changes)])


@pytest.mark.parametrize("thing", ["a string", None, lambda text: text, {"name": "x"}])
def test_what_is_no_tool_is_refused(thing: Any) -> None:
    with pytest.raises(RegistrationError):
        Registry([thing])


def test_what_the_registry_hands_out_cannot_change_it() -> None:
    registry = Registry([a_tool(name="a", input_schema=schema({"p": {"type": "string"}}), argument_aliases={"q": "p"})])
    before = contracts(registry)
    handed = registry.get("a")
    assert handed is not None
    handed.spec.input_schema["properties"]["p"]["type"] = "integer"  # type: ignore[index]
    assert isinstance(handed.spec.argument_aliases, dict)
    handed.spec.argument_aliases.clear()
    contract = registry.snapshot().tools["a"].contract()
    contract["input_schema"]["properties"].clear()  # type: ignore[index, call-overload, union-attr]
    contract["aliases"].append("x")  # type: ignore[union-attr]
    assert contracts(registry) == before


def test_a_schema_that_its_author_edits_later_stays_as_it_was_registered() -> None:
    document = schema({"p": {"type": "string"}})
    registry = Registry([a_tool(name="a", input_schema=document)])
    before = contracts(registry)
    document["properties"] = {}
    assert contracts(registry) == before


def test_a_removed_tool_is_restored_identically() -> None:
    registry = Registry([a_tool(name="a", aliases=("b",), confirm_on=frozenset({"tui"})), a_tool(name="c")])
    before, fingerprint = contracts(registry), registry.snapshot().fingerprint
    removed = registry.remove("a")
    assert registry.names() == ("c",)
    registry.register(removed)
    assert (contracts(registry), registry.snapshot().fingerprint) == (before, fingerprint)


def test_a_replacement_keeps_every_field_that_is_not_named() -> None:
    registry = Registry([a_tool(name="a", aliases=("b",), version="3", confirm_on=frozenset({"tui"}))])
    former = registry.replace("a", description="Other words.")
    now = registry.get("a")
    assert now is not None
    assert now.spec == replace(former.spec, description="Other words.")
    with pytest.raises(RegistrationError):
        registry.replace("a", description="")
    with pytest.raises(RegistrationError):
        registry.replace("a", colour="red")
    with pytest.raises(RegistrationError):
        registry.replace("zz", description="x")
    assert registry.get("a") == now


def test_a_snapshot_sees_nothing_of_later_changes() -> None:
    registry = Registry([a_tool(name="a"), a_tool(name="b")])
    frozen = registry.snapshot()
    registry.remove("a")
    registry.replace("b", description="New.")
    registry.register(a_tool(name="c"))
    assert list(frozen.tools) == ["a", "b"]
    assert frozen.tools["b"].spec.description == "A tool for tests."
    with pytest.raises(TypeError):
        frozen.tools["x"] = frozen.tools["a"]  # type: ignore[index]


def test_the_fingerprint_follows_the_contract_and_nothing_else() -> None:
    one = Registry([a_tool(name="a"), a_tool(name="b")]).snapshot().fingerprint
    assert Registry([a_tool(name="b"), a_tool(never, name="a")]).snapshot().fingerprint == one
    assert Registry([a_tool(name="a"), a_tool(name="b", description="Other.")]).snapshot().fingerprint != one
    assert Registry([a_tool(name="a"), a_tool(name="b", capability=Capability.NETWORK)]).snapshot().fingerprint != one


def test_a_snapshot_of_some_names_holds_only_those() -> None:
    registry = Registry([a_tool(name=name) for name in ("b", "a", "c")])
    assert list(registry.snapshot(["c", "a", "nope"]).tools) == ["a", "c"]


def test_derived_facts_follow_from_the_spec() -> None:
    spec = a_write_spec(
        side_effect=SideEffect.MUTATION, changes_state=lambda arguments: arguments.get("action") != "list"
    )
    assert (spec.read_only, spec.is_state_changing({"action": "list"}), spec.is_state_changing({})) == (
        False,
        False,
        True,
    )
    assert (a_spec().read_only, a_spec().is_state_changing({})) == (True, False)
    assert (a_post_spec().writes_once, a_post_spec(idempotent=True).writes_once) == (True, False)
    assert isinstance(a_tool(), Tool)
