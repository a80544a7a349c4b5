"""read_file and list_dir, and the whole set of file tools (R-088..R-099, Part 4 rows 1, 2, 6 and 7)."""

import io
import os
import stat
from functools import partial

import anyio.to_thread

from hostside.core.call import CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.locality import Locality
from hostside.core.spec import Capability, Risk, SideEffect, Tool, ToolSpec
from hostside.tools.file_writes import write_tools
from hostside.tools.result_size import MAX_TEXT_BYTES, cut_text, fitting_lines, json_bytes
from hostside.tools.workspace_fs import decoded, expected_errors, failed, locate, read_file_bytes, sha256
from hostside.tools.workspace_paths import is_git_name, root_of, the_path

MAX_LINES = 200
MAX_CHARACTERS = 20_000
MAX_ENTRIES = 1_000


def file_tools(workspace: Workspace | None = None) -> tuple[Tool, ...]:
    """Return read_file, list_dir, write_file and edit_file.

    Bound to `workspace` when given: calls of a session with another one are refused (R-016). Without, each call acts in
    its own session's workspace.
    """
    return (
        Tool(spec=_READ_FILE, execute=partial(_read_file, workspace)),
        Tool(spec=_LIST_DIR, execute=partial(_list_dir, workspace)),
        *write_tools(workspace),
    )


_READ_FILE = ToolSpec(
    name="read_file",
    title="Read a file",
    description=(
        "Read lines of a UTF-8 text file in the workspace. `text` is exact, line ends included. `sha256` is of the whole "
        "file; edit_file asks for it. When `truncated` is true, read on from `end_line` + 1; a single line that is too "
        "long is cut. Files over 16 MiB, binary files and git's own folder are refused."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace root."},
            "start_line": {"type": "integer", "description": "First line to return.", "minimum": 1, "default": 1},
            "max_lines": {
                "type": "integer",
                "description": "Most lines to return.",
                "minimum": 1,
                "maximum": MAX_LINES,
                "default": MAX_LINES,
            },
            "max_chars": {
                "type": "integer",
                "description": "Most characters to return.",
                "minimum": 1,
                "maximum": MAX_CHARACTERS,
                "default": MAX_CHARACTERS,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "start_line": {"type": "integer"},
            "end_line": {"type": "integer"},
            "total_lines": {"type": "integer"},
            "sha256": {"type": "string"},
            "truncated": {"type": "boolean"},
        },
        "required": ["text", "start_line", "end_line", "total_lines", "sha256", "truncated"],
        "additionalProperties": False,
    },
    capability=Capability.READ,
    side_effect=SideEffect.READ,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout_seconds=20.0,
    credentialed=False,
    targets_of=the_path,
    parallel_safe=True,
    argument_aliases={"file_path": "path"},
    source="builtin",
)

_LIST_DIR = ToolSpec(
    name="list_dir",
    title="List a folder",
    description=(
        "List one folder of the workspace, sorted by name: files with their size in bytes, folders, links, others. "
        f"At most {MAX_ENTRIES} entries; `total` counts all. Git's own folder is left out."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The folder, relative to the workspace root.", "default": "."}
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "type": {"type": "string", "enum": ["file", "directory", "symlink", "other"]},
                        "size": {"type": "integer"},
                    },
                    "required": ["name", "type"],
                    "additionalProperties": False,
                },
            },
            "total": {"type": "integer"},
            "truncated": {"type": "boolean"},
        },
        "required": ["entries", "total", "truncated"],
        "additionalProperties": False,
    },
    capability=Capability.READ,
    side_effect=SideEffect.READ,
    risk=Risk.NORMAL,
    locality=Locality.CALLER_FILESYSTEM,
    destructive=False,
    idempotent=True,
    open_world=False,
    timeout_seconds=20.0,
    credentialed=False,
    targets_of=the_path,
    parallel_safe=True,
    argument_aliases={"file_path": "path"},
    source="builtin",
)


async def _read_file(bound: Workspace | None, arguments: JsonObject, context: CallContext) -> ToolResult:
    path, root = str(arguments["path"]), root_of(context, bound)
    first, lines, characters = (_integer(arguments, key) for key in ("start_line", "max_lines", "max_chars"))
    data = await anyio.to_thread.run_sync(read_file_bytes, root, path)
    return ToolResult(structured=_page(path, data, first, lines, characters))


def _page(path: str, data: bytes, first: int, max_lines: int, max_characters: int) -> JsonObject:
    # Only a line feed ends a line: a file may hold CR, U+0085 or U+2028 as text (C-06).
    lines = io.StringIO(decoded(path, data), newline="\n").readlines()
    if first > max(len(lines), 1):
        raise failed(path, f"The file has only {len(lines)} lines.", remedy="Use a smaller start_line.")
    wanted = lines[first - 1 : first - 1 + max_lines]
    taken = fitting_lines(wanted, max_characters)
    text, end = "".join(wanted[:taken]), first - 1 + taken
    cut = taken == 0 and bool(wanted)
    if cut:
        text, end = cut_text(wanted[0][:max_characters]), first
    return {
        "text": text,
        "start_line": first,
        "end_line": end,
        "total_lines": len(lines),
        "sha256": sha256(data),
        "truncated": cut or end < len(lines),
    }


async def _list_dir(bound: Workspace | None, arguments: JsonObject, context: CallContext) -> ToolResult:
    path, root = str(arguments["path"]), root_of(context, bound)
    return ToolResult(structured=await anyio.to_thread.run_sync(_entries, root, path))


def _entries(root: str, path: str) -> JsonObject:
    with locate(root, path) as place:
        handle = place.open_folder()
    try:
        with expected_errors(path):
            names = sorted(name for name in os.listdir(handle) if not is_git_name(name))
            entries: list[JsonValue] = []
            size = 0
            for name in names[:MAX_ENTRIES]:
                entry = _entry(handle, name)
                size += json_bytes(entry) + 1
                if size > MAX_TEXT_BYTES:
                    break
                entries.append(entry)
    finally:
        os.close(handle)
    return {"entries": entries, "total": len(names), "truncated": len(entries) < len(names)}


def _entry(folder: int, name: str) -> JsonObject:
    shown = os.fsencode(name).decode("utf-8", "backslashreplace")
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return {"name": shown, "type": "other"}
    if stat.S_ISREG(status.st_mode):
        return {"name": shown, "type": "file", "size": status.st_size}
    if stat.S_ISDIR(status.st_mode):
        return {"name": shown, "type": "directory"}
    return {"name": shown, "type": "symlink" if stat.S_ISLNK(status.st_mode) else "other"}


def _integer(arguments: JsonObject, key: str) -> int:
    value = arguments[key]
    assert isinstance(value, int)
    return value
