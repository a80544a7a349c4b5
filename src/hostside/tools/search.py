"""find_files and search_files: bounded in results, characters and time, and never through a link (R-099, A1-08)."""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import anyio.to_thread

from hostside.core.call import CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject, JsonValue
from hostside.core.locality import Locality
from hostside.core.scope import Target
from hostside.core.spec import Capability, Risk, SideEffect, TargetContext, Tool, ToolSpec
from hostside.errors import ToolFailed, ToolRefused
from hostside.tools.glob_pattern import GlobPattern
from hostside.tools.result_size import MAX_TEXT_BYTES, json_bytes
from hostside.tools.workspace_fs import Place, locate, open_regular, read_whole
from hostside.tools.workspace_paths import is_git_name, outside, root_of, the_path, workspace_target

MAX_FILES = 500
MAX_MATCHES = 100
MAX_LINE_CHARACTERS = 400
MAX_CHARACTERS = 20_000
MAX_SECONDS = 5.0
MAX_DEPTH = 64
MAX_VISITED = 500_000
_LEAD_CHARACTERS = 100


def search_tools(
    workspace: Workspace | None = None, *, monotonic: Callable[[], float] = time.monotonic
) -> tuple[Tool, ...]:
    """Return find_files and search_files, bound to `workspace` when given (see `file_tools`)."""
    return (
        Tool(spec=_FIND_FILES, execute=partial(_find_files, workspace, monotonic)),
        Tool(spec=_SEARCH_FILES, execute=partial(_search_files, workspace, monotonic)),
    )


def _the_directory(arguments: JsonObject, context: TargetContext) -> Iterable[Target]:
    return (workspace_target(str(arguments["directory"]), context),)


_FIND_FILES = ToolSpec(
    name="find_files",
    title="Find files by name",
    description=(
        "Find files of the workspace by a glob pattern. Without `/` it is compared with file names at any depth "
        "(`*.py`); with `/`, with the path below `directory` (`src/**/*.py`). `*`, `?`, `[abc]`, `[!abc]` and `**` are "
        f"known; case counts. Paths are relative to the workspace root and sorted, at most {MAX_FILES}, within 5 "
        "seconds; `truncated` says that there may be more. Links to folders and git's own folder are not entered."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "The glob pattern.", "minLength": 1, "maxLength": 500},
            "directory": {"type": "string", "description": "The folder to look in.", "default": "."},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "paths": {"type": "array", "items": {"type": "string"}},
            "truncated": {"type": "boolean"},
        },
        "required": ["paths", "truncated"],
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
    targets_of=_the_directory,
    parallel_safe=True,
    source="builtin",
)

_SEARCH_FILES = ToolSpec(
    name="search_files",
    title="Search in files",
    description=(
        "Find a literal text in the UTF-8 files of the workspace; case counts, and nothing in `query` is a wildcard. One "
        f"match for each line, with at most {MAX_LINE_CHARACTERS} characters of it, {MAX_CHARACTERS} characters in all, "
        "within 5 seconds; `truncated` says that there may be more. `skipped_files` counts binary, unreadable and very "
        "large files. Links and git's own folder are not entered."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The literal text, without line ends.",
                "minLength": 1,
                "maxLength": 1_000,
                "pattern": "^[^\\n]+$",
            },
            "path": {"type": "string", "description": "The folder or file to search.", "default": "."},
            "glob": {
                "type": "string",
                "description": "Only files that match this pattern, as in find_files.",
                "minLength": 1,
                "maxLength": 500,
            },
            "limit": {
                "type": "integer",
                "description": "Most matches to return.",
                "minimum": 1,
                "maximum": MAX_MATCHES,
                "default": MAX_MATCHES,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "matches": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string"},
                        "line": {"type": "integer"},
                        "text": {"type": "string"},
                    },
                    "required": ["path", "line", "text"],
                    "additionalProperties": False,
                },
            },
            "searched_files": {"type": "integer"},
            "skipped_files": {"type": "integer"},
            "truncated": {"type": "boolean"},
        },
        "required": ["matches", "searched_files", "skipped_files", "truncated"],
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
    source="builtin",
)


@dataclass(slots=True)
class _Budget:
    """What one call may still use. `spent` is set once something was left out."""

    monotonic: Callable[[], float]
    deadline: float
    visits: int = MAX_VISITED
    spent: bool = False

    def visit(self) -> bool:
        """Count one entry; False once entries or time are used up. A folder left out for its depth ends nothing."""
        self.visits -= 1
        used_up = self.visits < 0 or self.monotonic() >= self.deadline
        self.spent = self.spent or used_up
        return not used_up


@dataclass(frozen=True, slots=True)
class _Found:
    """One regular file: its folder's open handle (good until the next one is asked for), name and paths."""

    folder: int
    name: str
    path: str
    below: str


async def _find_files(
    bound: Workspace | None, monotonic: Callable[[], float], arguments: JsonObject, context: CallContext
) -> ToolResult:
    root, pattern = root_of(context, bound), _pattern(str(arguments["pattern"]))
    budget = _Budget(monotonic, monotonic() + MAX_SECONDS)
    return ToolResult(
        structured=await anyio.to_thread.run_sync(_find, root, str(arguments["directory"]), pattern, budget)
    )


def _find(root: str, directory: str, pattern: GlobPattern, budget: _Budget) -> JsonObject:
    paths: list[JsonValue] = []
    size = 0
    with locate(root, directory) as place:
        for found in _files(place, budget):
            if not pattern.matches(found.below):
                continue
            shown = _shown(found.path)
            size += json_bytes(shown) + 1
            if len(paths) == MAX_FILES or size > MAX_TEXT_BYTES:
                budget.spent = True
                break
            paths.append(shown)
    return {"paths": paths, "truncated": budget.spent}


async def _search_files(
    bound: Workspace | None, monotonic: Callable[[], float], arguments: JsonObject, context: CallContext
) -> ToolResult:
    limit, glob = arguments["limit"], arguments.get("glob")
    assert isinstance(limit, int)
    search = _Search(str(arguments["query"]), limit, None if glob is None else _pattern(str(glob)))
    budget = _Budget(monotonic, monotonic() + MAX_SECONDS)
    root = root_of(context, bound)
    return ToolResult(structured=await anyio.to_thread.run_sync(search.run, root, str(arguments["path"]), budget))


class _Search:
    """One search: what it looks for and what it has found."""

    def __init__(self, query: str, limit: int, glob: GlobPattern | None) -> None:
        self._query, self._limit, self._glob = query, limit, glob
        self._matches: list[JsonValue] = []
        self._characters = self._size = self._searched = self._skipped = 0

    def run(self, root: str, path: str, budget: _Budget) -> JsonObject:
        """Search below `path` until everything was seen or a limit was met."""
        with locate(root, path) as place:
            for found in _files(place, budget):
                if self._glob is not None and not self._glob.matches(found.below):
                    continue
                if not self._file(found):
                    budget.spent = True
                    break
        return {
            "matches": self._matches,
            "searched_files": self._searched,
            "skipped_files": self._skipped,
            "truncated": budget.spent,
        }

    def _file(self, found: _Found) -> bool:
        text = _text(found)
        if text is None:
            self._skipped += 1
            return True
        self._searched += 1
        if self._query not in text:
            return True
        for number, line in enumerate(text.split("\n"), start=1):
            at = line.find(self._query)
            if at >= 0 and not self._take(found.path, number, line, at):
                return False
        return True

    def _take(self, path: str, number: int, line: str, at: int) -> bool:
        # A long line is shown from a little before its match, so that the match is in what is shown.
        start = 0 if at + len(self._query) <= MAX_LINE_CHARACTERS else max(0, at - _LEAD_CHARACTERS)
        shown = line.removesuffix("\r")[start : start + MAX_LINE_CHARACTERS]
        match: JsonObject = {"path": _shown(path), "line": number, "text": shown}
        self._characters += len(shown)
        self._size += json_bytes(match) + 1
        full = len(self._matches) == self._limit
        if full or self._characters > MAX_CHARACTERS or self._size > MAX_TEXT_BYTES:
            return False
        self._matches.append(match)
        return True


def _text(found: _Found) -> str | None:
    try:
        data = read_whole(open_regular(found.folder, found.name, found.path), found.path)
        return None if b"\0" in data else data.decode()
    except (ToolFailed, ToolRefused, UnicodeDecodeError):
        return None


def _files(place: Place, budget: _Budget) -> Iterator[_Found]:
    """Yield the regular files at or below `place` in order. Each handle is closed when the walk leaves its folder."""
    start = place.relative
    if place.status is not None and stat.S_ISREG(place.status.st_mode):
        yield _Found(place.folder, place.name, start, start.rpartition("/")[2])
        return
    handle = place.open_folder()
    try:
        yield from _walk(handle, "" if start == "." else f"{start}/", "", 0, budget)
    finally:
        os.close(handle)


def _walk(folder: int, prefix: str, below: str, depth: int, budget: _Budget) -> Iterator[_Found]:
    for entry in _sorted_entries(folder, budget):
        if not budget.visit():
            return
        if entry.is_dir(follow_symlinks=False):
            if depth == MAX_DEPTH:
                budget.spent = True
                continue
            child = _open_child(folder, entry.name)
            if child is None:
                continue
            try:
                yield from _walk(child, prefix, f"{below}{entry.name}/", depth + 1, budget)
            finally:
                os.close(child)
        elif entry.is_file(follow_symlinks=False):
            inner = f"{below}{entry.name}"
            yield _Found(folder, entry.name, f"{prefix}{inner}", inner)


def _sorted_entries(folder: int, budget: _Budget) -> list["os.DirEntry[str]"]:
    entries: list[os.DirEntry[str]] = []
    with os.scandir(folder) as listing:
        for entry in listing:
            if len(entries) >= MAX_VISITED:
                budget.spent = True
                break
            if not is_git_name(entry.name):
                entries.append(entry)
    # Folders sort as `name/`, so that the paths come out in the order of their text.
    return sorted(entries, key=lambda entry: f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name)


def _open_child(folder: int, name: str) -> int | None:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:  # gone, unreadable or a link by now: not a part of what can be searched
        return None


def _pattern(pattern: str) -> GlobPattern:
    if pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern:
        raise outside(pattern, "A pattern is relative and has no parent steps.", remedy="Use `directory` or `path`.")
    return GlobPattern(pattern)


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
