"""Receipts: two events for each call, appended and never changed (D7, design §5.1), and the ports that keep them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from hostside.core.canonical import JsonObject, JsonValue
from hostside.errors import Effect, FailureCode


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What was asked, by whom, under which snapshot. `arguments_redacted` keeps hashes of free text, never the text."""

    receipt_id: str
    at: datetime
    session_id: str
    run_id: str | None
    issue_id: str | None
    edge: str
    principal: str
    workspace_id: str | None
    registry_fingerprint: str
    tool: str
    tool_version: str | None
    call_key: str | None
    operation_id: str
    arguments_fingerprint: str | None
    arguments_redacted: JsonValue
    approval_id: str | None = None
    replay_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How it ended. `result_sha256` and `result_bytes` are of the text that the caller got."""

    receipt_id: str
    at: datetime
    session_id: str
    outcome: Outcome
    code: FailureCode | None
    effect: Effect
    exit_code: int | None
    result_sha256: str
    result_bytes: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What is durable of an earlier call with the same key. `outcome` is None while no `finished` event exists."""

    receipt_id: str
    tool: str
    fingerprint: str
    outcome: Mapping[str, JsonValue] | None


class ReceiptLog(Protocol):
    """Durable receipts and the journal of state-changing calls. Implemented by the store; one per host."""

    async def started(self, event: Started, *, journal_keys: tuple[str, ...]) -> None:
        """Make the row and its journal keys durable before returning; a key that exists now points to this call.

        Raises ReceiptUnavailable; then nothing is kept.
        """

    async def finished(self, event: Finished, *, outcome: JsonObject) -> None:
        """Make the outcome durable before returning. Raises ReceiptUnavailable."""

    def record(self, started: Started, finished: Finished) -> None:
        """Append one combined event for a read or a refusal. Batched: durable within 100 ms, and never after a later
        state-changing row (D7). Raises ReceiptUnavailable at once when the log is known to be broken."""

    def ensure_recordable(self) -> None:
        """Raise ReceiptUnavailable when the log is known to be broken. Cheap: no I/O."""

    async def journal(self, session_id: str, key: str) -> JournalEntry | None:
        """Return the latest call under this key, or None. Raises ReceiptUnavailable."""


class ApprovalDecision(StrEnum):
    """What a person or a policy said."""

    ALLOWED = "allowed"
    DENIED = "denied"
    PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """Exactly one call, bound to its fingerprint (R-062)."""

    fingerprint: str
    tool: str
    tool_version: str | None
    session_id: str
    run_id: str | None
    workspace_id: str | None
    principal: str
    edge: str
    arguments_redacted: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """The decision and its record. `approval_id` is None where nothing could be asked."""

    decision: ApprovalDecision
    approval_id: str | None
    reason: str


class Approver(Protocol):
    """Decides one request within a bounded wait."""

    async def decide(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Return the decision. An exception counts as a denial (R-063)."""


class NobodyToAsk:
    """The approver of a surface that nobody watches: denies (R-063)."""

    async def decide(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Deny."""
        return ApprovalAnswer(
            decision=ApprovalDecision.DENIED, approval_id=None, reason="nobody can answer on this surface"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finished call as an observer sees it: its own copy of everything."""

    started: Started
    finished: Finished
    arguments: JsonValue
    result: JsonObject


class Observer(Protocol):
    """Told exactly once per attempt, after the receipt. What it raises or edits changes nothing (R-144, R-145)."""

    def observe(self, observation: Observation) -> None:
        """Take note. Must return quickly; it runs on the caller's loop."""
