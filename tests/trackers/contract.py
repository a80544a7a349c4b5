"""What every tracker adapter must do, whatever stands behind it (AX-37, AX-38).

An adapter's tests make a `World` around it and subclass `TrackerContract` here and `IssueToolContract` (contract_tools) with
a `world` fixture.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Protocol

import pytest

from hostside.core.call import ToolResult
from hostside.core.canonical import JsonValue, compact
from hostside.core.gateway import Gateway
from hostside.core.issue import Issue
from hostside.core.policy import Profile
from hostside.core.receipt import ReceiptLog
from hostside.core.registry import Registry
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.trackers.base import TrackerAdapter
from tests.support.gateways import call, make_gateway

TARGET_WORDS = ("issue", "project", "repository", "repo", "owner", "item", "team", "url", "path", "query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """An issue as people leave it in a tracker: raw, not normalized."""

    identifier: str
    title: str = "Greeting is misspelled"
    state: str = "Todo"
    description: str | None = None
    labels: tuple[str, ...] = ()
    created_at: str | None = None


class World(Protocol):
    """An adapter with what stands behind it. `states` are three states it has, `Todo` first. Methods do not await."""

    states: tuple[str, str, str]
    secrets: tuple[str, ...]

    @property
    def adapter(self) -> TrackerAdapter:
        """Return the adapter under test."""

    def tool(self, operation: str) -> str:
        """Return the tool's name for get, comments, comment_add, comment_update, states or move."""

    def seed(self, *seeds: Seed) -> None:
        """Put these issues into the tracker, in this order, instead of what was there."""

    def spoil(self, identifier: str) -> None:
        """Make the provider's record of an issue malformed, its id untouched."""

    def fail_requests(self) -> None:
        """Let every later request to the provider fail."""

    def comment_as_someone_else(self, identifier: str, body: str) -> str:
        """Add a comment that this host did not write, under the host's own author name if names can be chosen."""

    def bodies(self, identifier: str) -> list[str]:
        """Return the comments that the provider has, oldest first."""

    def state_of(self, identifier: str) -> str:
        """Return the state that the provider has."""


async def issue_named(world: World, identifier: str) -> Issue:
    """Return the normalized issue, which must be there."""
    issue = await world.adapter.fetch_by_identifier(identifier)
    assert issue is not None
    return issue


async def gateway_for(
    world: World,
    identifier: str,
    *,
    session_id: str = "s-1",
    run_id: str = "r-1",
    receipts: ReceiptLog | None = None,
) -> Gateway:
    """Return a gateway whose session is bound to this issue."""
    issue = await issue_named(world, identifier)
    return make_gateway(world.adapter.tools(), issue=issue, session_id=session_id, run_id=run_id, receipts=receipts)


def comment_in(structured: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the comment of a result."""
    comment = structured["comment"]
    assert isinstance(comment, dict)
    return comment


def code_of(result: ToolResult) -> FailureCode | None:
    """Return why a call did not succeed, or None."""
    return None if result.failure is None else result.failure.code


@pytest.mark.anyio
class TrackerContract:
    """Subclass with a `world` fixture."""

    async def test_empty_inputs_return_empty_without_asking_the_provider(self, world: World) -> None:
        world.fail_requests()
        assert (await world.adapter.fetch_by_states(()), await world.adapter.fetch_by_ids(())) == ((), ())

    async def test_a_failed_request_fails_the_whole_read(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        issue = await issue_named(world, "DEMO-1")
        world.fail_requests()
        for read in (
            world.adapter.fetch_by_states((issue.state,)),
            world.adapter.fetch_by_ids((issue.id,)),
            world.adapter.fetch_by_identifier("DEMO-1"),
        ):
            with pytest.raises(ToolFailed) as failed:
                await read
            assert (failed.value.code.value.startswith("tracker_"), failed.value.effect) == (True, Effect.NONE)

    async def test_states_are_compared_trimmed_and_without_case(self, world: World) -> None:
        todo, doing, _ = world.states
        world.seed(Seed(identifier="DEMO-1", state=todo), Seed(identifier="DEMO-2", state=doing))
        found = await world.adapter.fetch_by_states((f" {todo.upper()} ",))
        assert [issue.identifier for issue in found] == ["DEMO-1"]

    async def test_every_normalized_field_is_present(self, world: World) -> None:
        world.seed(
            Seed(identifier="DEMO-1", labels=(" Bug ", "bug", "UI"), description="x", created_at="2026-01-31T12:00:00Z")
        )
        (issue,) = await world.adapter.fetch_by_states((world.states[0],))
        assert (
            issue.identifier,
            issue.title,
            issue.state,
            issue.description,
            issue.labels,
            issue.created_at,
            issue.dispatchable,
            bool(issue.id),
        ) == (
            "DEMO-1",
            "Greeting is misspelled",
            world.states[0],
            "x",
            ("bug", "ui"),
            datetime(2026, 1, 31, 12, tzinfo=UTC),
            True,
            True,
        )
        assert issue.native_ref is not None
        assert not any(secret in compact(issue.native_ref.open()) for secret in world.secrets)

    async def test_a_malformed_record_is_dropped_from_a_listing_and_fails_a_read_by_id(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"), Seed(identifier="DEMO-2"))
        spoiled = await issue_named(world, "DEMO-1")
        world.spoil("DEMO-1")
        found = await world.adapter.fetch_by_states((world.states[0],))
        assert [issue.identifier for issue in found] == ["DEMO-2"]
        with pytest.raises(ToolFailed) as failed:
            await world.adapter.fetch_by_ids((spoiled.id, found[0].id))
        assert failed.value.code is FailureCode.TRACKER_RESPONSE

    async def test_ids_come_back_in_the_order_asked_and_unseen_ones_are_left_out(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"), Seed(identifier="DEMO-2"), Seed(identifier="DEMO-3"))
        one, two = (await issue_named(world, "DEMO-1")).id, (await issue_named(world, "DEMO-2")).id
        gone = (await issue_named(world, "DEMO-3")).id
        world.seed(Seed(identifier="DEMO-1"), Seed(identifier="DEMO-2"))
        found = await world.adapter.fetch_by_ids((two, gone, one, two))
        assert [issue.identifier for issue in found] == ["DEMO-2", "DEMO-1"]

    async def test_an_unknown_identifier_is_nothing(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        assert await world.adapter.fetch_by_identifier("DEMO-9") is None

    async def test_the_profile_is_complete_and_describes_exactly_the_tools(self, world: World) -> None:
        profile = world.adapter.profile()
        tools = {tool.spec.name: tool.spec for tool in world.adapter.tools()}
        assert profile.kind == world.adapter.kind
        assert [item.name for item in profile.tools] == list(tools)
        assert set(profile.secrets) == set(world.adapter.secret_environment_names())
        assert set(profile.normalization) == {field.name for field in fields(Issue)}
        assert {
            "tracker_request",
            "tracker_status",
            "tracker_response",
            "tracker_pagination",
            "tracker_rate_limited",
            "missing_tracker_secret",
        } <= {error.code for error in profile.errors}
        for item in profile.tools:
            said = (item.scope, item.results, item.errors, item.idempotency, item.rate_limits, item.permission)
            assert all(said), item.name
            assert item.mutates is not tools[item.name].read_only
        text = compact(profile.as_object())
        assert not any(secret in text for secret in world.secrets)

    async def test_a_configured_credential_passes_its_check(self, world: World) -> None:
        world.adapter.check_credential()

    async def test_no_tool_takes_a_target(self, world: World) -> None:
        for tool in Registry(world.adapter.tools()).snapshot().tools.values():
            properties = tool.input.document["properties"]
            assert isinstance(properties, dict)
            for name in properties:
                assert not any(word in name.split("_") for word in TARGET_WORDS), (tool.spec.name, name)

    async def test_a_session_without_an_issue_is_refused_by_every_tool(self, world: World) -> None:
        gateway = make_gateway(world.adapter.tools())
        arguments: Mapping[str, Mapping[str, JsonValue]] = {
            "comment_add": {"body": "x"},
            "comment_update": {"comment_id": "1", "body": "x"},
            "move": {"target_state": world.states[1]},
        }
        for operation in ("get", "comments", "comment_add", "comment_update", "states", "move"):
            result = await call(gateway, world.tool(operation), arguments.get(operation, {}))
            assert code_of(result) is FailureCode.OUTSIDE_ISSUE, operation

    async def test_a_readonly_session_lists_the_reads_alone(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        issue = await issue_named(world, "DEMO-1")
        gateway = make_gateway(world.adapter.tools(), issue=issue, profile=Profile.READONLY)
        reads = {world.tool(operation) for operation in ("get", "comments", "states")}
        assert reads <= set(gateway.session.listed)
        assert all(gateway.session.registry.tools[name].spec.read_only for name in gateway.session.listed)
