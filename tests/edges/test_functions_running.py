"""How an edge runs the calls of one response: reads at once, changes in turn, answers in order, each call a new one."""

import itertools
from typing import Any

import anyio
import pytest

from hostside import FunctionEdge
from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.core.spec import Tool
from hostside.edges import functions
from hostside.edges.function_shapes import Dialect
from hostside.errors import Effect, FailureCode
from tests.support.function_wire import DIALECTS, ask, call_item
from tests.support.gateways import an_issue, make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import a_post_spec, a_spec, a_tool, a_write_spec, schema

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("dialect", DIALECTS)]
LABEL = schema({"label": {"type": "string"}}, ("label",))


class Meeting:
    """Tools that note when they begin and end. `read` waits until `size` of them run at once; a write lets others run."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.seen: list[str] = []
        self.running = self.most = 0
        self.receipts = MemoryReceipts()
        self._met = anyio.Event()

    def gateway(self) -> Gateway:
        tools = [
            self._tool(a_spec("read", input_schema=LABEL)),
            self._tool(
                a_write_spec("write", input_schema=LABEL, changes_state=lambda given: "look" not in str(given["label"]))
            ),
        ]
        return make_gateway(tools, edge="functions", receipts=self.receipts)

    def _tool(self, spec: Any) -> Tool:
        async def execute(arguments: JsonObject, _context: CallContext) -> ToolResult:
            label = str(arguments["label"])
            self.seen.append(f"{label}+")
            self.running += 1
            self.most = max(self.most, self.running)
            await (self._meet() if spec.name == "read" else anyio.lowlevel.checkpoint())
            self.running -= 1
            self.seen.append(f"{label}-")
            return ToolResult(structured={"label": label})

        return Tool(spec=spec, execute=execute)

    async def _meet(self) -> None:
        if self.running >= self.size:
            self._met.set()
        await self._met.wait()


def labelled(dialect: Dialect, *labels: str) -> list[dict[str, Any]]:
    """Return calls `r…` of the read tool and `w…` of the write tool, each with its label as id."""
    return [call_item(dialect, "read" if label[0] == "r" else "write", {"label": label}, id=label) for label in labels]


async def test_reads_run_at_once_and_a_change_waits_for_those_before_it_and_runs_alone(dialect: Dialect) -> None:
    meeting = Meeting(size=3)
    # A tool that may change something waits its turn also for the calls that turn out to look only.
    labels = ["r1", "r2", "r3", "w1", "w2", "w_look", "w_look", "r4", "r5"]
    with anyio.fail_after(5):
        answers = await ask(meeting.gateway(), dialect, *labelled(dialect, *labels))
    assert [(answer.id, answer.json["label"]) for answer in answers] == [(label, label) for label in labels]
    assert sorted(meeting.seen[:3]) == ["r1+", "r2+", "r3+"]
    assert meeting.seen[6:14] == ["w1+", "w1-", "w2+", "w2-", *["w_look+", "w_look-"] * 2]
    assert sorted(meeting.seen[14:]) == ["r4+", "r4-", "r5+", "r5-"]
    assert meeting.most == 3


async def test_no_more_calls_run_at_once_than_the_bound(dialect: Dialect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MAX_PARALLEL", 2)
    meeting = Meeting(size=2)
    with anyio.fail_after(5):
        answers = await ask(meeting.gateway(), dialect, *labelled(dialect, *(f"r{n}" for n in range(9))))
    assert (meeting.most, [answer.id for answer in answers]) == (2, [f"r{n}" for n in range(9)])


async def test_answers_are_in_the_order_of_the_calls_also_when_the_first_ends_last(dialect: Dialect) -> None:
    second_done = anyio.Event()

    async def first(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        await second_done.wait()
        return ToolResult(structured={"is": "first"})

    async def second(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        second_done.set()
        return ToolResult(structured={"is": "second"})

    gateway = make_gateway([a_tool(first, name="first"), a_tool(second, name="second")], edge="functions")
    calls = [call_item(dialect, "first", {}, id="a"), call_item(dialect, "second", {}, id="b")]
    with anyio.fail_after(5):
        answers = await ask(gateway, dialect, *calls)
    assert [(answer.id, answer.json["is"]) for answer in answers] == [("a", "first"), ("b", "second")]


async def test_a_failure_stops_nothing_and_every_failure_is_an_answer(dialect: Dialect) -> None:
    meeting = Meeting()

    async def broken(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        raise RuntimeError("CANARY")

    registry = [a_tool(broken, spec=a_write_spec("broken")), *_tools_of(meeting)]
    gateway = make_gateway(registry, edge="functions", receipts=meeting.receipts)
    calls = [call_item(dialect, "broken", {}), call_item(dialect, "nothing", {}), *labelled(dialect, "w1")]
    answers = await ask(gateway, dialect, *calls)
    meeting.receipts.broken = True
    answers += await ask(gateway, dialect, *labelled(dialect, "w2"))
    gateway.close("its run ended")
    answers += await ask(gateway, dialect, *labelled(dialect, "r1"))
    codes = [answer.json.get("failure", {}).get("code") for answer in answers]
    assert codes[:4] == ["tool_crashed", "unknown_tool", None, "receipt_unavailable"]
    assert codes[4] in {"session_closed", "receipt_unavailable"}
    assert meeting.seen == ["w1+", "w1-"]
    assert "CANARY" not in str(answers)


def _tools_of(meeting: Meeting) -> list[Tool]:
    return [item.tool for item in meeting.gateway().session.registry.tools.values()]


class Posts:
    """A post that counts itself: external and not idempotent. And a local write that does the same."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.receipts = MemoryReceipts()
        fields: dict[str, object] = {"n": {"type": "integer"}, "unchanged": {"type": "boolean"}}
        post = a_post_spec("post", output_schema=schema(fields))
        add = a_write_spec("add", input_schema=post.input_schema, output_schema=schema(fields))
        self.gateway = make_gateway(
            [Tool(spec=post, execute=self._execute), Tool(spec=add, execute=self._execute)],
            edge="functions",
            issue=an_issue(),
            receipts=self.receipts,
        )

    async def _execute(self, _arguments: JsonObject, _context: CallContext) -> ToolResult:
        return ToolResult(structured={"n": next(self.numbers)}, effect=Effect.REPORTED)

    async def told(self, dialect: Dialect, *calls: dict[str, Any], delivery: str | None = None) -> list[Any]:
        return [answer.json for answer in await ask(self.gateway, dialect, *calls, delivery=delivery)]


async def test_an_id_that_comes_again_is_another_call(dialect: Dialect) -> None:
    posts = Posts()
    add = [call_item(dialect, "add", {"body": text}, id="call_0") for text in ("a", "b")]
    assert await posts.told(dialect, *add) == [{"n": 1}, {"n": 2}]
    assert await posts.told(dialect, *add) == [{"n": 3}, {"n": 4}]
    assert [start.call_key for start in posts.receipts.starts] == [None] * 4


async def test_an_identical_post_is_answered_from_the_journal_under_any_id(dialect: Dialect) -> None:
    posts = Posts()
    first, again = [call_item(dialect, "post", {"body": "a"}, id=id) for id in ("one", "two")]
    assert await posts.told(dialect, first, again) == [{"n": 1}, {"n": 1, "unchanged": True}]


async def test_a_response_that_the_loop_names_is_not_worked_twice(dialect: Dialect) -> None:
    posts = Posts()
    twice = [call_item(dialect, "add", {"body": "a"}, id="call_0")] * 2
    other = call_item(dialect, "add", {"body": "b"}, id="call_9")
    first = await posts.told(dialect, *twice, delivery="resp_1")
    assert first == [{"n": 1}, {"n": 2}]
    assert await posts.told(dialect, *twice, delivery="resp_1") == first
    assert await posts.told(dialect, *twice, delivery="resp_2") == [{"n": 3}, {"n": 4}]
    # The name given to another response by mistake takes no call for one that it is not.
    assert await posts.told(dialect, other, delivery="resp_1") == [{"n": 5}]
    assert [start.replay_of for start in posts.receipts.starts if start.replay_of] == ["rc-1", "rc-2"]


async def test_a_loop_that_is_cancelled_leaves_a_receipt_and_can_ask_what_came_of_it(dialect: Dialect) -> None:
    began, receipts = anyio.Event(), MemoryReceipts()
    runs = itertools.count(1)

    async def stuck(_arguments: JsonObject, _context: CallContext) -> ToolResult:
        next(runs)
        began.set()
        await anyio.sleep_forever()
        return ToolResult()

    gateway = make_gateway([a_tool(stuck, spec=a_write_spec("stuck"))], edge="functions", receipts=receipts)
    calls = [call_item(dialect, "stuck", {}, id="a")]

    async def stop(scope: anyio.CancelScope) -> None:
        await began.wait()
        scope.cancel()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop, tasks.cancel_scope)
            await ask(gateway, dialect, *calls, delivery="resp_1")
        (answer,) = await ask(gateway, dialect, *calls, delivery="resp_1")
    assert [(end.code, end.effect) for end in receipts.ends] == [(FailureCode.CANCELLED, Effect.UNKNOWN)] * 2
    assert (answer.json["failure"]["code"], next(runs)) == ("cancelled", 2)


async def test_one_edge_serves_two_conversations_at_once(dialect: Dialect) -> None:
    meeting = Meeting(size=2)
    edge = FunctionEdge(meeting.gateway(), dialect)
    found: dict[str, list[JsonObject]] = {}

    async def converse(label: str) -> None:
        found[label] = await edge.answer(labelled(dialect, label))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for label in ("r1", "r2"):
                tasks.start_soon(converse, label)
    assert {label: label in str(answers) and len(answers) == 1 for label, answers in found.items()} == {
        "r1": True,
        "r2": True,
    }
