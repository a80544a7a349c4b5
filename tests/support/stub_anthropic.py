"""A scripted Anthropic Messages API on loopback, for the real Claude Code CLI."""

import socket

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.agent_script import Call, HttpError, JsonObject, OfferedTool, Part, Say, Script, ToolAnswer
from tests.support.scripted_model import Event, ScriptedModel

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SIDE_ANSWER = "side answer"


class StubAnthropic(ScriptedModel):
    """`POST /v1/messages`, streamed or not. A host tool `NAME` is `mcp__<server>__NAME` to this client.

    Requests that offer no tools (a title, a summary) are the client's own errands: recorded, answered with a fixed
    text, and no turn of the script. Pass `errands=False` for a session that really has no tools.
    """

    def __init__(
        self, script: Script, *, listener: socket.socket | None = None, server: str = "hostside", errands: bool = True
    ) -> None:
        super().__init__(script, listener=listener)
        self._prefix = f"mcp__{server}__"
        self._errands = errands

    @property
    def base_url(self) -> str:
        """The value of `ANTHROPIC_BASE_URL`."""
        return self.origin

    def offered_tools(self) -> list[OfferedTool]:
        for body in self.requests:
            if not self._is_errand(body):
                return [self._offered(tool) for tool in body.get("tools", [])]
        raise LookupError("the client has not asked for a turn yet")

    def _offered(self, tool: JsonObject) -> OfferedTool:
        name: str = tool["name"]
        return OfferedTool(name.removeprefix(self._prefix), tool.get("description", ""), tool.get("input_schema", {}))

    def _routes(self) -> list[Route]:
        return [
            Route("/v1/messages", self._ask, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
        ]

    async def _play(self, body: JsonObject) -> Response:
        if self._is_errand(body):
            return self._stream(body, Say(_SIDE_ANSWER), keep=None)
        return await super()._play(body)

    async def _count(self, request: Request) -> Response:
        return JSONResponse({"input_tokens": max(1, len(await request.body()) // 4)})

    def _is_errand(self, body: JsonObject) -> bool:
        return self._errands and not body.get("tools")

    def _answers_in(self, body: JsonObject) -> list[tuple[str, ToolAnswer]]:
        return [
            (block["tool_use_id"], self._answer(block))
            for message in body["messages"]
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    def _answer(self, block: JsonObject) -> ToolAnswer:
        content = block.get("content", "")
        if isinstance(content, list) and [item["type"] for item in content] == ["text"]:
            content = content[0]["text"]
        return ToolAnswer(self._called.get(block["tool_use_id"], ""), content, bool(block.get("is_error")))

    def _error_body(self, error: HttpError) -> JsonObject:
        kind = _ERROR_TYPES.get(error.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}}

    def _reply(self, body: JsonObject, parts: tuple[Part, ...]) -> Response | list[Event]:
        blocks = [self._block(part) for part in parts]
        if not self._is_errand(body):
            calls = zip(blocks, parts, strict=True)
            self._open_calls([(block["id"], part.tool) for block, part in calls if isinstance(part, Call)])
        stop = "tool_use" if any(isinstance(part, Call) for part in parts) else "end_turn"
        message: JsonObject = {
            "id": self._new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7},
        }
        if not body.get("stream"):
            content = [self._whole(block, part) for block, part in zip(blocks, parts, strict=True)]
            return JSONResponse(message | {"content": content, "stop_reason": stop})
        events = [Event("message_start", {"message": message})]
        for index, (block, part) in enumerate(zip(blocks, parts, strict=True)):
            delta = (
                {"type": "text_delta", "text": part.text}
                if isinstance(part, Say)
                else {"type": "input_json_delta", "partial_json": part.json}
            )
            events += [
                Event("content_block_start", {"index": index, "content_block": block}),
                Event("content_block_delta", {"index": index, "delta": delta}),
                Event("content_block_stop", {"index": index}),
            ]
        ending = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 7}}
        return [*events, Event("message_delta", ending), Event("message_stop", {})]

    def _block(self, part: Part) -> JsonObject:
        """The block as a stream opens it: still empty."""
        if isinstance(part, Say):
            return {"type": "text", "text": ""}
        name = part.tool if part.native else self._prefix + part.tool
        return {"type": "tool_use", "id": part.call_id or self._new_id("toolu"), "name": name, "input": {}}

    @staticmethod
    def _whole(block: JsonObject, part: Part) -> JsonObject:
        return block | ({"text": part.text} if isinstance(part, Say) else {"input": part.arguments})
