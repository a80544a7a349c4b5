"""`narrow` never widens (R-076..R-088)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.core.scope import (
    IssueTarget,
    NamedTarget,
    PathTarget,
    RepositoryTarget,
    Scope,
    issue_target,
    narrow,
    relative_path,
)
from hostside.errors import FailureCode, ToolRefused

ROOT = "/srv/ws/DEMO-1"
GRANTED = Scope(issue_id="i-1", workspace_root=ROOT, named=frozenset({NamedTarget(kind="project", id="p-1")}))


@pytest.mark.parametrize(
    ("path", "relative"),
    [
        (".", "."),
        ("a.txt", "a.txt"),
        ("./a//b/./c", "a/b/c"),
        ("a/../b", "b"),
        ("~/x", "~/x"),
        (f"{ROOT}/a/b", "a/b"),
        (ROOT, "."),
        (f"{ROOT}/a/../b", "b"),
        ("…/ü", "…/ü"),
        ("...", "..."),
    ],
)
def test_a_path_inside_is_normalized(path: str, relative: str) -> None:
    assert relative_path(ROOT, path) == relative


@pytest.mark.parametrize(
    "path",
    ["..", "../x", "a/../../x", "/", "/etc/passwd", f"{ROOT}x/a", f"{ROOT}/../DEMO-2/a", "/srv/ws/DEMO-10", "a\0b", ""],
)
def test_a_path_that_leaves_is_refused_as_it_was_given(path: str) -> None:
    with pytest.raises(ToolRefused) as caught:
        relative_path(ROOT, path)
    assert caught.value.code is FailureCode.OUTSIDE_WORKSPACE
    assert repr(path.replace("\0", "\\0"))[1:-1] in str(caught.value)


@given(st.lists(st.sampled_from(["..", ".", "a", "b", "", "~", "..."]), max_size=8).map("/".join))
def test_whatever_is_narrowed_stays_below_the_root(path: str) -> None:
    try:
        relative = relative_path(ROOT, path)
    except ToolRefused:
        return
    assert not relative.startswith("/")
    assert ".." not in relative.split("/")


@pytest.mark.parametrize("foreign", ["i-2", "I-1", " i-1", "", "i-1\u200b"])
def test_another_issue_is_refused_with_one_and_the_same_text(foreign: str) -> None:
    with pytest.raises(ToolRefused) as caught:
        narrow(GRANTED, [IssueTarget(issue_id=foreign)])
    assert (caught.value.code, str(caught.value)) == (
        FailureCode.OUTSIDE_ISSUE,
        "This issue is not the one that this run works on.",
    )


def test_an_empty_scope_permits_no_target() -> None:
    for target in (
        IssueTarget(issue_id="i-1"),
        PathTarget(path="a"),
        RepositoryTarget(),
        NamedTarget(kind="p", id="1"),
    ):
        with pytest.raises(ToolRefused):
            narrow(Scope(), [target])


def test_everything_inside_is_returned_and_nothing_else() -> None:
    narrowed = narrow(
        GRANTED, [IssueTarget(issue_id="i-1"), PathTarget(path="b"), PathTarget(path="./a"), RepositoryTarget()]
    )
    assert (narrowed.issue_id, narrowed.paths, narrowed.repository, narrowed.named) == (
        "i-1",
        ("a", "b"),
        True,
        frozenset(),
    )


def test_a_topic_run_has_no_issue_to_target() -> None:
    with pytest.raises(ToolRefused, match="not bound to an issue"):
        issue_target(None)
