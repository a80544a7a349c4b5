"""The wire of function calling in three dialects: a tool, the calls of one model response, an answer. Pure translation.

`responses` is OpenAI's Responses API, `chat` its Chat Completions, `messages` Anthropic's Messages. What a model or a
server between got wrong becomes a call that the boundary refuses, with a receipt; nothing is repaired (D1).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from hostside.core.call import ToolResult
from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, parse, snapshot
from hostside.core.registry import RegisteredTool
from hostside.edges.frames import MAX_FRAME_BYTES

Dialect = Literal["responses", "chat", "messages"]


class Unreadable(Mapping[str, JsonValue]):
    """Arguments that could not be read, and why.

    Whoever looks inside gets JsonRejected. The boundary does when it takes its copy, so such a call is refused there as
    `invalid_arguments` with the reason, and recorded like any other; a call of an unknown tool stays an unknown tool.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __getitem__(self, _key: str) -> NoReturn:
        raise JsonRejected(self.reason)

    def __iter__(self) -> NoReturn:
        raise JsonRejected(self.reason)

    def __len__(self) -> NoReturn:
        raise JsonRejected(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """One call of a model response. `id` is the provider's, "" where the response gives none that can be sent back."""

    id: str
    name: str
    arguments: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One dialect. `marks` are keys of the object that holds a response's items; the first of them holds the list."""

    marks: tuple[str, ...]
    tool: Callable[[RegisteredTool], JsonObject]
    call: Callable[[Mapping[str, object]], AskedCall | None]
    answer: Callable[[str, ToolResult], JsonObject]

    def calls(self, response: object) -> tuple[AskedCall, ...]:
        """Return the calls of a response, in its order; items that are no function call are passed over.

        Raises TypeError for what is not such a response in decoded JSON: that is the caller's mistake, and an empty
        answer would hide it.
        """
        found = (self.call(item) for item in self._items(response))
        return tuple(call for call in found if call is not None)

    def _items(self, response: object) -> Iterator[Mapping[str, object]]:
        listed = response
        if isinstance(response, Mapping):
            if not any(mark in response for mark in self.marks):
                raise self._wrong()
            # Absent or null: no call. Text: a message that only says something.
            listed = response.get(self.marks[0]) or ()
            listed = () if isinstance(listed, str) else listed
        if not isinstance(listed, Sequence) or isinstance(listed, str | bytes | bytearray):
            raise self._wrong()
        for item in listed:
            if isinstance(item, Mapping):
                yield item
            elif not (item is None or isinstance(item, str | int | float | Sequence)):
                raise self._wrong()

    def _wrong(self) -> TypeError:
        field = self.marks[0]
        return TypeError(
            f"a response is the list `{field}` or the object that holds it, as decoded JSON; objects of an SDK have to "
            "be turned into JSON first"
        )


def _responses_tool(item: RegisteredTool) -> JsonObject:
    # This API's default is strict: it would rewrite the schema, and make every property required.
    return {"type": "function", **_function(item), "strict": False}


def _chat_tool(item: RegisteredTool) -> JsonObject:
    return {"type": "function", "function": _function(item)}


def _messages_tool(item: RegisteredTool) -> JsonObject:
    return {
        "name": item.spec.name,
        "description": item.spec.description,
        "input_schema": snapshot(item.advertised_input),
    }


def _function(item: RegisteredTool) -> JsonObject:
    return {
        "name": item.spec.name,
        "description": item.spec.description,
        "parameters": snapshot(item.advertised_input),
    }


def _responses_call(item: Mapping[str, object]) -> AskedCall | None:
    if item.get("type") != "function_call":
        return None
    name, namespace = item.get("name"), item.get("namespace")
    if namespace is not None:
        # Part of the name, since none of the host's tools has one.
        name = f"{namespace}.{name}"
    return _asked(item, "call_id", name, _decoded(item))


def _chat_call(item: Mapping[str, object]) -> AskedCall | None:
    # Some servers leave the type out; only another one says that this is no function.
    if item.get("type") not in (None, "function"):
        return None
    function = item.get("function")
    function = function if isinstance(function, Mapping) else {}
    return _asked(item, "id", function.get("name"), _decoded(function))


def _messages_call(item: Mapping[str, object]) -> AskedCall | None:
    if item.get("type") != "tool_use":
        return None
    return _asked(item, "id", item.get("name"), item["input"] if "input" in item else _missing("input"))


def _asked(item: Mapping[str, object], id_field: str, name: object, arguments: object) -> AskedCall:
    id = _text(item.get(id_field))
    if not id:
        arguments = Unreadable(f"the call has no `{id_field}`, so its outcome could not be sent back")
    return AskedCall(id=id, name=_text(name), arguments=arguments)


def _decoded(holder: Mapping[str, object]) -> object:
    """Return the JSON value of the text `arguments`."""
    if "arguments" not in holder:
        return _missing("arguments")
    text = holder["arguments"]
    if not isinstance(text, str):
        return Unreadable("`arguments` is not text; in this dialect it holds JSON as text")
    if len(text) > MAX_FRAME_BYTES:
        return Unreadable(f"longer than {MAX_FRAME_BYTES} characters")
    try:
        return parse(text)
    except JsonRejected as rejected:
        return Unreadable(rejected.reason)


def _missing(field: str) -> Unreadable:
    return Unreadable(f"`{field}` is missing")


def _text(value: object) -> str:
    """Return text that can be stored and sent back; "" for everything else, lone surrogates included."""
    if not isinstance(value, str):
        return ""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    return value


def _responses_answer(id: str, result: ToolResult) -> JsonObject:
    return {"type": "function_call_output", "call_id": id, "output": result.text()}


def _chat_answer(id: str, result: ToolResult) -> JsonObject:
    return {"role": "tool", "tool_call_id": id, "content": result.text()}


def _messages_answer(id: str, result: ToolResult) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": id, "content": result.text(), "is_error": not result.ok}


SHAPES: Mapping[Dialect, Shape] = {
    "responses": Shape(marks=("output",), tool=_responses_tool, call=_responses_call, answer=_responses_answer),
    "chat": Shape(marks=("tool_calls", "role"), tool=_chat_tool, call=_chat_call, answer=_chat_answer),
    "messages": Shape(marks=("content",), tool=_messages_tool, call=_messages_call, answer=_messages_answer),
}
