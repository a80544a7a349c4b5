"""A caller may lose an outcome or send a call twice: what is replayed, what runs again, what must not (D23, step 6)."""

from collections.abc import Mapping
from dataclasses import dataclass

from hostside.core.admission import Permit
from hostside.core.call import ToolCall, ToolFailure, ToolResult
from hostside.core.canonical import JsonObject, JsonValue, snapshot
from hostside.errors import Effect, FailureCode

SAME = "same:"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalKeys:
    """`own` is the caller's key, if it sent one; `all` every key under which this call is looked up and kept."""

    own: str | None
    all: tuple[str, ...]


def journal_keys(call: ToolCall, permit: Permit) -> JournalKeys:
    """Return the keys of a state-changing call.

    A delivery key recognises one delivery that came twice; an idempotency key is the caller's word for one operation.
    A write that is external and not idempotent is also kept by its content, unless the caller sent its own key: a
    wanted second post needs a new one (D23).
    """
    own = None if call.idempotency_key is None else f"key:{call.idempotency_key}"
    keys = [key for key in (own, None if call.delivery_key is None else f"delivery:{call.delivery_key}") if key]
    if permit.tool.spec.writes_once and own is None:
        keys.append(f"{SAME}{permit.tool.spec.name}:{permit.fingerprint}")
    return JournalKeys(own=keys[0] if keys else None, all=tuple(keys))


def stored(result: ToolResult) -> JsonObject:
    """Return a result as the journal keeps it."""
    value: JsonObject = {"structured": result.structured, "effect": result.effect.value}
    if result.failure is not None:
        value["failure"] = {**_body(result.failure), "blocker": result.failure.blocker}
    return value


def replayed(permit: Permit, key: str, outcome: Mapping[str, JsonValue]) -> ToolResult | None:
    """Return what a repeated call is answered with, or None when it may run again.

    Under the caller's own key the stored outcome is the answer, whatever it was. By content alone only a success is
    replayed (with `unchanged`), a failure without effect may be tried again, and an unknown effect must not be.
    """
    failure = outcome.get("failure")
    if failure is None:
        structured = snapshot(outcome["structured"])
        assert isinstance(structured, dict)
        if permit.tool.spec.writes_once:
            structured["unchanged"] = True
        return ToolResult(structured=structured)
    assert isinstance(failure, dict)
    if key.startswith(SAME):
        return effect_is_unknown(permit) if failure["effect"] == Effect.UNKNOWN.value else None
    return ToolResult(failure=_restored(failure))


def effect_is_unknown(permit: Permit) -> ToolResult:
    """Return the answer to a repeat of a call whose end nobody knows: it is not sent a second time."""
    return ToolResult(
        failure=ToolFailure(
            code=FailureCode.EFFECT_UNKNOWN,
            message=f"An earlier {permit.tool.spec.name} with these arguments ended without a known outcome.",
            remedy="Read the current state; repeat only what is missing, with changed arguments or a new key.",
            effect=Effect.UNKNOWN,
        )
    )


def _body(failure: ToolFailure) -> JsonObject:
    body = failure.as_object()["failure"]
    assert isinstance(body, dict)
    return body


def _restored(value: Mapping[str, JsonValue]) -> ToolFailure:
    retry, details, blocker = value["retry_after_ms"], value["details"], value.get("blocker")
    assert isinstance(details, list)
    return ToolFailure(
        code=FailureCode(str(value["code"])),
        message=str(value["message"]),
        remedy=str(value["remedy"]),
        effect=Effect(str(value["effect"])),
        blocker=blocker if isinstance(blocker, str) else None,
        retry_after_ms=retry if isinstance(retry, int) else None,
        details=tuple(detail for detail in details if isinstance(detail, dict)),
    )
