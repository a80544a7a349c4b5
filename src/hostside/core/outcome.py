"""Steps 10 and 11 of a call: contract, bounds, redaction, and the words of a receipt (design §4, D22)."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from hostside.core.call import ToolFailure, ToolResult
from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, compact, snapshot
from hostside.core.redaction import Redactor
from hostside.core.registry import RegisteredTool
from hostside.errors import Effect, FailureCode, ToolFailed

MAX_RECEIPT_TEXT = 200
MAX_RECEIPT_BYTES = 4_000
CUT = "…[cut: {} more bytes]"


def checked(tool: RegisteredTool, result: object, *, state_changing: bool) -> ToolResult:
    """Return the executor's result with a canonical private `structured`; raise ToolFailed for a broken contract.

    A result that breaks its own schema is a bug of the tool, told apart from an expected failure (R-019).
    """
    lost = Effect.UNKNOWN if state_changing else Effect.NONE
    if not isinstance(result, ToolResult) or result.failure is not None:
        raise _broken(tool, f"it returned {type(result).__name__} where a ToolResult is due", lost)
    try:
        structured = snapshot(result.structured)
    except JsonRejected as exc:
        raise _broken(tool, f"{exc.pointer or '/'}: {exc.reason}", lost) from None
    if not isinstance(structured, dict):
        raise _broken(tool, "its result is not an object", lost)
    violations = tool.output.violations(structured)
    if violations:
        effect = result.effect if state_changing else Effect.NONE
        raise _broken(tool, violations[0].sentence(), effect, [item.detail() for item in violations])
    return replace(result, structured=structured)


def bounded(tool: RegisteredTool, result: ToolResult, redactor: Redactor) -> ToolResult:
    """Return the result without known secrets and within the tool's `result_bytes` of text.

    Tools page by themselves; this is the last bound: the longest texts are cut, with a mark, and `truncated` is set
    where the tool's contract has it.
    """
    cleaned = redactor.known_value(result.structured)
    assert isinstance(cleaned, dict)
    limit = tool.spec.result_bytes
    excess = len(compact(cleaned).encode()) - limit
    if excess <= 0:
        return replace(result, structured=cleaned)
    properties = tool.output.document["properties"]
    if isinstance(properties, dict) and "truncated" in properties:
        cleaned["truncated"] = True
    for _ in range(100):
        excess = len(compact(cleaned).encode()) - limit
        if excess <= 0:
            return replace(result, structured=cleaned)
        if not _cut_longest(cleaned, excess):
            break
    effect = result.effect
    raise ToolFailed(
        FailureCode.TOOL_FAILED,
        f"The result of {tool.spec.name} is larger than {limit} bytes and cannot be cut.",
        remedy="Ask for less: narrow the arguments or use its limit.",
        effect=effect,
    )


def redacted_failure(failure: ToolFailure, redactor: Redactor) -> ToolFailure:
    """Return the failure without known or secret-shaped text."""
    details = tuple(redactor.object(dict(detail)) for detail in failure.details)
    return replace(
        failure, message=redactor.text(failure.message), remedy=redactor.text(failure.remedy), details=details
    )


def redacted_arguments(tool: RegisteredTool | None, arguments: JsonValue, redactor: Redactor) -> JsonValue:
    """Return arguments as a receipt keeps them: free text as hash and size, long text cut, secrets removed (C-21)."""
    copy = snapshot(arguments)
    for pointer in tool.spec.free_text if tool is not None else ():
        _replace_at(copy, pointer.split("/")[1:])
    short = _shorten(redactor.value(copy))
    if len(compact(short).encode()) <= MAX_RECEIPT_BYTES:
        return short
    return {"sha256": hashlib.sha256(compact(short).encode()).hexdigest(), "bytes": len(compact(short).encode())}


def sha256_of(text: str) -> tuple[str, int]:
    """Return the SHA-256 and the size in bytes of a text."""
    raw = text.encode()
    return hashlib.sha256(raw).hexdigest(), len(raw)


def _broken(tool: RegisteredTool, what: str, effect: Effect, details: Iterable[JsonObject] = ()) -> ToolFailed:
    return ToolFailed(
        FailureCode.TOOL_CRASHED,
        f"{tool.spec.name} broke its own result contract: {what}",
        remedy="This is a bug of the tool, not of the call. Report it to the operator.",
        effect=effect,
        details=[{"rule": "output_schema"}, *details],
    )


def _leaves(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterable[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))


def _cut_longest(root: JsonObject, excess: int) -> bool:
    path, text = max(_leaves(root), key=lambda leaf: len(leaf[1]), default=((), ""))
    if len(text) < 200:
        return False
    keep = max(50, len(text) - excess - 60) if len(text) > excess else len(text) // 2
    holder: JsonValue = root
    for part in path[:-1]:
        holder = holder[part]  # type: ignore[index]
    cut = text[:keep].removesuffix("…")
    holder[path[-1]] = cut + CUT.format(len(text.encode()) - len(cut.encode()))  # type: ignore[index]
    return True


def _replace_at(value: JsonValue, parts: list[str]) -> None:
    if not parts or value is None:
        return
    head, rest = parts[0], parts[1:]
    if head == "*" and isinstance(value, list):
        for item in value:
            _replace_at(item, rest)
        return
    if not isinstance(value, dict) or head not in value:
        return
    if rest:
        _replace_at(value[head], rest)
        return
    item = value[head]
    if item is not None:
        text = item if isinstance(item, str) else compact(item)
        sha256, size = sha256_of(text)
        value[head] = {"sha256": sha256, "bytes": size}


def _shorten(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value if len(value) <= MAX_RECEIPT_TEXT else value[:MAX_RECEIPT_TEXT] + f"…[{len(value)} characters]"
    if isinstance(value, list):
        return [_shorten(item) for item in value[:50]]
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in list(value.items())[:50]}
    return value
