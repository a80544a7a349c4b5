"""Codex dynamic tools: the session's listing as `thread/start` wants it, and one call in and out. Pure translation.

Codex validates nothing, shows its model a weakened schema and has no channel for failure (R-184 to R-190): so the raw
arguments go to the boundary as they came, and what the model must understand stands in the text (D22).
"""

from collections.abc import Mapping

from hostside.core.call import ToolCall, ToolFailure, ToolResult
from hostside.core.canonical import JsonObject, snapshot
from hostside.core.session import Session
from hostside.errors import Effect, FailureCode


def dynamic_tools(session: Session) -> list[JsonObject] | None:
    """Return `thread/start.dynamicTools` in name order, with fresh copies of the schemas.

    None when there is nothing to offer: the field must then be absent, an empty list is refused (R-186).
    """
    return [
        {
            "type": "function",
            "name": item.spec.name,
            "description": item.spec.description,
            "inputSchema": snapshot(item.advertised_input),
        }
        for item in session.listing()
    ] or None


def to_call(params: object) -> ToolCall:
    """Return the call that the params of `item/tool/call` ask for; anything malformed becomes one that is refused.

    There is no delivery key: a model that repeats a call id makes two calls with the same `callId` (D23). A namespace is
    part of the name, since none of the host's tools has one.
    """
    fields: Mapping[str, object] = params if isinstance(params, Mapping) else {}
    name, namespace = fields.get("tool"), fields.get("namespace")
    name = name if isinstance(name, str) else ""
    if namespace is not None:
        name = f"{namespace}.{name}"
    return ToolCall(name=name, arguments=fields.get("arguments"))


def to_reply(result: ToolResult) -> JsonObject:
    """Return the result of `item/tool/call`: one text item, which is all that the model gets to read (R-188)."""
    return {"success": result.ok, "contentItems": [{"type": "inputText", "text": result.text()}]}


def unreadable(reason: str) -> ToolResult:
    """Return the failure of a call whose frame two readers could understand differently (D1). It leaves no receipt (D7)."""
    return ToolResult(
        failure=ToolFailure(
            code=FailureCode.INVALID_ARGUMENTS,
            message=f"The call was not read: {reason}.",
            remedy="Send plain JSON: no repeated keys, no NaN or Infinity, less nesting. Nothing was done.",
            effect=Effect.NONE,
            details=({"pointer": "", "rule": "json", "expected": "JSON", "got": reason},),
        )
    )
