"""Answering what Codex asks its host: tool calls through the boundary, everything else by a fixed policy (R-190, R-194)."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import anyio

from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.edges.codex import to_call, to_reply, unreadable
from hostside.worker.codex_events import Recorder
from hostside.worker.codex_frames import Request
from hostside.worker.codex_protocol import AppServer

TOOL_CALL = "item/tool/call"

DECLINED: Mapping[str, JsonObject] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "mcpServer/elicitation/request": {"action": "decline", "content": None, "_meta": None},
    "item/tool/requestUserInput": {"answers": {}},
}
"""What nobody is there to decide is declined at once, so that no turn waits for it; the agent goes on without."""


class Activity:
    """When the agent or one of its calls last did something, for the stall clock (R-192)."""

    def __init__(self) -> None:
        self._last = anyio.current_time()
        self._open = 0

    def touch(self) -> None:
        self._last = anyio.current_time()

    def opened(self) -> None:
        self._open += 1

    def closed(self) -> None:
        self._open -= 1
        self.touch()

    def last(self) -> float:
        """The time of the last activity: now, while a call is open, since each has a deadline of its own."""
        return anyio.current_time() if self._open else self._last


class HostCalls:
    """Serves requests, each in a task of its own, and knows which outcomes the agent went on without."""

    def __init__(self, gateway: Gateway, server: AppServer, record: Recorder, activity: Activity) -> None:
        self._gateway = gateway
        self._server = server
        self._record = record
        self._activity = activity
        self._running: Counter[str] = Counter()
        self._answered: dict[str, str | None] = {}
        self._dropped: set[str] = set()
        self._idle = anyio.Event()
        self._idle.set()

    async def serve(self, request: Request) -> None:
        """Answer one request, whatever it is. Raises nothing but cancellation."""
        if request.method == TOOL_CALL:
            await self._call(request)
            return
        self._record.event("agent_request_declined", method=request.method)
        answer = DECLINED.get(request.method)
        if answer is None:
            await self._server.refuse(request.id, f"this host does not answer {request.method[:100]}")
        else:
            await self._server.answer(request.id, answer)

    def opened(self, request: Request) -> None:
        """Count a request as open before its task runs, so that no moment looks idle."""
        if request.method != TOOL_CALL:
            return
        if not self._running:
            self._idle = anyio.Event()
        self._running[_call_id(request)] += 1
        self._activity.opened()

    def item_completed(self, item: Mapping[str, Any]) -> None:
        """Note Codex's own end of a call. Failed and without content: it went on without the outcome (D23)."""
        call_id = item.get("id")
        if not isinstance(call_id, str):
            return
        went_without = item.get("status") == "failed" and not item.get("contentItems")
        if call_id in self._running:
            self._answered.pop(call_id, None)
            if went_without:
                self._dropped.add(call_id)  # told when the call ends, with its receipt
        elif call_id in self._answered:
            receipt_id = self._answered.pop(call_id)
            if went_without:
                self._tell_dropped(call_id, receipt_id)

    async def drain(self, seconds: float) -> None:
        """Let open calls come to their end, so that their receipts say what happened; at most `seconds`."""
        with anyio.move_on_after(seconds):
            await self._idle.wait()

    async def _call(self, request: Request) -> None:
        call_id = _call_id(request)
        receipt_id: str | None = None
        delivered = False
        try:
            if request.refused is not None:
                self._record.event("frame_rejected", reason=request.refused, method=request.method)
                result = unreadable(request.refused)
            else:
                result = await self._gateway.call(to_call(request.params))
            receipt_id = result.receipt_id
            self._answered[call_id] = receipt_id
            delivered = await self._server.answer(request.id, to_reply(result))
        finally:
            self._closed(call_id)
            if call_id in self._dropped or not delivered:
                self._dropped.discard(call_id)
                self._answered.pop(call_id, None)
                self._tell_dropped(call_id, receipt_id)

    def _closed(self, call_id: str) -> None:
        self._activity.closed()
        self._running[call_id] -= 1
        if self._running[call_id] == 0:
            del self._running[call_id]
        if not self._running:
            self._idle.set()

    def _tell_dropped(self, call_id: str, receipt_id: str | None) -> None:
        self._record.event("call_result_dropped", call_id=call_id, receipt_id=receipt_id)


def _call_id(request: Request) -> str:
    params = request.params
    call_id = params.get("callId") if isinstance(params, dict) else None
    return call_id if isinstance(call_id, str) else ""
