"""Reading the tracker file: missing, broken, odd and good entries (AX-45, R-226, R-262, R-263, R-266)."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hostside.core.issue import Blocker, Issue, NativeRef
from hostside.errors import ConfigError, FailureCode, ToolFailed
from hostside.trackers import file_document
from tests.support.gateways import call, make_gateway
from tests.trackers.contract import code_of
from tests.trackers.file_world import KEY, FileWorld, issue_record, settings_for

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> FileWorld:
    return FileWorld(tmp_path)


async def only_issue(world: FileWorld) -> Issue:
    (issue,) = await world.adapter.fetch_by_states(world.states)
    return issue


async def test_a_missing_file_has_no_issues(world: FileWorld) -> None:
    assert await world.adapter.fetch_by_states(("Todo",)) == ()
    assert await world.adapter.fetch_by_ids(("id-DEMO-1",)) == ()
    assert await world.adapter.fetch_by_identifier("DEMO-1") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b"{}", b'"x"', b"null", b"[1] [2]", b"\xff[]", b'[{"id": 1, "id": 2}]', b"[NaN]", b"[" * 100],
    ids=["empty", "cut", "object", "text", "null", "two", "not utf-8", "key twice", "nan", "deep"],
)
async def test_what_is_not_one_json_array_is_an_error(world: FileWorld, content: bytes) -> None:
    world.path.write_bytes(content)
    with pytest.raises(ToolFailed) as failed:
        await world.adapter.fetch_by_states(("Todo",))
    assert failed.value.code is FailureCode.TRACKER_RESPONSE
    assert str(world.path) not in str(failed.value)


async def test_a_file_beyond_the_limit_is_an_error(world: FileWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_document, "MAX_FILE_BYTES", 10)
    world.write([issue_record()])
    with pytest.raises(ToolFailed) as failed:
        await world.adapter.fetch_by_states(("Todo",))
    assert failed.value.code is FailureCode.TRACKER_RESPONSE


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
async def test_something_else_in_the_files_place_fails_at_once(world: FileWorld, kind: str) -> None:
    if kind == "folder":
        world.path.mkdir()
    elif kind == "pipe":
        os.mkfifo(world.path)
    else:
        elsewhere = world.path.with_name("elsewhere.json")
        elsewhere.write_text("[]")
        world.path.symlink_to(elsewhere)
    with pytest.raises(ToolFailed) as failed:
        await world.adapter.fetch_by_states(("Todo",))
    assert failed.value.code is FailureCode.TRACKER_REQUEST


MALFORMED: dict[str, object] = {
    "null": None,
    "text": "DEMO-1",
    "a list": [],
    "nothing in it": {},
    "no title": {key: value for key, value in issue_record().items() if key != "title"},
    "a number as id": issue_record(id=1),
    "a blank state": issue_record(state="  "),
    "dispatchable as text": issue_record(dispatchable="yes"),
    "dispatchable as null": issue_record(dispatchable=None),
    "native_ref as text": issue_record(native_ref="I_1"),
}


@pytest.mark.parametrize("entry", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_entry_is_skipped_with_a_log_line(
    world: FileWorld, entry: object, caplog: pytest.LogCaptureFixture
) -> None:
    world.write([entry, issue_record("DEMO-2")])
    with caplog.at_level(logging.WARNING):
        assert (await only_issue(world)).identifier == "DEMO-2"
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["file tracker"]
    assert "record 0 skipped" in caplog.text


@pytest.mark.parametrize("by", ["id", "identifier"])
async def test_a_requested_malformed_entry_is_an_error(world: FileWorld, by: str) -> None:
    world.write([issue_record(title=""), issue_record("DEMO-2")])
    read = (
        world.adapter.fetch_by_ids(("id-DEMO-2", "id-DEMO-1"))
        if by == "id"
        else world.adapter.fetch_by_identifier("DEMO-1")
    )
    with pytest.raises(ToolFailed, match="`title`") as failed:
        await read
    assert failed.value.code is FailureCode.TRACKER_RESPONSE


async def test_two_entries_with_one_id_are_nobodys_issue(world: FileWorld) -> None:
    world.write([issue_record(), issue_record(identifier="DEMO-2", id="id-DEMO-1"), issue_record("DEMO-3")])
    assert (await only_issue(world)).identifier == "DEMO-3"
    with pytest.raises(ToolFailed, match="more than one"):
        await world.adapter.fetch_by_ids(("id-DEMO-1",))
    gateway = make_gateway(world.adapter.tools(), issue=a_bound_issue("id-DEMO-1"))
    assert code_of(await call(gateway, "file_issue_get", {})) is FailureCode.TRACKER_RESPONSE


def a_bound_issue(issue_id: str) -> Issue:
    return Issue(id=issue_id, identifier="DEMO-1", title="x", state="Todo", dispatchable=True)


async def test_an_issue_that_left_the_file_is_an_expected_failure(world: FileWorld) -> None:
    world.write([])
    gateway = make_gateway(world.adapter.tools(), issue=a_bound_issue("id-DEMO-1"))
    for tool, arguments in (("file_issue_get", {}), ("file_issue_comment_add", {"body": "x"})):
        assert code_of(await call(gateway, tool, arguments)) is FailureCode.TOOL_FAILED
    assert world.entries() == []


async def test_every_field_is_normalized(world: FileWorld) -> None:
    world.write(
        [
            issue_record(
                state=" Todo ",
                dispatchable=False,
                description="Says helo.",
                priority=2.0,
                labels=[" Bug ", "bug", "", 7, "UI"],
                branch_name="issue/DEMO-1",
                url="https://tracker.example.invalid/1",
                assignees=["ada", "ada", None, "bob"],
                blocked_by=[{"id": "b1", "identifier": "DEMO-0", "state": "Done"}, {"state": 1}, "x"],
                created_at="2026-01-31T13:00:00+01:00",
                updated_at="2026-01-31T12:00:00.5Z",
                native_ref={"itemId": "I_1", "nested": {"any": [1, None]}},
                unknown=1,
            )
        ]
    )
    assert await only_issue(world) == Issue(
        id="id-DEMO-1",
        identifier="DEMO-1",
        title="Greeting is misspelled",
        state="Todo",
        dispatchable=False,
        description="Says helo.",
        priority=2,
        labels=("bug", "ui"),
        branch_name="issue/DEMO-1",
        url="https://tracker.example.invalid/1",
        assignees=("ada", "bob"),
        blocked_by=(
            Blocker(id="b1", identifier="DEMO-0", state="Done"),
            Blocker(id=None, identifier=None, state=None),
        ),
        created_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
        updated_at=datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
        native_ref=NativeRef({"itemId": "I_1", "nested": {"any": [1, None]}}),
    )


async def test_optional_fields_of_another_type_count_as_not_given(world: FileWorld) -> None:
    odd: dict[str, Any] = {
        "description": 1,
        "priority": True,
        "labels": "bug",
        "branch_name": [],
        "url": "",
        "assignees": {},
        "blocked_by": None,
        "created_at": "2026-01-31T12:00:00",
        "updated_at": 1_769_860_800,
        "native_ref": None,
    }
    world.write([issue_record(**odd)])
    assert await only_issue(world) == Issue(
        id="id-DEMO-1",
        identifier="DEMO-1",
        title="Greeting is misspelled",
        state="Todo",
        dispatchable=True,
        native_ref=NativeRef({"itemId": "id-DEMO-1"}),
    )


async def test_the_file_needs_no_secret(world: FileWorld) -> None:
    world.adapter.check_credential()
    assert (world.adapter.secret_environment_names(), world.adapter.profile().secrets) == (frozenset(), ())


@pytest.mark.parametrize(
    "changes",
    [
        {"path": Path("issues.json")},
        {"path": Path("/")},
        {"states": ()},
        {"states": ("Todo", " ")},
        {"states": ("Todo", "todo ")},
        {"author": " "},
        {"key": b"short"},
        {"lock_seconds": 0.0},
    ],
    ids=str,
)
async def test_settings_that_cannot_work_stop_the_start(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_for(**{"path": tmp_path / "issues.json", **changes})
    assert (refused.value.code, bool(refused.value.remedy)) == ("invalid_tracker_config", True)


async def test_the_hosts_key_is_not_shown(tmp_path: Path) -> None:
    shown = repr(settings_for(tmp_path / "issues.json"))
    assert repr(KEY)[2:-1] not in shown


async def test_a_file_that_the_agent_could_reach_is_refused(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    (workspace / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "into").symlink_to(workspace / "deep")
    (workspace / "out").symlink_to(outside)
    (outside / "linked.json").symlink_to(workspace / "issues.json")
    (tmp_path / "alias").symlink_to(workspace)
    refused = {
        str(path.relative_to(tmp_path)): is_refused(path, space)
        for path, space in (
            (workspace / "issues.json", workspace),
            (workspace / "deep" / "issues.json", tmp_path / "alias"),
            (outside / "into" / "issues.json", workspace),
            (workspace / "out" / "issues.json", workspace),
            (outside / "linked.json", workspace),
            (outside / "issues.json", workspace),
            (tmp_path / "workspace.json", workspace),
        )
    }
    assert refused == {
        "workspace/issues.json": True,
        "workspace/deep/issues.json": True,
        "outside/into/issues.json": True,
        "workspace/out/issues.json": True,
        "outside/linked.json": True,
        "outside/issues.json": False,
        "workspace.json": False,
    }


def is_refused(path: Path, workspace: Path) -> bool:
    world = FileWorld(path.parent)
    world.settings = settings_for(path)
    try:
        type(world.adapter)(world.settings).refuse_inside(workspace)
    except ConfigError as refused:
        return refused.code == "invalid_tracker_config"
    return False
