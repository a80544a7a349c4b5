"""The JSON lines of `codex exec`, told to `ThreadWatch` in the words of the app-server, so that both make the same events.

This stream has no turn ids, no working folders of commands and no error classes; what it lacks is not made up. Only a
failed turn's reason is read from its text, which names the provider's status.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from hostside.core.canonical import JsonObject, JsonValue
from hostside.worker.codex_events import Recorder, ThreadWatch
from hostside.worker.codex_exec_launch import SERVER, is_thread_id
from hostside.worker.codex_frames import Notification

#: The token counts of a thread, by Codex's own names.
Counts = Mapping[str, int]

_STATUS = re.compile(r"(?:unexpected status|last status:) (\d{3})\b")
# In place of a status, after an answer 500.
_HIGH_DEMAND = "currently experiencing high demand"
_COUNTS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


class ExecEvents:
    """Reads one process's lines. `before`: what each thread had used before, as far as this host process knows."""

    def __init__(
        self, record: Recorder, watch: ThreadWatch, *, resumed: str | None, before: Mapping[str, Counts]
    ) -> None:
        self._record = record
        self._watch = watch
        self._resumed = resumed
        self._before = before
        self._held: str | None = None
        self._open: dict[str, str] = {}
        self.turns = 0
        self.total: Counts | None = None
        """What the thread has used at the end of the turn, all turns together."""

    @property
    def started(self) -> bool:
        """The thread is there, and with it the required server: its tools were listed."""
        return bool(self._watch.thread_id)

    def take(self, line: bytes) -> None:
        """Take note of one line; unknown ones mean nothing here."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            self._record.event("frame_rejected", reason="not a JSON object")
            return
        kind = event.get("type")
        if kind != "turn.failed":
            self._release()
        handler = {
            "thread.started": self._thread_started,
            "turn.started": self._turn_started,
            "turn.completed": self._turn_completed,
            "turn.failed": self._turn_failed,
            "error": self._error,
            "item.started": self._item_started,
            "item.completed": self._item_completed,
        }.get(kind if isinstance(kind, str) else "")
        if handler is not None:
            handler(event)

    def end(self) -> None:
        """Take note that the process has ended: calls without an answer were dropped."""
        self._release()
        for call_id, tool in self._open.items():
            self._tell_dropped(call_id, tool)
        self._open.clear()

    def _notice(self, method: str, **params: Any) -> None:
        self._watch.notice(Notification(method=method, params={"threadId": self._watch.thread_id, **params}))

    def _thread_started(self, event: JsonObject) -> None:
        thread_id = event.get("thread_id")
        if self.started or not isinstance(thread_id, str) or not is_thread_id(thread_id):
            return
        self._watch.thread_id = thread_id
        self._record.event("agent_thread", thread_id=thread_id, resumed=self._resumed is not None)

    def _turn_started(self, _event: JsonObject) -> None:
        self.turns += 1
        self._watch.turn_started({})

    def _turn_completed(self, event: JsonObject) -> None:
        self._count(event.get("usage"))
        self._notice("turn/completed", turn={"status": "completed"})

    def _turn_failed(self, event: JsonObject) -> None:
        self._held = None
        error = event.get("error")
        message = error.get("message") if isinstance(error, dict) else None
        facts: JsonObject = {"message": message, "codexErrorInfo": _error_class(message)}
        self._notice("error", error=facts)
        self._notice("turn/completed", turn={"status": "failed", "error": facts})

    def _error(self, event: JsonObject) -> None:
        # A retry and the last failure look alike; only the next line tells them apart.
        message = event.get("message")
        self._held = message if isinstance(message, str) else ""

    def _release(self) -> None:
        if self._held is not None:
            self._notice("error", error={"message": self._held}, willRetry=True)
            self._held = None

    def _item_started(self, event: JsonObject) -> None:
        item = _item(event)
        if _is_call(item):
            self._open[str(item.get("id"))] = str(item.get("tool"))
        self._notice("item/started", item=item)

    def _item_completed(self, event: JsonObject) -> None:
        item = _item(event)
        if item.get("type") == "error":
            self._notice("warning", message=item.get("message"))
            return
        if _is_call(item):
            tool = self._open.pop(str(item.get("id")), str(item.get("tool")))
            if item.get("result") is None:
                self._tell_dropped(str(item.get("id")), tool)
        self._notice("item/completed", item=item)

    def _tell_dropped(self, call_id: str, tool: str) -> None:
        # Its own id of a call reaches no host, so which receipt it was is not known here.
        self._record.event("call_result_dropped", call_id=call_id, tool=tool, receipt_id=None)

    def _count(self, usage: object) -> None:
        counts = usage if isinstance(usage, dict) else {}
        self.total = {name: count if type(count := counts.get(name)) is int else 0 for name in _COUNTS}
        before = {} if self._resumed is None else self._before.get(self._watch.thread_id)
        if before is None:
            return  # of a thread that another host process began, the stream tells only the sum
        own = {name: count - before.get(name, 0) for name, count in self.total.items()}
        report: JsonObject = {"total": _report(self.total), "last": _report(own)}
        self._watch.usage.update(self._watch.thread_id, report, earlier=False)


def _report(counts: Counts) -> JsonObject:
    report: JsonObject = {_camel(name): count for name, count in counts.items()}
    return report | {"totalTokens": counts["input_tokens"] + counts["output_tokens"]}


def _error_class(message: object) -> JsonValue:
    """Codex's own error class, as far as the text of a failure names the provider's status."""
    if not isinstance(message, str):
        return None
    if _HIGH_DEMAND in message:
        return "internalServerError"
    found = _STATUS.search(message)
    return None if found is None else {"httpConnectionFailed": {"httpStatusCode": int(found.group(1))}}


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "mcpToolCall" and item.get("server") == SERVER


def _item(event: JsonObject) -> dict[str, Any]:
    item = event.get("item")
    fields = item if isinstance(item, dict) else {}
    return {
        _camel(key): _camel(value) if key == "type" and isinstance(value, str) else value
        for key, value in fields.items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
