"""Function calling, shape by shape: what is offered, what a call becomes, what is refused, what an answer is."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside import FunctionEdge
from hostside.core.call import ToolResult
from hostside.core.locality import CallerDisk, Locality, Reach
from hostside.core.receipt import Outcome
from hostside.edges.frames import MAX_FRAME_BYTES
from hostside.edges.function_shapes import Dialect
from tests.support.function_wire import DIALECTS, TEXT_DIALECTS, Answer, ask, call_item
from tests.support.gateways import make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_tool, schema

pytestmark = pytest.mark.anyio
TEXT = schema({"text": {"type": "string", "maxLength": 10}}, ("text",))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_listing_goes_out_verbatim_in_name_order_with_the_advertised_schema(dialect: Dialect) -> None:
    gateway = make_gateway([a_tool(name="demo_z"), a_tool(name="demo_a", input_schema=TEXT)], edge="functions")
    schemas = {name: item.advertised_input for name, item in gateway.session.registry.tools.items()}
    said = "A tool for tests."
    assert (
        FunctionEdge(gateway, dialect).tools()
        == {
            "responses": [
                {"type": "function", "name": name, "description": said, "parameters": schemas[name], "strict": False}
                for name in ("demo_a", "demo_z")
            ],
            "chat": [
                {"type": "function", "function": {"name": name, "description": said, "parameters": schemas[name]}}
                for name in ("demo_a", "demo_z")
            ],
            "messages": [
                {"name": name, "description": said, "input_schema": schemas[name]} for name in ("demo_a", "demo_z")
            ],
        }[dialect]
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_listing_that_is_edited_changes_nothing(dialect: Dialect) -> None:
    edge = FunctionEdge(make_gateway([a_tool(input_schema=TEXT)], edge="functions"), dialect)
    before = json.dumps(edge.tools())
    listed: list[Any] = edge.tools()
    holder = listed[0].get("function", listed[0])
    holder.get("parameters", holder.get("input_schema"))["properties"].clear()
    assert json.dumps(edge.tools()) == before


def test_a_withheld_tool_is_not_listed_and_the_instructions_say_why() -> None:
    reach = Reach(caller_disk=CallerDisk.UNPROVEN, server_checkout=False)
    tools = [a_tool(), a_tool(name="demo_disk", locality=Locality.CALLER_FILESYSTEM)]
    edge = FunctionEdge(make_gateway(tools, edge="functions", reach=reach), "messages")
    assert [tool["name"] for tool in edge.tools()] == ["demo_get"]
    assert "- demo_disk: disk_unproven." in edge.instructions()
    assert FunctionEdge(make_gateway([], edge="functions"), "chat").tools() == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_carries_the_id_and_the_json_of_the_outcome(dialect: Dialect) -> None:
    recorder = Recorder(ToolResult(structured={"b": None, "a": "é\x1b\u202e", "n": 2**53 + 1}))
    gateway = make_gateway([a_tool(recorder, input_schema=TEXT)], edge="functions")
    answers = await ask(gateway, dialect, call_item(dialect, "demo_get", {"text": "é"}, id="call_é"))
    text = '{"b":null,"a":"é\\u001b\\u202e","n":9007199254740993}'
    assert answers == [Answer("call_é", text, False if dialect == "messages" else None)]
    assert recorder.arguments == [{"text": "é"}]


BROKEN = {
    "": "not JSON",
    "{": "not JSON",
    '{"text":"a"} {"text":"b"}': "not JSON",
    '{"text":"a","text":"b"}': "duplicate key 'text'",
    '{"text":NaN}': "NaN is not JSON",
    '{"text":1e400}': "overflows",
    '{"text":"\\ud800"}': "lone surrogate",
    "[" * 70 + "]" * 70: "nested deeper",
    '"' + "x" * MAX_FRAME_BYTES + '"': "longer than",
    "[1]": "expected an object, got an array of 1",
    "null": "expected an object, got null",
    "5": "expected an object, got the number 5",
    '"{\\"text\\":\\"a\\"}"': "expected an object, got a string that holds JSON",
    "{}": "/text: expected a value, got nothing",
    '{"text":null}': "/text: expected a string, got null",
}


@pytest.mark.parametrize("dialect", TEXT_DIALECTS)
@pytest.mark.parametrize(("text", "reason"), BROKEN.items(), ids=BROKEN.values())
async def test_arguments_text_is_read_strictly_or_refused_with_a_receipt(
    text: str, reason: str, dialect: Dialect
) -> None:
    receipts = MemoryReceipts()
    gateway = make_gateway([a_tool(input_schema=TEXT)], edge="functions", receipts=receipts)
    (answer,) = await ask(gateway, dialect, call_item(dialect, "demo_get", text))
    failure = answer.json["failure"]
    (started,), (ended,) = receipts.starts, receipts.ends
    assert (failure["code"], failure["effect"], failure["receipt_id"]) == ("invalid_arguments", "none", "rc-1")
    assert (started.tool, started.edge, ended.outcome) == ("demo_get", "functions", Outcome.REFUSED)
    assert reason in failure["message"]


@pytest.mark.parametrize("given", ["{}", '{"text":"a"}', [1], None, 5, True, {"text": 1}, {"text": {1}}], ids=repr)
async def test_an_input_reaches_the_boundary_raw_and_text_is_never_read_as_json(given: object) -> None:
    receipts = MemoryReceipts()
    gateway = make_gateway([a_tool(input_schema=TEXT)], edge="functions", receipts=receipts)
    item = call_item("messages", "demo_get", {}) | {"input": given}
    (answer,) = await ask(gateway, "messages", item)
    assert (answer.is_error, answer.json["failure"]["code"]) == (True, "invalid_arguments")
    assert [end.outcome for end in receipts.ends] == [Outcome.REFUSED]


def without(item: dict[str, Any], *path: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(item))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return copy


def changed(dialect: Dialect, **changes: object) -> dict[str, Any]:
    return call_item(dialect, "demo_get", {}) | changes


def chat(**function: object) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": function}


ITEMS = {dialect: call_item(dialect, "demo_get", {}) for dialect in DIALECTS}
MALFORMED: list[tuple[Dialect, dict[str, Any], str, str, str]] = [
    ("responses", without(ITEMS["responses"], "arguments"), "call_1", "invalid_arguments", "`arguments` is missing"),
    ("responses", changed("responses", arguments={}), "call_1", "invalid_arguments", "`arguments` is not text"),
    ("responses", without(ITEMS["responses"], "call_id"), "", "invalid_arguments", "has no `call_id`"),
    ("responses", changed("responses", call_id=7), "", "invalid_arguments", "has no `call_id`"),
    ("responses", changed("responses", call_id="\ud800"), "", "invalid_arguments", "has no `call_id`"),
    ("responses", without(ITEMS["responses"], "name"), "call_1", "unknown_tool", "no tool ''"),
    ("responses", changed("responses", name="demo_get\ud800"), "call_1", "unknown_tool", "no tool ''"),
    ("responses", changed("responses", namespace="crm"), "call_1", "unknown_tool", "no tool 'crm.demo_get'"),
    ("chat", without(ITEMS["chat"], "function", "arguments"), "call_1", "invalid_arguments", "`arguments` is missing"),
    ("chat", chat(name="demo_get", arguments=None), "call_1", "invalid_arguments", "`arguments` is not text"),
    ("chat", without(ITEMS["chat"], "id"), "", "invalid_arguments", "has no `id`"),
    ("chat", without(ITEMS["chat"], "function"), "call_1", "unknown_tool", "no tool ''"),
    ("chat", changed("chat", function="demo_get"), "call_1", "unknown_tool", "no tool ''"),
    ("chat", chat(name=["demo_get"], arguments="{}"), "call_1", "unknown_tool", "no tool ''"),
    ("messages", without(ITEMS["messages"], "input"), "call_1", "invalid_arguments", "`input` is missing"),
    ("messages", without(ITEMS["messages"], "id"), "", "invalid_arguments", "has no `id`"),
    ("messages", changed("messages", id=""), "", "invalid_arguments", "has no `id`"),
    ("messages", changed("messages", name=None), "call_1", "unknown_tool", "no tool ''"),
    ("messages", changed("messages", name="Demo_Get", input=5), "call_1", "unknown_tool", "no tool 'Demo_Get'"),
]


@pytest.mark.parametrize(("dialect", "item", "id", "code", "said"), MALFORMED)
async def test_a_call_that_lacks_a_part_is_refused_by_the_boundary(
    dialect: Dialect, item: dict[str, Any], id: str, code: str, said: str
) -> None:
    receipts = MemoryReceipts()
    gateway = make_gateway([a_tool()], edge="functions", receipts=receipts)
    (answer,) = await ask(gateway, dialect, item)
    failure = answer.json["failure"]
    assert (answer.id, failure["code"], failure["receipt_id"]) == (id, code, receipts.ends[0].receipt_id)
    assert said in failure["message"]
    assert len(receipts.ends) == 1


async def test_a_chat_call_without_its_type_is_still_a_call_and_another_type_is_none() -> None:
    gateway = make_gateway([a_tool(Recorder())], edge="functions")
    untyped = without(ITEMS["chat"], "type")
    custom = {"id": "call_2", "type": "custom", "custom": {"name": "demo_get", "input": "{}"}}
    assert await ask(gateway, "chat", untyped, custom) == [Answer("call_1", "{}", None)]


NO_CALLS: list[tuple[Dialect, object]] = [
    ("responses", {"output": []}),
    ("responses", [{"type": "reasoning", "summary": []}, {"type": "custom_tool_call", "name": "demo_get"}, {}]),
    ("chat", {"role": "assistant", "content": "done"}),
    ("chat", {"role": "assistant", "content": "done", "tool_calls": None}),
    ("messages", {"role": "assistant", "content": "done"}),
    ("messages", [{"type": "server_tool_use", "id": "s", "name": "demo_get", "input": {}}]),
    ("messages", ["text", None, 5, True, 1.5, []]),
]


@pytest.mark.parametrize(("dialect", "response"), NO_CALLS)
async def test_a_response_without_a_function_call_has_no_answer(dialect: Dialect, response: object) -> None:
    receipts = MemoryReceipts()
    edge = FunctionEdge(make_gateway([a_tool()], edge="functions", receipts=receipts), dialect)
    assert (await edge.answer(response), receipts.events) == ([], [])


class SdkObject:
    """What an SDK returns in place of JSON."""

    output = content = tool_calls = ()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "response",
    [None, "{}", b"{}", 5, SdkObject(), [SdkObject()], {"choices": []}, {"output": 5, "content": 5, "tool_calls": 5}],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_no_response_is_the_loop_s_own_mistake(dialect: Dialect, response: object) -> None:
    edge = FunctionEdge(make_gateway([a_tool()], edge="functions"), dialect)
    with pytest.raises(TypeError, match="decoded JSON"):
        await edge.answer(response)


def test_an_edge_needs_its_own_session_and_a_known_dialect() -> None:
    with pytest.raises(ValueError, match="opened for the edge 'stdio'"):
        FunctionEdge(make_gateway([a_tool()]), "chat")
    other: Any = "assistants"
    with pytest.raises(ValueError, match="use one of responses, chat, messages"):
        FunctionEdge(make_gateway([a_tool()], edge="functions"), other)


WORDS = st.sampled_from(["demo_get", "function_call", "tool_use", "function", "call_1", "{}", "\ud800", ""])
KEYS = st.sampled_from("type id call_id name namespace arguments input function".split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=8),
    max_leaves=20,
)
CALLS = st.fixed_dictionaries(
    {"type": st.sampled_from(["function_call", "tool_use", "function"])},
    optional=dict.fromkeys("name id call_id arguments input function".split(), JSON),
)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(items=st.lists(JSON | CALLS, max_size=4))
def test_whatever_items_come_every_call_has_one_answer_and_one_receipt(dialect: Dialect, items: list[object]) -> None:
    receipts = MemoryReceipts()
    edge = FunctionEdge(make_gateway([a_tool(Recorder())], edge="functions", receipts=receipts), dialect)
    answers = anyio.run(edge.answer, items)
    assert len(answers) == len(receipts.ends) == len(receipts.starts)
    json.dumps(answers, ensure_ascii=False).encode("utf-8")
