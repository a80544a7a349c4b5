"""A spec has exactly one known value of each closed fact, or no tool at all (AX-02, R-003..R-005, R-108)."""

from enum import StrEnum
from typing import Any

import pytest

from hostside.core.locality import Locality
from hostside.core.registry import Registry
from hostside.core.spec import Capability, Risk, SideEffect, Visibility
from hostside.errors import RegistrationError
from tests.support.tools import a_tool

CLOSED: dict[str, tuple[type[StrEnum], str]] = {
    "capability": (Capability, "read write shell network git browser destructive dynamic"),
    "side_effect": (SideEffect, "none read mutation external stateful internal_write orchestration unknown"),
    "risk": (Risk, "normal high"),
    "visibility": (Visibility, "public hidden"),
    "locality": (Locality, "remotable caller_filesystem server_checkout"),
}


@pytest.mark.parametrize("fact", CLOSED)
def test_each_fact_knows_these_values_and_no_other(fact: str) -> None:
    kind, words = CLOSED[fact]
    assert [member.value for member in kind] == words.split()


@pytest.mark.parametrize("fact", CLOSED)
@pytest.mark.parametrize("form", ["none", "unknown word", "its word as text", "two of them", "a set of one"])
def test_anything_but_one_of_them_is_refused_and_changes_nothing(fact: str, form: str) -> None:
    kind, _ = CLOSED[fact]
    members = list(kind)
    first, second = members[:2]
    wrong: dict[str, Any] = {
        "none": None,
        "unknown word": "somewhere",
        "its word as text": str(first.value),
        "two of them": (first, second),
        "a set of one": frozenset({first}),
    }
    registry = Registry([a_tool(name="good")])
    before = registry.snapshot().fingerprint
    with pytest.raises(RegistrationError) as refused:
        registry.register(a_tool(name="demo_bad", **{fact: wrong[form]}))
    assert (refused.value.tool, registry.names(), registry.snapshot().fingerprint) == ("demo_bad", ("good",), before)
