"""A scripted Chat Completions API on loopback, for loops that speak it."""

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.agent_script import Call, HttpError, JsonObject, OfferedTool, Part, Say, ToolAnswer
from tests.support.scripted_model import Event, ScriptedModel


class StubChat(ScriptedModel):
    """`POST /v1/chat/completions`, not streamed."""

    @property
    def base_url(self) -> str:
        """What comes before `/chat/completions`."""
        return f"{self.origin}/v1"

    def offered_tools(self) -> list[OfferedTool]:
        """As the base says."""
        if not self.requests:
            raise LookupError("the client has not asked for a turn yet")
        functions = [tool["function"] for tool in self.requests[0].get("tools", [])]
        return [OfferedTool(item["name"], item["description"], item["parameters"]) for item in functions]

    def _routes(self) -> list[Route]:
        return [Route("/v1/chat/completions", self._ask, methods=["POST"])]

    def _answers_in(self, body: JsonObject) -> list[tuple[str, ToolAnswer]]:
        return [
            (message["tool_call_id"], ToolAnswer(self._called[message["tool_call_id"]], message["content"], None))
            for message in body["messages"]
            if message["role"] == "tool"
        ]

    def _error_body(self, error: HttpError) -> JsonObject:
        return {"error": {"message": error.message, "type": "scripted_fault", "code": None, "param": None}}

    def _reply(self, body: JsonObject, parts: tuple[Part, ...]) -> Response | list[Event]:
        calls = [(part.call_id or self._new_id("call"), part) for part in parts if isinstance(part, Call)]
        self._open_calls([(id, part.tool) for id, part in calls])
        message: JsonObject = {
            "role": "assistant",
            "content": "".join(part.text for part in parts if isinstance(part, Say)) or None,
        }
        if calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": part.tool, "arguments": part.json}}
                for id, part in calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return JSONResponse(
            {"id": self._new_id("chatcmpl"), "object": "chat.completion", "model": body["model"], "choices": [choice]}
        )
