"""A scripted OpenAI Responses API on loopback, for the real Codex CLI."""

import re
import socket
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.agent_script import Call, HttpError, JsonObject, OfferedTool, Part, Say, Script, ToolAnswer
from tests.support.scripted_model import Event, ScriptedModel

# Codex puts this before what a script or an MCP tool answered. What it says of a script that failed or still runs stays.
_PREAMBLE = re.compile(r"\A(?:Script completed\n)?Wall time:? [\d.]+ seconds\nOutput:\n?")
_OWN_NAMESPACE = "functions"
_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


class StubOpenAI(ScriptedModel):
    """`POST /v1/responses`, streamed.

    A host tool goes out under its bare name (a dynamic tool), or inside `namespace` (`mcp__hostside` for a server of
    `codex exec`). With `code_mode` the model writes JavaScript for Codex's `exec` tool instead, one script per call;
    `exec` and `wait` themselves can be called as native tools, `exec` with the source text as arguments.
    """

    def __init__(
        self,
        script: Script,
        *,
        listener: socket.socket | None = None,
        namespace: str | None = None,
        code_mode: bool = False,
    ) -> None:
        super().__init__(script, listener=listener)
        self._namespace = namespace
        self.code_mode = code_mode

    @property
    def base_url(self) -> str:
        """The value of `model_providers.NAME.base_url`."""
        return f"{self.origin}/v1"

    def offered_tools(self) -> list[OfferedTool]:
        """As the base says. In code mode a host tool is not listed but declared in the description of `exec`."""
        if not self.requests:
            raise LookupError("the client has not asked for a turn yet")
        body = self.requests[0]
        listed = list(body.get("tools", []))
        for item in body["input"]:
            listed += item["tools"] if item.get("type") == "additional_tools" else []
        return [tool for entry in listed for tool in self._offered(entry)]

    def _offered(self, entry: JsonObject) -> list[OfferedTool]:
        if entry["type"] == "namespace":
            prefix = "" if entry["name"] in (self._namespace, _OWN_NAMESPACE) else f"{entry['name']}."
            return [
                OfferedTool(prefix + tool.name, tool.description, tool.input_schema)
                for inner in entry["tools"]
                for tool in self._offered(inner)
            ]
        name: str = entry["name"] if "name" in entry else entry["type"]
        return [OfferedTool(name, entry.get("description", ""), entry.get("parameters", {}))]

    def _routes(self) -> list[Route]:
        return [Route("/v1/responses", self._ask, methods=["POST"])]

    def _answers_in(self, body: JsonObject) -> list[tuple[str, ToolAnswer]]:
        return [
            (item["call_id"], ToolAnswer(self._called.get(item["call_id"], ""), _content(item["output"]), None))
            for item in body["input"]
            if item.get("type") in ("function_call_output", "custom_tool_call_output")
        ]

    def _error_body(self, error: HttpError) -> JsonObject:
        return {"error": {"message": error.message, "type": "scripted_fault", "code": None, "param": None}}

    def _reply(self, body: JsonObject, parts: tuple[Part, ...]) -> Response | list[Event]:
        items = [self._item(part) for part in parts]
        calls = zip(items, parts, strict=True)
        self._open_calls([(item["call_id"], part.tool) for item, part in calls if isinstance(part, Call)])
        response: JsonObject = {"id": self._new_id("resp"), "object": "response", "status": "in_progress"}
        completed = response | {"status": "completed", "output": items, "usage": _USAGE}
        if not body.get("stream"):
            return JSONResponse(completed)
        events = [Event("response.created", {"response": response})]
        for index, (item, part) in enumerate(zip(items, parts, strict=True)):
            events.append(Event("response.output_item.added", {"output_index": index, "item": item}))
            if isinstance(part, Say):
                where = {"item_id": item["id"], "output_index": index, "content_index": 0}
                events.append(Event("response.output_text.delta", {**where, "delta": part.text}))
            events.append(Event("response.output_item.done", {"output_index": index, "item": item}))
        return [*events, Event("response.completed", {"response": completed})]

    def _item(self, part: Part) -> JsonObject:
        if isinstance(part, Say):
            content = {"type": "output_text", "text": part.text, "annotations": []}
            return {
                "type": "message",
                "id": self._new_id("msg"),
                "role": "assistant",
                "status": "completed",
                "content": [content],
            }
        call_id = part.call_id or self._new_id("call")
        if self.code_mode and not (part.native and part.tool == "wait"):
            source = part.json if part.native and part.tool == "exec" else self._javascript(part)
            return self._made("custom_tool_call", "exec", call_id) | {"input": source}
        item = self._made("function_call", part.tool, call_id) | {"arguments": part.json}
        if self._namespace is not None and not part.native:
            item["namespace"] = self._namespace
        return item

    def _made(self, kind: str, name: str, call_id: str) -> JsonObject:
        return {"type": kind, "id": self._new_id("item"), "status": "completed", "name": name, "call_id": call_id}

    def _javascript(self, call: Call) -> str:
        if self._namespace is None or call.native:
            return f"const r = await tools.{call.tool}({call.json}); text(r);"
        # A server's tool gives the whole result object: print of it what a function call would have been given.
        show = 'r.structuredContent ?? r.content.map((item) => item.text ?? "").join("\\n")'
        return f"const r = await tools.{self._namespace}__{call.tool}({call.json}); text({show});"


def _content(output: Any) -> str | list[JsonObject]:
    """A tool output without the lines that Codex put before it; the raw form stays in `requests`."""
    if isinstance(output, str):
        return _PREAMBLE.sub("", output, count=1)
    items: list[JsonObject] = list(output)
    if items and _PREAMBLE.fullmatch(items[0].get("text", "")):
        items = items[1:]
    if [item["type"] for item in items] == ["input_text"]:
        text: str = items[0]["text"]
        return text
    return items
