"""The words that all adapters share: normalization, the bound issue, and the error map (R-226, R-229..R-231, A0-19)."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import hostside
from hostside.core.call import CallContext, no_progress
from hostside.core.issue import Issue, NativeRef
from hostside.core.scope import NarrowedScope
from hostside.errors import ConfigError, Effect, FailureCode, ToolFailed, ToolRefused
from hostside.trackers import base
from tests.support.gateways import an_issue


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ([" Bug ", "bug", "BUG", "UI"], ("bug", "ui")),
        (["", "  ", 1, None, ["x"]], ()),
        (("a",), ("a",)),
        ("bug", ()),
        (None, ()),
        ({"a": 1}, ()),
    ],
)
def test_labels_are_trimmed_in_lower_case_and_each_once(given: object, labels: tuple[str, ...]) -> None:
    assert base.normalized_labels(given) == labels


@pytest.mark.parametrize(
    ("given", "time"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (" 2026-01-31T13:00:00+01:00 ", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00.123456Z", datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)),
        ("2026-01-31T12:00:00", None),
        ("2026-01-31", None),
        ("0001-01-01T00:00:00+23:00", None),
        ("yesterday", None),
        ("", None),
        (1_769_860_800, None),
        (None, None),
    ],
)
def test_a_time_is_aware_or_nothing(given: object, time: datetime | None) -> None:
    assert base.parsed_time(given) == time


@pytest.mark.parametrize(
    ("given", "priority"), [(2, 2), (0, 0), (2.0, 2), (2.5, None), (True, None), ("2", None), (None, None)]
)
def test_a_priority_is_an_integer_or_nothing(given: object, priority: int | None) -> None:
    assert base.priority_of(given) == priority


def test_a_state_is_found_by_name_and_answered_in_the_trackers_spelling() -> None:
    states = ("Todo", "In Progress")
    assert [base.resolve_state(name, states) for name in (" in progress", "TODO", "Done")] == [
        "In Progress",
        "Todo",
        None,
    ]


def context_of(issue: Issue | None, scope_issue: str | None) -> CallContext:
    scope = NarrowedScope(issue_id=scope_issue, paths=(), repository=False, named=frozenset())
    return CallContext(
        session_id="s-1",
        run_id="r-1",
        receipt_id="rc-1",
        operation_id="op-1",
        principal="p-1",
        issue=issue,
        workspace=None,
        scope=scope,
        timeout_seconds=1.0,
        progress=no_progress,
    )


def test_a_tool_acts_only_on_the_issue_that_the_call_was_narrowed_to() -> None:
    issue = an_issue()
    assert base.bound_issue(context_of(issue, issue.id)) is issue
    for context in (context_of(issue, None), context_of(issue, "another"), context_of(None, issue.id)):
        with pytest.raises(ToolRefused) as refused:
            base.bound_issue(context)
        assert refused.value.code is FailureCode.OUTSIDE_ISSUE


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_an_absent_or_blank_secret_is_missing_and_the_remedy_names_its_setting(value: str | None) -> None:
    with pytest.raises(ToolRefused) as refused:
        base.required_secret(value, kind="linear", setting="token", names=("LINEAR_API_KEY",))
    assert refused.value.code is FailureCode.MISSING_TRACKER_SECRET
    assert ("LINEAR_API_KEY" in str(refused.value), "`token`" in refused.value.remedy) == (True, True)


def test_a_secret_that_is_there_is_returned() -> None:
    assert base.required_secret("s3cret", kind="linear", setting="token") == "s3cret"


def test_every_error_has_its_code_a_remedy_and_an_effect() -> None:
    errors = {
        "tracker_request": base.tracker_request("No answer."),
        "tracker_status": base.tracker_status("Linear", 500),
        "tracker_response": base.tracker_response("Not JSON."),
        "tracker_pagination": base.tracker_pagination("No cursor."),
        "tracker_rate_limited": base.tracker_rate_limited("GitHub", 40_001),
        "effect_unknown": base.lost_answer("comment", remedy="Read the comments before writing again."),
        "precondition_failed": base.unknown_state("Nirvana", ("Todo",)),
        "tool_failed": base.issue_gone("project"),
    }
    assert {code: error.code.value for code, error in errors.items()} == {code: code for code in errors}
    assert {code: error.effect for code, error in errors.items()} == {
        code: Effect.UNKNOWN if code == "effect_unknown" else Effect.NONE for code in errors
    }
    assert all(isinstance(error, ToolFailed) and error.remedy for error in errors.values())
    assert "after 41 s" in errors["tracker_rate_limited"].remedy
    config = base.invalid_config("file", "`path` is missing", remedy="Give it.")
    assert (isinstance(config, ConfigError), config.code) == (True, "invalid_tracker_config")


def test_a_status_that_means_the_credential_sends_the_reader_to_the_operator() -> None:
    remedies = {status: "credential" in base.tracker_status("Gitea", status).remedy for status in (401, 403, 404, 502)}
    assert remedies == {401: True, 403: True, 404: False, 502: False}


def test_no_shared_module_opens_a_native_ref() -> None:
    package = Path(hostside.__file__).parent
    opens = re.compile(r"native_ref\s*\.\s*open\s*\(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "trackers" not in path.parts and opens.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()
    assert NativeRef({"itemId": "secret place"}).open() == {"itemId": "secret place"}
    assert "secret place" not in repr(NativeRef({"itemId": "secret place"}))
