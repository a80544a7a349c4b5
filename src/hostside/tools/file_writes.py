"""write_file and edit_file: bytes exactly as sent, swapped in as a whole, read back (R-098, R-143, C-06)."""

from functools import partial

import anyio.to_thread

from hostside.core.call import CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject
from hostside.core.locality import Locality
from hostside.core.spec import Capability, Risk, SideEffect, Tool, ToolSpec
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.tools.workspace_fs import (
    MAX_FILE_BYTES,
    Place,
    decoded,
    failed,
    locate,
    missing,
    open_regular,
    read_file_bytes,
    read_whole,
    sha256,
)
from hostside.tools.workspace_paths import root_of, the_path
from hostside.tools.workspace_writes import replace_file


def write_tools(workspace: Workspace | None = None) -> tuple[Tool, ...]:
    """Return write_file and edit_file, bound to `workspace` when given (see `file_tools`)."""
    return (
        Tool(spec=_WRITE_FILE, execute=partial(_write_file, workspace), verify=partial(_is_written, workspace)),
        Tool(spec=_EDIT_FILE, execute=partial(_edit_file, workspace), verify=partial(_is_written, workspace)),
    )


_WRITE_FILE = ToolSpec(
    name="write_file",
    title="Write a file",
    description=(
        "Create a file of the workspace or replace it as a whole. The bytes are exactly the UTF-8 of `content`: no line "
        "end, mark or accent is changed. Missing folders are made; an existing file keeps its permissions. To change a "
        "part of a file use edit_file."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace root."},
            "content": {"type": "string", "description": "The whole new content."},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "sha256": {"type": "string"},
            "bytes": {"type": "integer"},
            "created": {"type": "boolean"},
        },
        "required": ["sha256", "bytes", "created"],
        "additionalProperties": False,
    },
    capability=Capability.WRITE,
    side_effect=SideEffect.MUTATION,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=True,
    idempotent=True,
    open_world=False,
    timeout_seconds=30.0,
    credentialed=False,
    targets_of=the_path,
    aliases=("write",),
    argument_aliases={"file_path": "path", "text": "content"},
    source="builtin",
    free_text=("/content",),
)

_EDIT_FILE = ToolSpec(
    name="edit_file",
    title="Edit a file",
    description=(
        "Replace one piece of a UTF-8 text file of the workspace. `old_text` must occur exactly once, and "
        "`expected_sha256` must be the hash that read_file gave: if the file has changed since, nothing is done. "
        "Permissions are kept. The result's `sha256` is the hash for the next edit."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace root."},
            "old_text": {"type": "string", "description": "The exact text to replace.", "minLength": 1},
            "new_text": {"type": "string", "description": "What takes its place; may be empty."},
            "expected_sha256": {
                "type": "string",
                "description": "`sha256` of the file as read_file gave it.",
                "pattern": "^[0-9a-f]{64}$",
            },
        },
        "required": ["path", "old_text", "new_text", "expected_sha256"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"sha256": {"type": "string"}, "bytes": {"type": "integer"}, "line": {"type": "integer"}},
        "required": ["sha256", "bytes", "line"],
        "additionalProperties": False,
    },
    capability=Capability.WRITE,
    side_effect=SideEffect.MUTATION,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=True,
    idempotent=False,
    open_world=False,
    timeout_seconds=30.0,
    credentialed=False,
    targets_of=the_path,
    source="builtin",
    free_text=("/old_text", "/new_text"),
)


async def _write_file(bound: Workspace | None, arguments: JsonObject, context: CallContext) -> ToolResult:
    path, data = str(arguments["path"]), str(arguments["content"]).encode()
    created = await anyio.to_thread.run_sync(_write, root_of(context, bound), path, data)
    return _reported({"sha256": sha256(data), "bytes": len(data), "created": created})


def _write(root: str, path: str, data: bytes) -> bool:
    if path.endswith("/"):
        raise failed(path, "This names a folder.", remedy="Give the path of a file.")
    _require_size(path, data)
    with locate(root, path) as place:
        replace_file(place, data)
        return place.status is None


async def _edit_file(bound: Workspace | None, arguments: JsonObject, context: CallContext) -> ToolResult:
    path, expected = str(arguments["path"]), str(arguments["expected_sha256"])
    old, new = str(arguments["old_text"]).encode(), str(arguments["new_text"]).encode()
    data, line = await anyio.to_thread.run_sync(_edit, root_of(context, bound), path, old, new, expected)
    return _reported({"sha256": sha256(data), "bytes": len(data), "line": line})


def _edit(root: str, path: str, old: bytes, new: bytes, expected: str) -> tuple[bytes, int]:
    with locate(root, path) as place:
        if place.status is None:
            raise missing(path)
        before = read_whole(place.open_file(), path)
        _require_hash(path, before, expected)
        decoded(path, before)
        at = _only_match(path, before, old)
        after = before[:at] + new + before[at + len(old) :]
        _require_size(path, after)
        replace_file(place, after, before_swap=lambda: _require_hash(path, _current(place), expected))
        return after, before.count(b"\n", 0, at) + 1


def _current(place: Place) -> bytes:
    return read_whole(open_regular(place.folder, place.name, place.path), place.path)


def _require_hash(path: str, data: bytes, expected: str) -> None:
    found = sha256(data)
    if found != expected:
        raise ToolFailed(
            FailureCode.PRECONDITION_FAILED,
            f"{path[:200]!r}: The file is not what was read: its sha256 differs from expected_sha256.",
            remedy="Read the file again and make the edit against what it holds now.",
            effect=Effect.NONE,
            details=[{"pointer": "/expected_sha256", "expected": expected, "got": found}],
        )


def _only_match(path: str, data: bytes, old: bytes) -> int:
    at = data.find(old)
    # From the next byte on, so that matches that overlap count as two.
    if at >= 0 and data.find(old, at + 1) < 0:
        return at
    why = "old_text does not occur in the file." if at < 0 else "old_text occurs more than once in the file."
    raise ToolFailed(
        FailureCode.PRECONDITION_FAILED,
        f"{path[:200]!r}: {why}",
        remedy="Copy old_text exactly from read_file, with enough lines around it to occur once.",
        effect=Effect.NONE,
        details=[{"pointer": "/old_text", "rule": "exactly one match"}],
    )


def _require_size(path: str, data: bytes) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise failed(path, f"The content is larger than {MAX_FILE_BYTES} bytes.", remedy="Write less into one file.")


async def _is_written(bound: Workspace | None, arguments: JsonObject, context: CallContext, result: ToolResult) -> bool:
    data = await anyio.to_thread.run_sync(read_file_bytes, root_of(context, bound), str(arguments["path"]))
    if "content" in arguments and data != str(arguments["content"]).encode():
        return False
    return sha256(data) == result.structured["sha256"]


def _reported(structured: JsonObject) -> ToolResult:
    return ToolResult(structured=structured, effect=Effect.REPORTED)
