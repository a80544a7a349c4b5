"""The boundary: every call of every edge goes through `Gateway.call` (design §4). One Gateway serves one Session."""

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import anyio

from hostside.core import failures
from hostside.core.admission import Permit, Trace, admit
from hostside.core.approval import approve
from hostside.core.attempt import Attempt, finished_event, started_event
from hostside.core.call import CallContext, ToolCall, ToolFailure, ToolResult
from hostside.core.canonical import JsonObject, JsonValue, snapshot
from hostside.core.journal import effect_is_unknown, journal_keys, replayed, stored
from hostside.core.observers import ObserverQueue
from hostside.core.outcome import bounded, checked, redacted_failure
from hostside.core.rate import CallRate
from hostside.core.receipt import Approver, Finished, JournalEntry, Observation, ReceiptLog, Started
from hostside.core.redaction import Redactor
from hostside.core.serialization import KeyedLocks
from hostside.core.session import Session
from hostside.errors import Effect, FailureCode, ReceiptUnavailable, ToolFailed, ToolRefused

_log = logging.getLogger(__name__)
EventSink = Callable[[str, Mapping[str, JsonValue]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a Gateway gets from the host: ports and the world. One Host serves many sessions.

    `is_open` says whether a session may still act, whichever process ended it; it is asked at each call.
    """

    receipts: ReceiptLog
    approver: Approver
    redactor: Redactor
    locks: KeyedLocks
    observers: ObserverQueue
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    new_id: Callable[[str], str]
    event: EventSink
    is_open: Callable[[str], bool]


class Gateway:
    """Runs the calls of one session. `call` raises nothing but cancellation; every call leaves exactly one receipt."""

    def __init__(self, session: Session, host: Host) -> None:
        self.session = session
        self._host = host
        self._closed: str | None = None
        self._in_flight = KeyedLocks()
        self._rate = CallRate(session.policy.calls_per_minute, host.monotonic)

    def close(self, reason: str) -> None:
        """Refuse every later call with `session_closed`. Calls in flight end by cancellation of their edge."""
        self._closed = self._closed or reason

    async def call(self, call: ToolCall) -> ToolResult:
        """Run the steps of design §4 and return the result or the failure, with the id of its receipt."""
        host = self._host
        attempt = Attempt(call=call, receipt_id=host.new_id("rc"), at=host.now(), began=host.monotonic(), trace=Trace())
        host.event("tool_call_started", attempt.ids(self.session))
        try:
            permit = self._admit(attempt)
            if permit.state_changing:
                return await self._change(attempt, permit)
            return await self._read(attempt, permit)
        except ToolRefused as refused:
            return self._close_recorded(attempt, ToolResult(failure=ToolFailure.of_refusal(refused)))

    def _admit(self, attempt: Attempt) -> Permit:
        try:
            self._check_open()
            self._rate.take()
            return admit(self.session, attempt.call, attempt.trace)
        except ToolRefused:
            raise
        except Exception:  # a check that breaks must refuse, whatever broke (design §4)
            self._log_crash("check crashed", attempt.receipt_id, attempt.tool_name)
            raise failures.check_crashed() from None

    async def _read(self, attempt: Attempt, permit: Permit) -> ToolResult:
        self._require_receipts()
        await self._approve(attempt, permit)
        result = ToolResult(failure=failures.cancelled(Effect.NONE))
        try:
            result = await self._execute(permit, attempt)
        finally:
            result = self._close_recorded(attempt, result)
        return result

    async def _change(self, attempt: Attempt, permit: Permit) -> ToolResult:
        keys = journal_keys(attempt.call, permit)
        attempt.call_key = keys.own
        async with self._in_flight.hold(keys.all):
            for key in keys.all:
                entry = await self._journal(key)
                answer = None if entry is None else self._replay(attempt, permit, key, entry)
                if answer is not None:
                    return answer
            await self._approve(attempt, permit)
            async with self._host.locks.hold(self._exclusive_keys(permit)):
                self._check_open()  # the wait may have outlived the session
                return await self._run_started(attempt, permit, keys.all)

    async def _run_started(self, attempt: Attempt, permit: Permit, keys: tuple[str, ...]) -> ToolResult:
        started = started_event(self.session, attempt, self._host.redactor)
        # Shielded, both of them: a caller that goes away must not leave half a receipt.
        with anyio.CancelScope(shield=True):
            try:
                await self._host.receipts.started(started, journal_keys=keys)
            except ReceiptUnavailable:
                raise failures.unrecordable() from None
        result = ToolResult(failure=failures.cancelled(Effect.UNKNOWN))
        try:
            result = await self._execute(permit, attempt)
        finally:
            with anyio.CancelScope(shield=True):
                result = await self._close_started(attempt, started, result)
        return result

    async def _execute(self, permit: Permit, attempt: Attempt) -> ToolResult:
        """Run the executor and settle its result. Raises only cancellation; needs a Permit, so no check can be skipped."""
        spec = permit.tool.spec
        lost = Effect.UNKNOWN if permit.state_changing else Effect.NONE
        context = self._context(permit, attempt)
        try:
            with anyio.move_on_after(spec.timeout_seconds) as deadline:
                returned = await permit.tool.tool.execute(_private(permit.arguments), context)
                result = checked(permit.tool, returned, state_changing=permit.state_changing)
                result = await self._verified(permit, context, result)
                # An executor that swallows its cancellation is late all the same.
                if not deadline.cancel_called:
                    return bounded(permit.tool, result, self._host.redactor)
        except ToolRefused as refused:
            return ToolResult(failure=ToolFailure.of_refusal(refused))
        except ToolFailed as failed:
            return ToolResult(failure=ToolFailure.of_failure(failed), exit_code=failed.exit_code)
        except Exception:  # a tool's bug: its text may hold anything, so none of it leaves the host
            self._log_crash("tool crashed", attempt.receipt_id, spec.name)
            return ToolResult(failure=failures.crashed(spec.name, lost))
        return ToolResult(failure=failures.timed_out(spec.name, spec.timeout_seconds, lost))

    async def _verified(self, permit: Permit, context: CallContext, result: ToolResult) -> ToolResult:
        verify = permit.tool.tool.verify
        if verify is None or not permit.state_changing:
            return result
        try:
            holds = await verify(_private(permit.arguments), context, result)
        except (ToolRefused, ToolFailed):  # it could not look, which the agent can bring about: no crash to log
            holds = False
        except Exception:  # a verifier that breaks has verified nothing
            self._log_crash("verifier crashed", context.receipt_id, permit.tool.spec.name)
            holds = False
        if holds:
            return replace(result, effect=Effect.VERIFIED)
        raise ToolFailed(
            FailureCode.EFFECT_UNKNOWN,
            f"{permit.tool.spec.name} reported success, but its effect was not found.",
            remedy="Read the current state before trying again.",
            effect=Effect.UNKNOWN,
        )

    def _log_crash(self, what: str, receipt_id: str, tool: str) -> None:
        """Log the exception being handled. Its text is foreign and may hold a secret, so it is redacted first (R-133)."""
        said = self._host.redactor.text(traceback.format_exc())
        _log.error("%s: %s", what, said, extra={"receipt_id": receipt_id, "tool": tool})

    async def _approve(self, attempt: Attempt, permit: Permit) -> None:
        await approve(self.session, attempt, permit, self._host.approver, self._host.redactor)

    async def _journal(self, key: str) -> JournalEntry | None:
        try:
            return await self._host.receipts.journal(self.session.session_id, key)
        except ReceiptUnavailable:
            raise failures.unrecordable() from None

    def _replay(self, attempt: Attempt, permit: Permit, key: str, entry: JournalEntry) -> ToolResult | None:
        if entry.tool != permit.tool.spec.name or entry.fingerprint != permit.fingerprint:
            raise failures.duplicate_key()
        answer = effect_is_unknown(permit) if entry.outcome is None else replayed(permit, key, entry.outcome)
        if answer is None:
            return None
        attempt.replay_of = entry.receipt_id
        return self._close_recorded(attempt, answer)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise failures.closed(self._closed)
        if self._host.now() >= self.session.expires_at:
            raise failures.closed("its time is over")
        if not self._host.is_open(self.session.session_id):
            raise failures.closed("it was revoked")

    def _require_receipts(self) -> None:
        try:
            self._host.receipts.ensure_recordable()
        except ReceiptUnavailable:
            raise failures.unrecordable() from None

    def _exclusive_keys(self, permit: Permit) -> tuple[str, ...]:
        session, keys = self.session, []
        if session.workspace is not None and (permit.scope.paths or permit.scope.repository):
            keys.append(f"workspace:{session.workspace.id}")
        if permit.scope.issue_id is not None:
            keys.append(f"issue:{permit.scope.issue_id}")
        return tuple(keys) or (f"session:{session.session_id}",)

    def _context(self, permit: Permit, attempt: Attempt) -> CallContext:
        session = self.session
        return CallContext(
            session_id=session.session_id,
            run_id=session.run_id,
            receipt_id=attempt.receipt_id,
            operation_id=permit.operation_id,
            principal=session.principal,
            issue=session.issue,
            workspace=session.workspace,
            scope=permit.scope,
            timeout_seconds=permit.tool.spec.timeout_seconds,
            progress=attempt.call.progress,
        )

    def _close_recorded(self, attempt: Attempt, result: ToolResult) -> ToolResult:
        """End a call that has no durable `started` row: one combined, batched event."""
        started = started_event(self.session, attempt, self._host.redactor)
        result, finished = self._final(attempt, result)
        try:
            self._host.receipts.record(started, finished)
        except ReceiptUnavailable:
            _log.error("receipt lost: the log cannot be written", extra={"receipt_id": attempt.receipt_id})
            unrecorded = ToolResult(failure=ToolFailure.of_refusal(failures.unrecordable()))
            result, finished = self._final(attempt, unrecorded)
        self._tell(attempt, started, finished, result)
        return result

    async def _close_started(self, attempt: Attempt, started: Started, result: ToolResult) -> ToolResult:
        """End a call whose `started` row is durable: the outcome is durable before the reply (D7)."""
        result, finished = self._final(attempt, result)
        try:
            await self._host.receipts.finished(finished, outcome=stored(result))
        except ReceiptUnavailable:
            _log.error("receipt unfinished: the log cannot be written", extra={"receipt_id": attempt.receipt_id})
            result, finished = self._final(attempt, ToolResult(failure=failures.unfinished(attempt.tool_name)))
        self._tell(attempt, started, finished, result)
        return result

    def _final(self, attempt: Attempt, result: ToolResult) -> tuple[ToolResult, Finished]:
        failure = result.failure
        if failure is not None:
            failure = redacted_failure(replace(failure, receipt_id=attempt.receipt_id), self._host.redactor)
        result = replace(result, failure=failure, receipt_id=attempt.receipt_id, replay_of=attempt.replay_of)
        ended = self._host.monotonic()
        return result, finished_event(self.session, attempt, result, at=self._host.now(), ended=ended)

    def _tell(self, attempt: Attempt, started: Started, finished: Finished, result: ToolResult) -> None:
        facts: JsonObject = {
            **attempt.ids(self.session),
            "outcome": finished.outcome.value,
            "code": None if finished.code is None else finished.code.value,
            "effect": finished.effect.value,
            "duration_ms": finished.duration_ms,
        }
        self._host.event("tool_call_finished", facts)
        self._host.observers.notify(
            Observation(
                started=started,
                finished=finished,
                arguments=snapshot(attempt.trace.arguments),
                result=_private(stored(result)),
            )
            for _ in range(len(self._host.observers))
        )


def _private(value: JsonObject) -> JsonObject:
    copy = snapshot(value)
    assert isinstance(copy, dict)
    return copy
