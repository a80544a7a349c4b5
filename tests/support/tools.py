"""Small tools for tests of the boundary: each fact explicit, executors that record what they got."""

from dataclasses import replace
from typing import Any

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject, snapshot
from hostside.core.issue import Issue
from hostside.core.locality import Locality
from hostside.core.scope import Target, issue_target
from hostside.core.spec import (
    Capability,
    Executor,
    Risk,
    SideEffect,
    TargetContext,
    Tool,
    ToolSpec,
    Verifier,
    touches_nothing,
)

ANY_OBJECT: dict[str, object] = {"type": "object", "properties": {}, "additionalProperties": True}


def schema(properties: dict[str, object] | None = None, required: tuple[str, ...] = ()) -> dict[str, object]:
    """Return a closed object schema."""
    document: dict[str, object] = {"type": "object", "properties": properties or {}, "additionalProperties": False}
    if required:
        document["required"] = list(required)
    return document


def a_spec(name: str = "demo_get", **changes: Any) -> ToolSpec:
    """Return the spec of a harmless read tool, changed as asked."""
    base = ToolSpec(
        name=name,
        title="Demo",
        description="A tool for tests.",
        input_schema=schema(),
        output_schema=ANY_OBJECT,
        capability=Capability.READ,
        side_effect=SideEffect.READ,
        risk=Risk.NORMAL,
        locality=Locality.REMOTABLE,
        destructive=False,
        idempotent=True,
        open_world=False,
        timeout_seconds=5.0,
        credentialed=False,
        targets_of=touches_nothing,
    )
    return replace(base, **changes)


def on_the_issue(_arguments: JsonObject, context: TargetContext) -> frozenset[Target]:
    """Name the session's issue as the target."""
    return issue_target(context.issue)


def a_write_spec(name: str = "demo_write", **changes: Any) -> ToolSpec:
    """Return the spec of a local write that is idempotent."""
    facts: dict[str, Any] = {"capability": Capability.WRITE, "side_effect": SideEffect.MUTATION}
    return a_spec(name, **{**facts, **changes})


def a_post_spec(name: str = "demo_post", **changes: Any) -> ToolSpec:
    """Return the spec of a write that leaves the host and is not idempotent."""
    facts: dict[str, Any] = {
        "capability": Capability.WRITE,
        "side_effect": SideEffect.EXTERNAL,
        "idempotent": False,
        "targets_of": on_the_issue,
        "input_schema": schema({"body": {"type": "string"}}, ("body",)),
        "output_schema": schema({"id": {"type": "string"}, "unchanged": {"type": "boolean"}}),
    }
    return a_spec(name, **{**facts, **changes})


class Recorder:
    """An executor that keeps every argument object and context, and answers with `answer`."""

    def __init__(self, answer: ToolResult | None = None) -> None:
        self.arguments: list[JsonObject] = []
        self.contexts: list[CallContext] = []
        self.answer = answer or ToolResult()

    async def __call__(self, arguments: JsonObject, context: CallContext) -> ToolResult:
        """Record and answer."""
        copy = snapshot(arguments)
        assert isinstance(copy, dict)
        self.arguments.append(copy)
        self.contexts.append(context)
        return self.answer


async def never(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    """Stand for an executor that must not be reached."""
    raise NotImplementedError


def a_tool(
    execute: Executor = never, verify: Verifier | None = None, *, spec: ToolSpec | None = None, **changes: Any
) -> Tool:
    """Return a tool around an executor."""
    return Tool(spec=spec or a_spec(**changes), execute=execute, verify=verify)


def an_issue_named(identifier: str) -> Issue:
    """Return an issue whose id is its identifier."""
    return Issue(id=identifier, identifier=identifier, title="t", state="Todo", dispatchable=True)
