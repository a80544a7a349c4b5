"""One call and its result: what goes into the boundary and what comes out (design §4, D22)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from hostside.core.canonical import JsonObject, JsonValue, compact
from hostside.core.issue import Issue
from hostside.core.scope import NarrowedScope
from hostside.errors import REFUSED, Effect, FailureCode, ToolFailed, ToolRefused

MAX_FAILURE_BYTES = 4_000
MAX_RESULT_BYTES = 40_000

#: `(done, total, message)`; edges turn it into their own progress form. Never reaches the model.
Progress = Callable[[float, float | None, str], Awaitable[None]]


async def no_progress(_done: float, _total: float | None, _message: str) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A request to run a tool, as an edge understood its frame.

    `arguments` is the raw JSON value: also null, a list or text reach the boundary and get a receipt (C-05).
    `idempotency_key` is the caller's own key for this operation; `delivery_key` marks one delivery of one call, so that
    a repeated frame is recognised (Claude's `claudecode/toolUseId`). Neither is ever the JSON-RPC id (D23).
    """

    name: str
    arguments: object
    idempotency_key: str | None = None
    delivery_key: str | None = None
    progress: Progress = no_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The one checkout of a session. `root` is an absolute real path, `branch` the branch the host assigned."""

    id: str
    root: str
    branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Host facts for an executor, apart from its arguments, so that no argument can replace one (R-020).

    Never holds a credential.
    """

    session_id: str
    run_id: str | None
    receipt_id: str
    operation_id: str
    principal: str
    issue: Issue | None
    workspace: Workspace | None
    scope: NarrowedScope
    timeout_seconds: float
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """Why a call was refused or failed. `details` are JSON objects; `receipt_id` finds the record."""

    code: FailureCode
    message: str
    remedy: str
    effect: Effect
    blocker: str | None = None
    retry_after_ms: int | None = None
    details: tuple[Mapping[str, JsonValue], ...] = ()
    receipt_id: str | None = None

    @property
    def refused(self) -> bool:
        """True when no work was done."""
        return self.code in REFUSED

    def as_object(self) -> JsonObject:
        """Return `{"failure": {...}}` with every field of the contract."""
        return {
            "failure": {
                "code": self.code.value,
                "message": self.message,
                "remedy": self.remedy,
                "effect": self.effect.value,
                "retry_after_ms": self.retry_after_ms,
                "details": [dict(detail) for detail in self.details],
                "receipt_id": self.receipt_id,
            }
        }

    @staticmethod
    def of_refusal(refused: ToolRefused) -> "ToolFailure":
        """Return the failure of a refusal: effect `none` by definition."""
        details: list[Mapping[str, JsonValue]] = [dict(detail) for detail in refused.details]
        if refused.blocker is not None:
            details.insert(0, {"blocker": refused.blocker})
        return ToolFailure(
            code=refused.code,
            message=str(refused),
            remedy=refused.remedy,
            effect=Effect.NONE,
            blocker=refused.blocker,
            retry_after_ms=refused.retry_after_ms,
            details=tuple(details),
        )

    @staticmethod
    def of_failure(failed: ToolFailed) -> "ToolFailure":
        """Return the failure of work that began."""
        return ToolFailure(
            code=failed.code,
            message=str(failed),
            remedy=failed.remedy,
            effect=failed.effect,
            retry_after_ms=failed.retry_after_ms,
            details=tuple(dict(detail) for detail in failed.details),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Success with `structured`, or a `failure`. Executors return success; they raise for everything else.

    `effect` is what the executor knows it changed; only a verifier makes it `verified`.
    """

    structured: JsonObject = field(default_factory=dict)
    effect: Effect = Effect.NONE
    failure: ToolFailure | None = None
    receipt_id: str | None = None
    replay_of: str | None = None
    exit_code: int | None = None

    @property
    def ok(self) -> bool:
        """True for success."""
        return self.failure is None

    def text(self) -> str:
        """Return what a model reads: compact JSON of `structured`, or of the failure in at most 4,000 bytes (D22)."""
        return failure_text(self.failure) if self.failure is not None else compact(self.structured)


def failure_text(failure: ToolFailure) -> str:
    """Return the failure as compact JSON of at most `MAX_FAILURE_BYTES`; details go first, then the message is cut."""
    value = failure.as_object()
    text = compact(value)
    body = value["failure"]
    assert isinstance(body, dict)
    details = body["details"]
    assert isinstance(details, list)
    while len(text.encode()) > MAX_FAILURE_BYTES and details:
        details.pop()
        text = compact(value)
    length = 2_000
    while len(text.encode()) > MAX_FAILURE_BYTES and length > 50:
        body["message"] = str(body["message"])[:length]
        body["remedy"] = str(body["remedy"])[:length]
        length //= 2
        text = compact(value)
    return text
