"""The glob matcher: what matches, and that no pattern makes it slow."""

import fnmatch

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.tools.glob_pattern import GlobPattern


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("*.py", "a/b.pyc", False),
        ("a/*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/b/c", True),
        ("**/c", "c", True),
        ("a/**", "a/b/c", True),
        ("?", "ab", False),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("[a-c]", "b", True),
        ("[]]", "]", True),
        ("[a", "[a", True),
        ("a.c", "abc", False),
        ("A", "a", False),
        ("a**b", "axxb", True),
    ],
)
def test_a_pattern_matches_what_its_words_say(pattern: str, path: str, matches: bool) -> None:
    assert GlobPattern(pattern).matches(path) is matches


@given(st.text("ab*?", max_size=8), st.text("ab", min_size=1, max_size=8))
def test_names_match_as_the_standard_library_says(pattern: str, name: str) -> None:
    if pattern in ("", "**"):
        return
    assert GlobPattern(pattern).matches(name) is fnmatch.fnmatchcase(name, pattern)


def test_a_pattern_full_of_stars_ends_at_once() -> None:
    async def main() -> None:
        with anyio.fail_after(5):
            assert not GlobPattern("*a" * 200 + "b").matches("a" * 4_000)
            assert not GlobPattern("**/a/" * 100 + "b").matches("/".join("a" * 1_000))

    anyio.run(main)
