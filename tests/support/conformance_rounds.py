"""Fixture tools of the conformance suite that ask their client for input first (2026-07-28)."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as t

from tests.support.conformance_tools import Context, Params, Result, Schema, an_object, result, text, tool

NAME = an_object("name", name="string")
OK = an_object("ok", ok="boolean")
Responses = Mapping[str, Any]


def elicit(message: str, schema: Schema) -> t.ElicitRequest:
    """Return a question to the user."""
    return t.ElicitRequest(params=t.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(message: str) -> t.CreateMessageRequest:
    """Return a question to the client's model."""
    messages = [t.SamplingMessage(role="user", content=text(message))]
    return t.CreateMessageRequest(params=t.CreateMessageRequestParams(messages=messages, max_tokens=50))


def asks(name: str, requests: dict[str, Any], done: Callable[[Responses], str], state: str | None = None) -> None:
    """Register a tool that answers once every request has a response, and its state came back."""

    async def handler(_context: Context, params: Params) -> Result:
        responses: Responses = params.input_responses or {}
        if requests.keys() <= responses.keys() and state in (None, params.request_state):
            return result(text(done(responses)))
        return t.InputRequiredResult(input_requests=requests, request_state=state)

    tool(name=f"test_input_required_result_{name}")(handler)


def _greeting(responses: Responses) -> str:
    content = getattr(responses["user_name"], "content", None) or {}
    return f"Hello, {content.get('name', '?')}!"


def _said(responses: Responses) -> str:
    return f"Model said: {getattr(responses['capital_question'].content, 'text', '?')}"


def _counted(responses: Responses) -> str:
    return f"{len(responses['client_roots'].roots)} roots"


def _whatever(_responses: Responses) -> str:
    return "state-ok: all inputs received."


asks("elicitation", {"user_name": elicit("What is your name?", NAME)}, _greeting)
asks("sampling", {"capital_question": sample("What is the capital of France?")}, _said)
asks("list_roots", {"client_roots": t.ListRootsRequest()}, _counted)
asks("request_state", {"confirm": elicit("confirm", OK)}, _whatever, "nonce")
asks("tampered_state", {"confirm": elicit("confirm", OK)}, _whatever, "round-1")
asks(
    "multiple_inputs",
    {"user_name": elicit("name", NAME), "greeting": sample("hi"), "client_roots": t.ListRootsRequest()},
    _whatever,
    "multi",
)


@tool()
async def input_required_result_multi_round(_context: Context, params: Params) -> Result:
    round_number = json.loads(params.request_state or '{"round": 0}')["round"]
    responses = params.input_responses or {}
    if round_number == 2 and "step2" in responses:
        return result(text("done"))
    if round_number == 1 and "step1" in responses:
        asked: dict[str, Any] = {"step2": elicit("color?", an_object("color", color="string"))}
        return t.InputRequiredResult(input_requests=asked, request_state='{"round": 2}')
    return t.InputRequiredResult(input_requests={"step1": elicit("name?", NAME)}, request_state='{"round": 1}')


@tool()
async def input_required_result_capabilities(context: Context, _params: Params) -> Result:
    offered = context.session.client_capabilities
    asked: dict[str, Any] = {}
    if offered is not None and offered.sampling is not None:
        asked["sample"] = sample("hello")
    if offered is not None and offered.elicitation is not None:
        asked["ask"] = elicit("name", NAME)
    return t.InputRequiredResult(input_requests=asked, request_state="caps")


@tool()
async def streaming_elicitation(context: Context, _params: Params) -> Result:
    await context.session.report_progress(1, 2, "asking")
    return t.InputRequiredResult(input_requests={"user_name": elicit("name?", NAME)})
