"""find_files and search_files: literal, bounded, in order, never through a link (R-099, A1-08, A1-14)."""

import itertools
from pathlib import Path

import pytest

from hostside.errors import Effect, FailureCode
from hostside.tools.search import search_tools
from tests.support.gateways import call, make_gateway, ok
from tests.support.workspaces import a_workspace, refusal, workspace_gateway

pytestmark = pytest.mark.anyio
INVALID = (FailureCode.INVALID_ARGUMENTS, Effect.NONE)
OUTSIDE = (FailureCode.OUTSIDE_WORKSPACE, Effect.NONE)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A tree with a link to outside, a repository folder, and names that sort differently as text and as names."""
    root = tmp_path / "ws"
    for name in (
        "src/a.py",
        "src/deep/b.py",
        "src-old/c.py",
        ".git/d.py",
        "sub/.git/e.py",
        "README.md",
        ".hidden/f.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\nfind me | (here)\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/g.py").write_text("find me")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "link.py").symlink_to(tmp_path / "outside/g.py")
    return root


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"pattern": "*.py"}, [".hidden/f.py", "src-old/c.py", "src/a.py", "src/deep/b.py"]),
        ({"pattern": "src/**/*.py"}, ["src/a.py", "src/deep/b.py"]),
        ({"pattern": "src/*.py"}, ["src/a.py"]),
        ({"pattern": "./*.md"}, ["README.md"]),
        ({"pattern": "[a-b].py", "directory": "src"}, ["src/a.py", "src/deep/b.py"]),
        ({"pattern": "deep/*", "directory": "src"}, ["src/deep/b.py"]),
        ({"pattern": "**"}, [".hidden/f.py", "README.md", "src-old/c.py", "src/a.py", "src/deep/b.py"]),
        ({"pattern": "readme.md"}, []),
    ],
)
async def test_files_are_found_by_pattern(files: Path, arguments: dict[str, str], paths: list[str]) -> None:
    assert await ok(workspace_gateway(files), "find_files", arguments) == {"paths": paths, "truncated": False}


@pytest.mark.parametrize(
    "arguments",
    [{"pattern": "/etc/*"}, {"pattern": "../*"}, {"pattern": "a/../../b"}, {"pattern": "*", "directory": ".."}],
)
async def test_patterns_that_leave_the_workspace_are_refused(files: Path, arguments: dict[str, str]) -> None:
    assert refusal(await call(workspace_gateway(files), "find_files", arguments)) == OUTSIDE


async def test_a_literal_text_is_found_with_its_line(files: Path) -> None:
    assert await ok(workspace_gateway(files), "search_files", {"query": "me | (", "path": "src", "glob": "*.py"}) == {
        "matches": [
            {"path": "src/a.py", "line": 2, "text": "find me | (here)"},
            {"path": "src/deep/b.py", "line": 2, "text": "find me | (here)"},
        ],
        "searched_files": 2,
        "skipped_files": 0,
        "truncated": False,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": 7},
        {"query": ["find"]},
        {"query": None},
        {"query": ""},
        {"query": "a\nb"},
        {"query": "a", "limit": 101},
        {"query": "a", "limit": 0},
        {"query": "a", "regex": True},
    ],
)
async def test_a_malformed_search_is_refused_before_any_file_is_opened(
    files: Path, arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr("hostside.tools.search.locate", opened)
    assert refusal(await call(workspace_gateway(files), "search_files", arguments)) == INVALID


async def test_one_file_can_be_searched_and_a_query_is_no_pattern(files: Path) -> None:
    gateway = workspace_gateway(files)
    found = await ok(gateway, "search_files", {"query": "find", "path": "src/a.py"})
    assert (found["matches"], found["searched_files"]) == (
        [{"path": "src/a.py", "line": 2, "text": "find me | (here)"}],
        1,
    )
    assert (await ok(gateway, "search_files", {"query": "f.nd"}))["matches"] == []


async def test_binary_and_foreign_files_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"word\0")
    (tmp_path / "b").write_bytes(b"word\xff")
    (tmp_path / "c").write_bytes(b"a word\r\nb")
    assert await ok(workspace_gateway(tmp_path), "search_files", {"query": "word"}) == {
        "matches": [{"path": "c", "line": 1, "text": "a word"}],
        "searched_files": 1,
        "skipped_files": 2,
        "truncated": False,
    }


async def test_a_folder_that_is_too_deep_is_left_out_and_what_follows_it_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "/".join("d" * 70)
    deep.mkdir(parents=True)
    for place in (deep, tmp_path):
        (place / "z").write_text("word")
    gateway = workspace_gateway(tmp_path)
    assert await ok(gateway, "find_files", {"pattern": "z"}) == {"paths": ["z"], "truncated": True}
    found = await ok(gateway, "search_files", {"query": "word"})
    assert (found["matches"], found["truncated"]) == ([{"path": "z", "line": 1, "text": "word"}], True)


@pytest.mark.parametrize(("limit", "count"), [({}, 100), ({"limit": 3}, 3)])
async def test_a_search_stops_at_its_limit_of_matches(tmp_path: Path, limit: dict[str, int], count: int) -> None:
    (tmp_path / "f").write_text("word\n" * 150)
    found = await ok(workspace_gateway(tmp_path), "search_files", {"query": "word", **limit})
    matches = found["matches"]
    assert isinstance(matches, list)
    assert (len(matches), found["truncated"]) == (count, True)


async def test_a_line_is_shown_around_its_match_and_all_within_20000_characters(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(f"{'x' * 1_000}word{'y' * 1_000}\n" * 90)
    found = await ok(workspace_gateway(tmp_path), "search_files", {"query": "word"})
    matches = found["matches"]
    assert isinstance(matches, list)
    assert matches[0] == {"path": "f", "line": 1, "text": "x" * 100 + "word" + "y" * 296}
    assert (len(matches), found["truncated"]) == (50, True)


@pytest.mark.parametrize(("tool", "arguments"), [("search_files", {"query": "word"}), ("find_files", {"pattern": "*"})])
async def test_a_search_ends_after_five_seconds(tmp_path: Path, tool: str, arguments: dict[str, str]) -> None:
    for number in range(10):
        (tmp_path / f"{number}").write_text("word")
    seconds = itertools.count()  # each look at the clock is a second later
    workspace = a_workspace(tmp_path)
    gateway = make_gateway(search_tools(workspace, monotonic=lambda: float(next(seconds))), workspace=workspace)
    found = await ok(gateway, tool, arguments)
    listed = found.get("matches", found.get("paths"))
    assert isinstance(listed, list)
    assert (len(listed), found["truncated"]) == (4, True)


async def test_many_files_are_found_up_to_a_limit(tmp_path: Path) -> None:
    for number in range(510):
        (tmp_path / f"{number:03}").touch()
    found = await ok(workspace_gateway(tmp_path), "find_files", {"pattern": "*"})
    assert found == {"paths": [f"{number:03}" for number in range(500)], "truncated": True}
