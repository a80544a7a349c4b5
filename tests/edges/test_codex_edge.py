"""The Codex edge: pure translation between its wire and a call (A0-03, A0-05, R-185 to R-189)."""

import json
from typing import Any

import pytest

from hostside.core.call import ToolCall, ToolFailure, ToolResult
from hostside.edges.codex import dynamic_tools, to_call, to_reply, unreadable
from hostside.errors import Effect, FailureCode
from tests.support.gateways import call, make_gateway
from tests.support.tools import Recorder, a_tool, schema

TEXT = schema({"text": {"type": "string", "maxLength": 10}}, ("text",))


def wire(**fields: Any) -> dict[str, Any]:
    return {"threadId": "t", "turnId": "u", "callId": "c", "namespace": None, "tool": "demo_get", **fields}


def test_the_listing_goes_out_verbatim_in_name_order_with_the_advertised_schema() -> None:
    session = make_gateway([a_tool(name="demo_z"), a_tool(name="demo_a", input_schema=TEXT)]).session
    advertised = session.registry.tools["demo_a"].advertised_input
    assert dynamic_tools(session) == [
        {"type": "function", "name": "demo_a", "description": "A tool for tests.", "inputSchema": advertised},
        {
            "type": "function",
            "name": "demo_z",
            "description": "A tool for tests.",
            "inputSchema": session.registry.tools["demo_z"].advertised_input,
        },
    ]


def test_the_schemas_are_copies_and_no_tools_is_no_list() -> None:
    session = make_gateway([a_tool(input_schema=TEXT)]).session
    listed = dynamic_tools(session)
    assert listed is not None
    listed[0]["inputSchema"] = listed[0].pop("inputSchema") and {"type": "string"}
    assert session.registry.tools["demo_get"].advertised_input["type"] == "object"
    assert dynamic_tools(make_gateway([]).session) is None


@pytest.mark.parametrize("arguments", [{"text": "x"}, [1], "{}", None, 5, True, {"a": {"b": [None]}}])
def test_raw_arguments_reach_the_boundary_without_any_key(arguments: object) -> None:
    assert to_call(wire(arguments=arguments)) == ToolCall(name="demo_get", arguments=arguments)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (wire(namespace="crm"), "crm.demo_get"),
        (wire(namespace=5), "5.demo_get"),
        (wire(tool=None), ""),
        (wire(tool=["demo_get"]), ""),
        ({}, ""),
        ([], ""),
        (None, ""),
        ("demo_get", ""),
    ],
)
def test_what_names_no_tool_of_ours_becomes_a_call_that_is_refused(params: object, name: str) -> None:
    assert to_call(params) == ToolCall(name=name, arguments=None)


@pytest.mark.anyio
async def test_a_result_is_one_text_item_with_the_json_of_the_outcome() -> None:
    gateway = make_gateway([a_tool(Recorder(ToolResult(structured={"b": 1, "a": "é\x1b\u202e"})), input_schema=TEXT)])
    reply = to_reply(await call(gateway, "demo_get", {"text": "x"}))
    assert reply == {
        "success": True,
        "contentItems": [{"type": "inputText", "text": '{"b":1,"a":"é\\u001b\\u202e"}'}],
    }


@pytest.mark.anyio
async def test_a_failure_says_in_its_text_what_the_protocol_cannot() -> None:
    gateway = make_gateway([a_tool(input_schema=TEXT)])
    for name, arguments, code in (
        ("demo_gett", {}, "unknown_tool"),
        ("demo_get", {"text": "x" * 11}, "invalid_arguments"),
        ("demo_get", {"other": 1}, "invalid_arguments"),
    ):
        result = await call(gateway, name, arguments)
        reply: dict[str, Any] = to_reply(result)
        (item,) = reply["contentItems"]
        told = json.loads(item["text"])
        assert (reply["success"], item["type"], told["failure"]["code"]) == (False, "inputText", code)
        assert told["failure"]["receipt_id"] == result.receipt_id


def test_a_frame_that_could_be_read_two_ways_is_a_refusal_without_a_receipt() -> None:
    reason = "duplicate key 'a'"
    assert unreadable(reason) == ToolResult(
        failure=ToolFailure(
            code=FailureCode.INVALID_ARGUMENTS,
            message="The call was not read: duplicate key 'a'.",
            remedy="Send plain JSON: no repeated keys, no NaN or Infinity, less nesting. Nothing was done.",
            effect=Effect.NONE,
            details=({"pointer": "", "rule": "json", "expected": "JSON", "got": reason},),
        )
    )
