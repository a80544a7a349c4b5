"""Function calling as providers send it: the calls of one model response in each dialect, and answers read back."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hostside.core.gateway import Gateway
from hostside.edges.function_shapes import Dialect
from hostside.edges.functions import FunctionEdge

DIALECTS: tuple[Dialect, ...] = ("responses", "chat", "messages")
#: The dialects that carry arguments as JSON text.
TEXT_DIALECTS: tuple[Dialect, ...] = ("responses", "chat")
_FIELDS = {"responses": "output", "chat": "tool_calls", "messages": "content"}


class Answer(NamedTuple):
    """One answer, whatever its dialect. `is_error` is None where the dialect cannot say it."""

    id: str
    text: str
    is_error: bool | None

    @property
    def json(self) -> Any:
        """The text, parsed."""
        return json.loads(self.text)


def call_item(dialect: Dialect, name: object, arguments: object, *, id: object = "call_1") -> dict[str, Any]:
    """Return one call. Text dialects get `arguments` as JSON text unless they are text already."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if dialect == "responses":
        return {"type": "function_call", "id": "fc_1", "call_id": id, "name": name, "arguments": text}
    if dialect == "chat":
        return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def response_of(dialect: Dialect, items: Sequence[object]) -> dict[str, Any]:
    """Return the response (`responses`) or assistant message that holds these items among others that are no call."""
    if dialect == "chat":
        return {"role": "assistant", "content": "Let me see.", "tool_calls": list(items)}
    said: dict[str, Any] = {"type": "text", "text": "Let me see."}
    if dialect == "responses":
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]}
    return {"id": "one", "role": "assistant", _FIELDS[dialect]: [said, *items]}


def read_answer(dialect: Dialect, answer: dict[str, Any]) -> Answer:
    """Return an answer's parts; fails where it has other fields than the provider takes."""
    if dialect == "responses":
        found, kind = Answer(answer["call_id"], answer["output"], None), ("type", "function_call_output")
    elif dialect == "chat":
        found, kind = Answer(answer["tool_call_id"], answer["content"], None), ("role", "tool")
    else:
        found, kind = Answer(answer["tool_use_id"], answer["content"], answer["is_error"]), ("type", "tool_result")
    assert (answer[kind[0]], len(answer)) == (kind[1], 4 if dialect == "messages" else 3)
    return found


async def ask(gateway: Gateway, dialect: Dialect, *items: dict[str, Any], delivery: str | None = None) -> list[Answer]:
    """Let an edge answer one response with these items."""
    edge = FunctionEdge(gateway, dialect)
    answers: list[dict[str, Any]] = [*await edge.answer(response_of(dialect, items), delivery=delivery)]
    return [read_answer(dialect, answer) for answer in answers]
