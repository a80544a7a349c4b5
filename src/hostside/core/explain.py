"""Would a call run, and if not, why: the checks of a call without the call (R-354). Nothing is executed or recorded."""

from dataclasses import dataclass
from enum import StrEnum

from hostside.core import failures
from hostside.core.admission import check_locality, check_scope, resolve, validate
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.policy import authorize, needs_approval
from hostside.core.session import Session
from hostside.errors import FailureCode, ToolRefused

#: In the order of design §4. `journal` is missing: only a real call has a key.
STEPS = ("resolve", "locality", "validate", "authorize", "narrow", "approve")


class CheckOutcome(StrEnum):
    """What one check said. `not_checked`: it needs arguments, and none were given."""

    OK = "ok"
    REFUSED = "refused"
    NOT_CHECKED = "not_checked"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One of `STEPS` and its outcome."""

    step: str
    outcome: CheckOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether a call would run. Where it would not: its code, the blocker's name, why, and what to do instead.

    `checks` holds every step in order; those after a refusal are not reached.
    """

    would_run: bool
    code: FailureCode | None
    blocker: str | None
    message: str | None
    alternative: str | None
    checks: tuple[Check, ...]

    def as_object(self) -> JsonObject:
        """Return the explanation as JSON."""
        checks: list[JsonValue] = [{"step": item.step, "outcome": item.outcome.value} for item in self.checks]
        return {
            "would_run": self.would_run,
            "code": None if self.code is None else self.code.value,
            "blocker": self.blocker,
            "alternative": self.alternative,
            "checks": checks,
            "message": self.message,
        }


def explain(session: Session, name: str, arguments: object | None) -> Explanation:
    """Return what the checks of `session` say of a call. Pure; raises nothing.

    `arguments` None leaves out what depends on them. The session's own end, rate limits, and what only the disk or a
    provider can tell are no part of it.
    """
    outcomes: list[CheckOutcome] = []
    refused: ToolRefused | None = None
    try:
        _walk(session, name, arguments, outcomes)
    except ToolRefused as refusal:
        refused = refusal
    except Exception:  # as in a call: a check that breaks refuses
        refused = failures.check_crashed()
    if refused is not None:
        outcomes.append(CheckOutcome.REFUSED)
    outcomes += [CheckOutcome.NOT_REACHED] * (len(STEPS) - len(outcomes))
    return Explanation(
        would_run=refused is None,
        code=None if refused is None else refused.code,
        blocker=None if refused is None else refused.blocker or refused.code.value,
        message=None if refused is None else str(refused),
        alternative=None if refused is None else refused.remedy,
        checks=tuple(Check(step=step, outcome=outcome) for step, outcome in zip(STEPS, outcomes, strict=True)),
    )


def _walk(session: Session, name: str, raw: object | None, outcomes: list[CheckOutcome]) -> None:
    """Add one outcome for each of `STEPS`, or raise ToolRefused in its place."""
    tool = resolve(session, name)
    outcomes.append(CheckOutcome.OK)
    check_locality(session, tool)
    outcomes.append(CheckOutcome.OK)
    arguments = None if raw is None else validate(tool, raw)
    unknown = CheckOutcome.NOT_CHECKED if arguments is None else CheckOutcome.OK
    outcomes.append(unknown)
    authorize(tool.spec, session.capabilities, profile=session.profile, mode=session.mode)
    outcomes.append(CheckOutcome.OK)
    if arguments is not None:
        check_scope(session, tool, arguments)
    outcomes.append(unknown)
    if needs_approval(tool.spec, session.policy, session.edge):
        raise ToolRefused(
            FailureCode.APPROVAL_REQUIRED,
            f"{tool.spec.name} needs a person's approval for each call on this edge.",
            remedy="A person has to approve the call; where nobody can be asked it is denied.",
            blocker="approval",
        )
    outcomes.append(CheckOutcome.OK)
