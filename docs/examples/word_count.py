"""A custom tool, whole: it counts the words of one file of the workspace."""

from pathlib import Path

from hostside import (
    CallContext,
    Capability,
    Effect,
    FailureCode,
    Locality,
    PathTarget,
    Registry,
    Risk,
    SideEffect,
    Tool,
    ToolFailed,
    ToolResult,
    ToolSpec,
)

WORD_COUNT = ToolSpec(
    name="word_count",
    title="Count words",
    description="Count the words of one text file of the workspace.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1, "description": "Path inside the workspace."}},
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"words": {"type": "integer"}},
        "required": ["words"],
        "additionalProperties": False,
    },
    capability=Capability.READ,
    side_effect=SideEffect.READ,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout_seconds=10.0,
    credentialed=False,
    targets_of=lambda arguments, _context: [PathTarget(path=str(arguments["path"]))],
)


async def count_words(_arguments: dict[str, object], context: CallContext) -> ToolResult:
    """Count. The path comes from the narrowed scope: it is relative, normalized and inside the workspace."""
    assert context.workspace is not None
    file = Path(context.workspace.root, *context.scope.paths)
    if file.is_symlink() or not file.is_file():
        raise ToolFailed(
            FailureCode.TOOL_FAILED, "There is no such file.", remedy="List the folder.", effect=Effect.NONE
        )
    return ToolResult(structured={"words": len(file.read_text(encoding="utf-8").split())})


def register(registry: Registry) -> None:
    """Add the tool to a registry."""
    registry.register(Tool(spec=WORD_COUNT, execute=count_words))
