"""Claude Code's event stream (`--output-format stream-json`), read by the host: untrusted, and never more than a report.

What decides about the run is taken from typed fields alone. Text of the model or of a tool is passed on shortened and
redacted, for people to read.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.gateway import EventSink
from hostside.worker.claude_command import SERVER, TOOL_PREFIX

MESSAGE_CHARACTERS = 200
_NAME_CHARACTERS = 100
_LISTED = 20

Message = Mapping[str, Any]


def parse_event(line: bytes) -> Message | None:
    """One line of the stream; None when it is no JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """The first event: what the agent found. `servers` is a status for each MCP server."""

    session_id: str | None
    model: str | None
    version: str | None
    servers: Mapping[str, str]
    tools: frozenset[str]

    @staticmethod
    def of(message: Message) -> "Init":
        servers = {
            name: short(server.get("status"))
            for server in _objects(message.get("mcp_servers"))
            if (name := _text(server.get("name"))) is not None
        }
        tools = message.get("tools")
        return Init(
            session_id=_text(message.get("session_id")),
            model=_text(message.get("model")),
            version=_text(message.get("claude_code_version")),
            servers=servers,
            tools=frozenset(tool for tool in tools if isinstance(tool, str))
            if isinstance(tools, list)
            else frozenset(),
        )

    @property
    def connected(self) -> bool:
        """The agent has found the host's MCP server."""
        return self.servers.get(SERVER) == "connected"

    def problem(self, *, listed: Iterable[str], native: Iterable[str]) -> str | None:
        """Why the run may not go on: its tools are not all there, or there are others (D24). None when all is well."""
        if not self.connected:
            return f"the MCP server {SERVER} is {self.servers.get(SERVER, 'absent')}"
        expected = {TOOL_PREFIX + name for name in listed}
        if missing := expected - self.tools:
            return f"the agent does not offer {_names(missing)}"
        # Its own tools are bounded by the command line; one more would work around what the run was configured for.
        if surplus := self.tools - expected - set(native):
            return f"the agent offers tools that the run does not allow: {_names(surplus)}"
        if others := self.servers.keys() - {SERVER}:
            return f"the agent is connected to other MCP servers: {_names(others)}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The last event of a turn. `api_status`: what the model's provider answered when that ended the turn."""

    subtype: str
    is_error: bool
    terminal_reason: str | None
    api_status: int | None
    api_failed: bool
    text: str
    usage: JsonObject

    @staticmethod
    def of(message: Message) -> "Result":
        errors = message.get("errors")
        text = message.get("result") or (errors if isinstance(errors, list) else "")
        return Result(
            subtype=short(message.get("subtype")),
            # Absent is not success: only the word itself is.
            is_error=message.get("is_error") is not False,
            terminal_reason=_text(message.get("terminal_reason")),
            api_status=_integer(message.get("api_error_status")),
            api_failed=message.get("terminal_reason") == "api_error",
            text="; ".join(map(str, text)) if isinstance(text, list) else str(text),
            usage=_usage(message),
        )


class EventReporter:
    """Turns the stream into the run's own events, and keeps what the outcome needs."""

    def __init__(self, event: EventSink, redact: Callable[[str], str]) -> None:
        self._event = event
        self._redact = redact
        self._denied: set[str] = set()
        self.init: Init | None = None
        self.result: Result | None = None
        self.unreadable = 0
        """Lines that were no JSON objects."""

    def take(self, line: bytes) -> Message | None:
        """Read one line and return it parsed, None when it is no JSON object. Never raises for what the agent wrote."""
        message = parse_event(line)
        if message is None:
            self.unreadable += 1
            return None
        kind = message.get("type")
        if kind == "system":
            self._system(message)
        elif kind == "assistant":
            self._assistant(message)
        elif kind == "result":
            self._end(message)
        return message

    def _system(self, message: Message) -> None:
        subtype = message.get("subtype")
        if subtype == "init":
            self.init = self.init or Init.of(message)
        elif subtype == "api_retry":
            facts: JsonObject = {
                name: _number(message.get(name)) for name in ("attempt", "max_retries", "error_status")
            }
            self._event("agent_model_retry", facts)
        elif subtype == "permission_denied":
            self._permission_denied(message)

    def _assistant(self, message: Message) -> None:
        body = message.get("message")
        for block in _objects(body.get("content") if isinstance(body, dict) else None):
            if block.get("type") == "text":
                self._event("agent_message", {"text": self._shown(block.get("text"))})
            elif block.get("type") == "tool_use":
                self._tool_use(block)

    def _tool_use(self, block: Message) -> None:
        name = short(block.get("name"))
        # The host's own tools have receipts; of the others this report is all there is (D9).
        if not name.startswith(TOOL_PREFIX):
            self._event("agent_native_tool", {"tool": name, "tool_use_id": short(block.get("id"))})

    def _permission_denied(self, denial: Message) -> None:
        use = short(denial.get("tool_use_id"))
        # Told when it happens, and again in the result.
        if use not in self._denied:
            self._denied.add(use)
            self._event("agent_permission_denied", {"tool": short(denial.get("tool_name")), "tool_use_id": use})

    def _end(self, message: Message) -> None:
        for denial in _objects(message.get("permission_denials")):
            self._permission_denied(denial)
        self.result = Result.of(message)
        self._event("agent_usage", self.result.usage)

    def _shown(self, text: object) -> str:
        # Redacted before it is cut: half a secret would not be recognised.
        shown = self._redact(_text(text) or "")
        return shown if len(shown) <= MESSAGE_CHARACTERS else shown[: MESSAGE_CHARACTERS - 1] + "…"


def short(value: object) -> str:
    """A name or a word from the stream, bounded; empty when it is no text."""
    return (_text(value) or "")[:_NAME_CHARACTERS]


def _usage(message: Message) -> JsonObject:
    usage = message.get("usage")
    counts: JsonObject = {}
    for name in ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"):
        counts[name] = _number(usage.get(name)) if isinstance(usage, dict) else None
    counts["model_turns"] = _integer(message.get("num_turns"))
    counts["cost_usd"] = _number(message.get("total_cost_usd"))
    counts["duration_ms"] = _number(message.get("duration_ms"))
    return {name: count for name, count in counts.items() if count is not None}


def _number(value: object) -> JsonValue:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    # Half a surrogate pair is legal in what JavaScript writes, and nowhere else.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _objects(value: object) -> tuple[Message, ...]:
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else ""
    return ", ".join(map(short, ordered[:_LISTED])) + more
