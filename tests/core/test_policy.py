"""No layer widens another; reach comes from the host alone (R-056..R-061, D5, D6)."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.core.locality import NO_REACH, CallerDisk, Locality, Reach, refusal
from hostside.core.policy import MODES, PROFILES, Mode, Policy, Profile, effective
from hostside.core.registry import Registry
from hostside.core.session import Session, open_session
from hostside.core.spec import Capability, Visibility
from hostside.errors import FailureCode
from tests.support.tools import a_tool, a_write_spec

sets = st.frozensets(st.sampled_from(list(Capability)))


@given(sets, st.sampled_from(Profile), st.sampled_from(Mode), st.none() | sets, st.none() | sets)
def test_what_is_granted_lies_inside_every_layer(
    configuration: frozenset[Capability],
    profile: Profile,
    mode: Mode,
    token: frozenset[Capability] | None,
    child: frozenset[Capability] | None,
) -> None:
    granted = effective(configuration=configuration, profile=profile, mode=mode, token=token, child=child)
    for layer in (configuration, PROFILES[profile], MODES[mode], token, child):
        assert layer is None or granted <= layer


def test_the_named_profiles_are_these() -> None:
    assert {profile.value: sorted(capabilities) for profile, capabilities in PROFILES.items()} == {
        "readonly": ["network", "read"],
        "workspace": ["browser", "git", "network", "read", "shell", "write"],
        "full": ["browser", "destructive", "dynamic", "git", "network", "read", "shell", "write"],
    }


@pytest.mark.parametrize(("locality", "disk", "checkout"), list(itertools.product(Locality, CallerDisk, [False, True])))
def test_each_class_is_refused_by_name_where_its_disk_is_not_reached(
    locality: Locality, disk: CallerDisk, checkout: bool
) -> None:
    blockers = {CallerDisk.NONE: "no_caller_disk", CallerDisk.UNPROVEN: "disk_unproven", CallerDisk.SHARED: None}
    expected = {
        Locality.REMOTABLE: None,
        Locality.CALLER_FILESYSTEM: blockers[disk],
        Locality.SERVER_CHECKOUT: None if checkout else "no_checkout",
    }[locality]
    found = refusal(locality, Reach(caller_disk=disk, server_checkout=checkout))
    assert (found.blocker if found else None) == expected
    assert found is None or found.alternative


def session(reach: Reach = NO_REACH, *, profile: Profile = Profile.READONLY, list_unreachable: bool = False) -> Session:
    registry = Registry(
        [
            a_tool(name="remote"),
            a_tool(name="local", locality=Locality.CALLER_FILESYSTEM),
            a_tool(name="checkout", locality=Locality.SERVER_CHECKOUT),
            a_tool(name="hidden", visibility=Visibility.HIDDEN),
            a_tool(spec=a_write_spec("write")),
        ]
    )
    now = datetime.now(UTC)
    return open_session(
        session_id="s", registry=registry.snapshot(), edge="http", server_id="x", principal="p", profile=profile, reach=reach,
        opened_at=now, expires_at=now + timedelta(hours=1), policy=Policy(list_unreachable=list_unreachable),
    )  # fmt: skip


def test_a_tool_that_cannot_be_used_is_withheld_with_its_blocker_and_not_listed() -> None:
    opened = session()
    assert opened.listed == ("remote",)
    assert [(item.name, item.code, item.blocker) for item in opened.withheld] == [
        ("checkout", FailureCode.LOCALITY_REFUSED, "no_checkout"),
        ("local", FailureCode.LOCALITY_REFUSED, "no_caller_disk"),
        ("write", FailureCode.CAPABILITY_DENIED, "profile_readonly"),
    ]
    assert all(
        item.name in opened.instructions() and item.alternative in opened.instructions() for item in opened.withheld
    )


def test_an_operator_can_have_unreachable_tools_listed() -> None:
    assert session(list_unreachable=True).listed == ("checkout", "local", "remote", "write")
