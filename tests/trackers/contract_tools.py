"""What the issue tools of every tracker must do, called through a real Gateway (AX-40, AX-41, C-06, C-11, C-28)."""

import anyio
import pytest

from hostside.core.call import ToolResult
from hostside.core.canonical import JsonValue
from hostside.errors import Effect, FailureCode
from tests.support.gateways import call, make_gateway, make_host, ok
from tests.trackers.contract import Seed, World, code_of, comment_in, gateway_for, issue_named


@pytest.mark.anyio
class IssueToolContract:
    """Subclass with a `world` fixture."""

    async def test_the_issue_is_read_as_it_is_now(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1", description="The greeting says helo."))
        gateway = await gateway_for(world, "DEMO-1")
        answer = await ok(gateway, world.tool("get"))
        issue = answer["issue"]
        assert isinstance(issue, dict)
        assert (issue["identifier"], issue["state"], issue["description"]) == (
            "DEMO-1",
            world.states[0],
            "The greeting says helo.",
        )
        assert "native_ref" not in issue

    async def test_the_states_are_listed_with_the_current_one(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        answer = await ok(await gateway_for(world, "DEMO-1"), world.tool("states"))
        listed = answer["states"]
        assert isinstance(listed, list)
        assert (answer["current"], set(world.states) <= set(listed)) == (world.states[0], True)

    async def test_a_comment_is_stored_exactly_and_listed_on_its_issue_alone(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"), Seed(identifier="DEMO-2"))
        body = "Fixed — see `git log` | $HOME &amp; \\n\r\ncafe\u0301 \u202eabc\n"
        gateway = await gateway_for(world, "DEMO-1")
        answer = await ok(gateway, world.tool("comment_add"), {"body": body})
        assert (world.bodies("DEMO-1"), world.bodies("DEMO-2"), answer["unchanged"]) == ([body], [], False)
        listed = await ok(gateway, world.tool("comments"))
        assert listed == {"comments": [comment_in(answer)], "next_cursor": None, "truncated": False}

    async def test_comments_come_in_pages(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        gateway = await gateway_for(world, "DEMO-1")
        for number in range(5):
            await ok(gateway, world.tool("comment_add"), {"body": f"comment {number}"})
        seen: list[str] = []
        cursor: JsonValue = None
        for _ in range(3):
            arguments: dict[str, JsonValue] = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
            page = await ok(gateway, world.tool("comments"), arguments)
            comments, cursor = page["comments"], page["next_cursor"]
            assert isinstance(comments, list)
            seen += [str(comment["body"]) for comment in comments if isinstance(comment, dict)]
        assert (seen, cursor) == ([f"comment {number}" for number in range(5)], None)

    async def test_a_made_up_cursor_is_a_pagination_failure(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        result = await call(await gateway_for(world, "DEMO-1"), world.tool("comments"), {"cursor": "no such cursor"})
        assert code_of(result) is FailureCode.TRACKER_PAGINATION

    async def test_the_same_comment_twice_in_a_session_is_there_once(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        gateway = await gateway_for(world, "DEMO-1")
        first = await ok(gateway, world.tool("comment_add"), {"body": "ping"})
        second = await ok(gateway, world.tool("comment_add"), {"body": "ping"})
        assert (world.bodies("DEMO-1"), second) == (["ping"], {**first, "unchanged": True})

    async def test_a_comment_whose_receipt_was_lost_is_found_by_the_next_session_of_the_run(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        first = await ok(await gateway_for(world, "DEMO-1"), world.tool("comment_add"), {"body": "ping"})
        again = await gateway_for(world, "DEMO-1", session_id="s-2")
        second = await ok(again, world.tool("comment_add"), {"body": "ping"})
        assert (world.bodies("DEMO-1"), second) == (["ping"], {**first, "unchanged": True})

    async def test_another_run_may_say_the_same(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        for run in ("r-1", "r-2"):
            gateway = await gateway_for(world, "DEMO-1", session_id=f"s-of-{run}", run_id=run)
            await ok(gateway, world.tool("comment_add"), {"body": "ping"})
        assert world.bodies("DEMO-1") == ["ping", "ping"]

    async def test_an_update_is_verified_and_a_repeat_changes_nothing(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        gateway = await gateway_for(world, "DEMO-1")
        added = comment_in(await ok(gateway, world.tool("comment_add"), {"body": "helo"}))
        arguments = {"comment_id": added["id"], "body": "hello"}
        first = await call(gateway, world.tool("comment_update"), arguments)
        second = await call(gateway, world.tool("comment_update"), arguments)
        assert (first.effect, first.structured["unchanged"], second.structured["unchanged"]) == (
            Effect.VERIFIED,
            False,
            True,
        )
        assert world.bodies("DEMO-1") == ["hello"]

    async def test_a_comment_elsewhere_is_refused_like_one_that_does_not_exist(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"), Seed(identifier="DEMO-2"))
        other = await gateway_for(world, "DEMO-2", session_id="s-2")
        elsewhere = str(comment_in(await ok(other, world.tool("comment_add"), {"body": "theirs"}))["id"])
        gateway = await gateway_for(world, "DEMO-1")
        texts = set()
        for comment_id in (elsewhere, "".join(reversed(elsewhere)) + "7"):
            result = await call(gateway, world.tool("comment_update"), {"comment_id": comment_id, "body": "x"})
            assert code_of(result) is FailureCode.OUTSIDE_ISSUE
            texts.add(result.text().replace(str(result.receipt_id), "RECEIPT").replace(comment_id, "ID"))
        assert (len(texts), world.bodies("DEMO-2")) == (1, ["theirs"])

    async def test_a_comment_of_someone_else_on_this_issue_is_refused(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        comment_id = world.comment_as_someone_else("DEMO-1", "not yours")
        gateway = await gateway_for(world, "DEMO-1")
        result = await call(gateway, world.tool("comment_update"), {"comment_id": comment_id, "body": "x"})
        assert (code_of(result), world.bodies("DEMO-1")) == (FailureCode.OUTSIDE_ISSUE, ["not yours"])

    async def test_a_move_is_confirmed_and_a_repeat_changes_nothing(self, world: World) -> None:
        todo, doing, _ = world.states
        world.seed(Seed(identifier="DEMO-1"), Seed(identifier="DEMO-2"))
        gateway = await gateway_for(world, "DEMO-1")
        first = await call(gateway, world.tool("move"), {"target_state": doing.lower()})
        second = await call(gateway, world.tool("move"), {"target_state": doing})
        assert (first.structured, first.effect) == (
            {"state": doing, "previous_state": todo, "comment": None, "unchanged": False},
            Effect.VERIFIED,
        )
        assert second.structured == {"state": doing, "previous_state": doing, "comment": None, "unchanged": True}
        assert (world.state_of("DEMO-1"), world.state_of("DEMO-2")) == (doing, todo)

    async def test_a_move_leaves_its_comment_once(self, world: World) -> None:
        _, doing, _ = world.states
        world.seed(Seed(identifier="DEMO-1"))
        arguments: dict[str, JsonValue] = {"target_state": doing, "comment": "Starting."}
        first = await ok(await gateway_for(world, "DEMO-1"), world.tool("move"), arguments)
        again = await ok(await gateway_for(world, "DEMO-1", session_id="s-2"), world.tool("move"), arguments)
        assert (world.bodies("DEMO-1"), again["comment"], again["unchanged"]) == (["Starting."], first["comment"], True)

    async def test_a_move_from_another_state_than_expected_changes_nothing_and_says_what_was_seen(
        self, world: World
    ) -> None:
        todo, doing, done = world.states
        world.seed(Seed(identifier="DEMO-1"))
        gateway = await gateway_for(world, "DEMO-1")
        arguments = {"target_state": done, "expected_state": doing, "comment": "Done."}
        result = await call(gateway, world.tool("move"), arguments)
        failure = result.failure
        assert failure is not None
        assert (failure.code, failure.effect, failure.details[0]["state"]) == (
            FailureCode.PRECONDITION_FAILED,
            Effect.NONE,
            todo,
        )
        assert (world.state_of("DEMO-1"), world.bodies("DEMO-1")) == (todo, [])

    async def test_a_move_to_an_unknown_state_lists_the_valid_ones(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        result = await call(await gateway_for(world, "DEMO-1"), world.tool("move"), {"target_state": "Nirvana"})
        failure = result.failure
        assert failure is not None
        assert (failure.code, failure.effect) == (FailureCode.PRECONDITION_FAILED, Effect.NONE)
        assert all(state in failure.remedy for state in world.states)
        assert world.state_of("DEMO-1") == world.states[0]

    async def test_of_two_parallel_moves_from_one_state_one_wins(self, world: World) -> None:
        todo, doing, done = world.states
        world.seed(Seed(identifier="DEMO-1"))
        issue = await issue_named(world, "DEMO-1")
        host = make_host()
        results: list[ToolResult] = []

        async def move(session: str, target: str) -> None:
            gateway = make_gateway(world.adapter.tools(), issue=issue, session_id=session, run_id=session, host=host)
            arguments = {"target_state": target, "expected_state": todo}
            results.append(await call(gateway, world.tool("move"), arguments))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(move, "s-1", doing)
                group.start_soon(move, "s-2", done)
        codes = sorted("ok" if result.failure is None else result.failure.code for result in results)
        (winner,) = [result.structured["state"] for result in results if result.ok]
        assert (codes, world.state_of("DEMO-1")) == (["ok", "precondition_failed"], winner)

    async def test_a_failed_request_is_a_typed_failure_of_a_tool(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        gateway = await gateway_for(world, "DEMO-1")
        world.fail_requests()
        result = await call(gateway, world.tool("get"), {})
        failure = result.failure
        assert failure is not None
        assert (failure.code.value.startswith("tracker_"), bool(failure.remedy), failure.effect) == (
            True,
            True,
            Effect.NONE,
        )
        assert not any(secret in result.text() for secret in world.secrets)

    async def test_a_wanted_second_post_has_its_own_key(self, world: World) -> None:
        world.seed(Seed(identifier="DEMO-1"))
        gateway = await gateway_for(world, "DEMO-1")
        for key in ("k1", "k2"):
            await ok(gateway, world.tool("comment_add"), {"body": "ping"}, key=key)
        assert world.bodies("DEMO-1") == ["ping", "ping"]
