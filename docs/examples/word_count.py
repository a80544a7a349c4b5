"""A custom tool, whole: it counts the words of one file of the workspace."""

import anyio.to_thread

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
    read_file_bytes,
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
    """Count. The path of the narrowed scope is inside the workspace by its spelling only, and the agent can put a link at
    any step of it at any time: so it is never opened by name but by `read_file_bytes`, which refuses what leads outside.
    """
    assert context.workspace is not None
    (path,) = context.scope.paths
    data = await anyio.to_thread.run_sync(read_file_bytes, context.workspace.root, path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ToolFailed(
            FailureCode.TOOL_FAILED, "The file is not UTF-8 text.", remedy="Name a text file.", effect=Effect.NONE
        ) from None
    return ToolResult(structured={"words": len(text.split())})


def register(registry: Registry) -> None:
    """Add the tool to a registry."""
    registry.register(Tool(spec=WORD_COUNT, execute=count_words))
