"""What Codex says of its own thread: its turn's end, its usage, its own commands; and what the run's record keeps of it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.gateway import EventSink
from hostside.core.redaction import Redactor
from hostside.worker.agent import AgentOutcome, EndState
from hostside.worker.codex_frames import Notification

_TEXT = 2_000
_RATE_LIMITS = ("usageLimitExceeded", "rateLimitExceeded")
_UNAVAILABLE = ("internalServerError", "serverOverloaded", "flexUnavailable", "policyCapacityUnavailable")
_USAGE = {
    "inputTokens": "input_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheWriteInputTokens": "cache_write_input_tokens",
    "outputTokens": "output_tokens",
    "reasoningOutputTokens": "reasoning_output_tokens",
    "totalTokens": "total_tokens",
}


class Recorder:
    """Writes events of the run. Every text is redacted and then cut, so that no cut hides half a secret."""

    def __init__(self, sink: EventSink, redactor: Redactor) -> None:
        self._sink = sink
        self._redactor = redactor

    def event(self, name: str, /, **facts: JsonValue) -> None:
        self._sink(name, {key: self._clean(value) for key, value in facts.items()})

    def text(self, value: object) -> str:
        """`value` as a text that may leave the host; empty for what is no text."""
        return self._redactor.text(value)[:_TEXT] if isinstance(value, str) else ""

    def _clean(self, value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            return [self._clean(item) for item in value[:100]]
        return self.text(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The end of a turn. `info` is Codex's own error class, an open list."""

    status: str
    message: str
    info: object


class Usage:
    """Token counts of this process. Codex reports totals of a thread; what it had before a resume is not ours."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, int]] = {}
        self._total: dict[str, dict[str, int]] = {}

    def update(self, thread_id: str, report: Mapping[str, Any], *, earlier: bool) -> None:
        """Take one report of a thread. `earlier`: of a turn before those of this process."""
        total, last = _counts(report.get("total")), _counts(report.get("last"))
        if thread_id not in self._before:
            before = total if earlier else {key: total[key] - last[key] for key in total}
            self._before[thread_id] = {key: max(0, count) for key, count in before.items()}
        self._total[thread_id] = total

    def as_object(self) -> JsonObject:
        """The counts of all threads, sub-agents included; empty when none was reported."""
        if not self._total:
            return {}
        return {
            key: sum(max(0, total[key] - self._before[thread][key]) for thread, total in self._total.items())
            for key in _USAGE.values()
        }


class ThreadWatch:
    """Follows the notifications of one app-server. `news` is set when the current turn cannot go on or has ended."""

    def __init__(self, record: Recorder, workspace: str, call_completed: Callable[[Mapping[str, Any]], None]) -> None:
        self._record = record
        self._workspace = workspace
        self._call_completed = call_completed
        self._running = False
        self._last_error: Mapping[str, Any] = {}
        self.news = anyio.Event()
        self.usage = Usage()
        self.thread_id = ""
        self.turn_id = ""
        self.end: TurnEnd | None = None
        self.violation: str | None = None
        self._handlers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "error": self._error,
            "item/started": self._item_started,
            "item/completed": self._item_completed,
            "thread/tokenUsage/updated": self._usage,
            "warning": self._warning,
            "configWarning": self._warning,
        }

    @property
    def running(self) -> bool:
        """A turn was started and has not ended."""
        return self._running and self.end is None

    def begin_turn(self) -> None:
        self.news = anyio.Event()
        self.turn_id, self.end, self._running, self._last_error = "", None, True, {}

    def notice(self, frame: Notification) -> None:
        """Take note of one notification; unknown ones mean nothing here."""
        handler = self._handlers.get(frame.method)
        if handler is not None:
            handler(frame.params)

    def check_folder(self, folder: object) -> None:
        """Note a working folder that the agent reported; outside the workspace it ends the run (R-094)."""
        if not isinstance(folder, str) or self.violation is not None:
            return
        path = os.path.normpath(os.path.join(self._workspace, folder))
        if path != self._workspace and not path.startswith(self._workspace.rstrip("/") + "/"):
            self.violation = self._record.text(path)
            self._record.event("boundary_violation", cwd=path, workspace=self._workspace)
            self.news.set()

    def turn_started(self, answer: Mapping[str, Any]) -> None:
        """Take the id of the current turn from the answer to `turn/start`."""
        self.turn_id = _text(_part(answer, "turn"), "id")
        self._record.event("agent_turn_started", thread_id=self.thread_id, turn_id=self.turn_id)

    def _turn_started(self, params: Mapping[str, Any]) -> None:
        # Said in the order of the stream; whoever waits for the answer to `turn/start` may run only later.
        if params.get("threadId") == self.thread_id:
            self.turn_id = _text(_part(params, "turn"), "id")

    def _turn_completed(self, params: Mapping[str, Any]) -> None:
        # Sub-agents have threads of their own, whose turns end too.
        if params.get("threadId") != self.thread_id or not self._running:
            return
        turn = _part(params, "turn")
        error = _part(turn, "error") or self._last_error
        self.end = TurnEnd(
            status=_text(turn, "status"), message=_text(error, "message"), info=error.get("codexErrorInfo")
        )
        self._record.event("agent_turn_completed", turn_id=_text(turn, "id"), status=self.end.status)
        self.news.set()

    def _error(self, params: Mapping[str, Any]) -> None:
        error, retried = _part(params, "error"), params.get("willRetry") is True
        self._record.event("agent_model_retry" if retried else "agent_error", message=_text(error, "message"))
        if not retried and params.get("threadId") == self.thread_id:
            self._last_error = error

    def _item_started(self, params: Mapping[str, Any]) -> None:
        item = _part(params, "item")
        if item.get("type") == "commandExecution":
            self.check_folder(item.get("cwd"))

    def _item_completed(self, params: Mapping[str, Any]) -> None:
        item = _part(params, "item")
        kind = item.get("type")
        if kind == "dynamicToolCall":
            self._call_completed(item)
        elif kind == "commandExecution":
            # The agent's own tools make no receipts; this is what is known of them (D9).
            self.check_folder(item.get("cwd"))
            code = item.get("exitCode")
            self._record.event(
                "agent_native_tool",
                tool="exec_command",
                tool_use_id=_text(item, "id"),
                command=_text(item, "command"),
                cwd=_text(item, "cwd"),
                status=_text(item, "status"),
                exit_code=code if isinstance(code, int) else None,
            )
        elif kind == "fileChange":
            changes = item.get("changes")
            paths = [_text(change, "path") for change in changes if isinstance(change, dict)] if changes else []
            self._record.event(
                "agent_native_tool",
                tool="apply_patch",
                tool_use_id=_text(item, "id"),
                paths=[*paths],
                status=_text(item, "status"),
            )
        elif kind == "agentMessage":
            self._record.event("agent_message", text=_text(item, "text"))

    def _usage(self, params: Mapping[str, Any]) -> None:
        thread_id = _text(params, "threadId")
        # After a resume the last report of the earlier process is sent again, maybe before the thread's id is known here.
        earlier = not self.turn_id or (thread_id == self.thread_id and _text(params, "turnId") != self.turn_id)
        self.usage.update(thread_id, _part(params, "tokenUsage"), earlier=earlier)

    def _warning(self, params: Mapping[str, Any]) -> None:
        self._record.event("agent_warning", message=_text(params, "message") or _text(params, "summary"))


def outcome_of(end: TurnEnd, record: Recorder) -> AgentOutcome:
    """The outcome that a turn's end stands for: `completed`, `stopped`, `rate_limited`, `model_unavailable` (a later
    attempt may succeed), `agent_error` or `no_result`."""
    detail = record.text(end.message)
    if end.status == "completed":
        return AgentOutcome(state=EndState.SUCCEEDED, reason="completed")
    if end.status == "interrupted":
        return AgentOutcome(state=EndState.CANCELLED, reason="stopped", detail=detail or "the turn was interrupted")
    if end.status == "failed":
        return AgentOutcome(state=EndState.FAILED, reason=_failure_reason(end.info), detail=detail)
    return AgentOutcome(state=EndState.FAILED, reason="no_result", detail="the turn ended without a known status")


def _failure_reason(info: object) -> str:
    status = None
    if isinstance(info, dict):
        # One key, the class of the error; its facts tell what the provider answered: nothing, where it was not reached.
        facts = next(iter(info.values()), None)
        status = facts.get("httpStatusCode", 0) if isinstance(facts, dict) else 0
        if status is None or (isinstance(status, int) and status >= 500):
            return "model_unavailable"
    if status == 429 or info in _RATE_LIMITS:
        return "rate_limited"
    return "model_unavailable" if info in _UNAVAILABLE else "agent_error"


def _part(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""


def _counts(report: object) -> dict[str, int]:
    counts = report if isinstance(report, dict) else {}
    return {ours: _count(counts.get(theirs)) for theirs, ours in _USAGE.items()}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
