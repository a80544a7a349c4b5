"""Writing the tracker file: whole or not at all, and nothing lost that was there (R-264, R-265, AX-41, AX-45, C-06)."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.errors import Effect, FailureCode
from hostside.trackers.file_document import read_document
from tests.support.gateways import call, ok
from tests.support.memory_receipts import MemoryReceipts
from tests.support.shared_data import shared
from tests.trackers.contract import code_of, comment_in, gateway_for
from tests.trackers.file_world import FileWorld, issue_record, issues_at

MARKS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
ANYTHING = st.recursive(
    MARKS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
OTHERS = st.lists(ANYTHING | st.just({"id": 1, "title": None}) | st.just(issue_record("DEMO-2", x=[1.50])), max_size=4)


@pytest.fixture
def world(tmp_path: Path) -> FileWorld:
    made = FileWorld(tmp_path)
    made.write([issue_record("DEMO-1"), issue_record("DEMO-2")])
    return made


@given(
    before=OTHERS, after=OTHERS, extra=ANYTHING, indent=st.sampled_from([None, 0, 2, "\t"]), ascii_only=st.booleans()
)
def test_a_write_leaves_every_other_byte_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Any],
    after: list[Any],
    extra: Any,
    indent: int | str | None,
    ascii_only: bool,
) -> None:
    path = tmp_path_factory.mktemp("tracker") / "issues.json"
    entries = [*before, issue_record("DEMO-1", extra=extra), *after]
    path.write_text(json.dumps(entries, indent=indent, ensure_ascii=ascii_only) + "\n", encoding="utf-8")
    old = read_document(path)
    issues_at(path).add_comment("id-DEMO-1", "hello", "operation-1")
    new = read_document(path)
    place = len(before)
    (start, end), (new_start, new_end) = old.spans[place], new.spans[place]
    assert (new.text[:new_start], new.text[new_end:]) == (old.text[:start], old.text[end:])
    written = json.loads(new.text)
    changed = written.pop(place)
    assert written == [*before, *after]
    assert {key: changed[key] for key in entries[place]} == entries[place]
    assert set(changed) - set(entries[place]) == {"comments", "updated_at"}


@pytest.mark.anyio
async def test_bodies_arrive_byte_for_byte(world: FileWorld) -> None:
    rows = [json.loads(line) for line in shared("cases/cases.jsonl").read_text().splitlines()]
    texts = [row["input"]["text"] for row in rows if row["id"].startswith("C-06") and "text" in row["input"]]
    gateway = await gateway_for(world, "DEMO-1")
    for text in texts:
        await ok(gateway, "file_issue_comment_add", {"body": text})
    assert (len(texts), world.bodies("DEMO-1")) == (5, texts)
    assert texts[2].encode().decode("utf-8") in [
        comment["body"] for comment in json.loads(world.path.read_bytes().decode("utf-8"))[0]["comments"]
    ]


@pytest.mark.anyio
async def test_a_stored_comment_says_who_wrote_it_when_and_with_which_key(world: FileWorld) -> None:
    gateway = await gateway_for(world, "DEMO-1")
    shown = comment_in(await ok(gateway, "file_issue_comment_add", {"body": "hello"}))
    (stored,) = world.entry("DEMO-1")["comments"]
    key = stored.pop("key")
    assert ({**stored, "editable": True}, len(key)) == (shown, 65)
    assert (shown["id"], shown["author"]) == ("1", "hostside")
    assert world.entry("DEMO-1")["updated_at"] >= str(shown["created_at"])


@pytest.mark.anyio
@pytest.mark.parametrize("forgery", ["no key", "key of another comment", "author changed", "moved to another issue"])
async def test_a_forged_author_is_not_believed(world: FileWorld, forgery: str) -> None:
    gateway = await gateway_for(world, "DEMO-1")
    await ok(gateway, "file_issue_comment_add", {"body": "ours"})
    (genuine,) = world.entry("DEMO-1")["comments"]
    forged = {
        "no key": {"id": "9", "body": "forged", "author": "hostside"},
        "key of another comment": {**genuine, "id": "9"},
        "author changed": {**genuine, "author": "someone"},
        "moved to another issue": genuine,
    }[forgery]
    issue = "DEMO-2" if forgery == "moved to another issue" else "DEMO-1"
    world.change(issue, comments=[forged])
    bound = await gateway_for(world, issue, session_id="s-2")
    result = await call(bound, "file_issue_comment_update", {"comment_id": forged["id"], "body": "x"})
    assert (code_of(result), world.bodies(issue)) == (FailureCode.OUTSIDE_ISSUE, [forged["body"]])


@pytest.mark.anyio
async def test_a_comment_that_someone_else_marked_does_not_swallow_ours(world: FileWorld) -> None:
    gateway = await gateway_for(world, "DEMO-1")
    await ok(gateway, "file_issue_comment_add", {"body": "ping"})
    (genuine,) = world.entry("DEMO-1")["comments"]
    world.change("DEMO-1", comments=[{**genuine, "author": "someone"}])
    again = await gateway_for(world, "DEMO-1", session_id="s-2")
    answer = await ok(again, "file_issue_comment_add", {"body": "ping"})
    assert (answer["unchanged"], world.bodies("DEMO-1")) == (False, ["ping", "ping"])


@pytest.mark.anyio
async def test_malformed_comments_are_skipped_and_kept(world: FileWorld) -> None:
    odd = [None, {"id": "5"}, {"id": "6", "body": 1}, {"id": 7, "body": "number"}, {"id": "8", "body": "good"}]
    world.change("DEMO-1", comments=odd)
    gateway = await gateway_for(world, "DEMO-1")
    await ok(gateway, "file_issue_comment_add", {"body": "new"})
    listed = (await ok(gateway, "file_issue_comments"))["comments"]
    assert isinstance(listed, list)
    assert [(one["id"], one["body"]) for one in listed if isinstance(one, dict)] == [("8", "good"), ("9", "new")]
    assert world.entry("DEMO-1")["comments"][:5] == odd


@pytest.mark.anyio
async def test_comments_that_are_no_array_are_an_error_and_stay(world: FileWorld) -> None:
    world.change("DEMO-1", comments={"1": "x"})
    gateway = await gateway_for(world, "DEMO-1")
    for tool, arguments in (("file_issue_comments", {}), ("file_issue_comment_add", {"body": "x"})):
        assert code_of(await call(gateway, tool, arguments)) is FailureCode.TRACKER_RESPONSE
    assert world.entry("DEMO-1")["comments"] == {"1": "x"}


@pytest.mark.anyio
async def test_a_page_of_long_comments_ends_early_and_goes_on(world: FileWorld) -> None:
    bodies = [f"{number}" + "é" * 9_000 for number in range(3)]
    world.change("DEMO-1", comments=[{"id": str(number), "body": body} for number, body in enumerate(bodies)])
    gateway = await gateway_for(world, "DEMO-1")
    first = await call(gateway, "file_issue_comments", {})
    second = await ok(gateway, "file_issue_comments", {"cursor": first.structured["next_cursor"]})
    pages = [page["comments"] for page in (first.structured, second)]
    assert [
        [str(one["body"]) for one in page if isinstance(one, dict)] for page in pages if isinstance(page, list)
    ] == [
        bodies[:1],
        bodies[1:2],
    ]
    assert len(first.text().encode()) <= 40_000


@pytest.mark.anyio
async def test_a_cursor_is_refused_once_the_comments_before_it_have_changed(world: FileWorld) -> None:
    world.change("DEMO-1", comments=[{"id": str(number), "body": "x"} for number in range(3)])
    gateway = await gateway_for(world, "DEMO-1")
    cursor = (await ok(gateway, "file_issue_comments", {"limit": 2}))["next_cursor"]
    world.change("DEMO-1", comments=[{"id": str(number), "body": "x"} for number in (0, 2)])
    result = await call(gateway, "file_issue_comments", {"cursor": cursor})
    assert code_of(result) is FailureCode.TRACKER_PAGINATION


@pytest.mark.anyio
async def test_a_full_disk_changes_nothing_and_says_so(world: FileWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    gateway = await gateway_for(world, "DEMO-1")
    before = world.path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        result = await call(gateway, "file_issue_comment_add", {"body": "x"})
    failure = result.failure
    assert failure is not None
    assert (failure.code, failure.effect, "ENOSPC" in failure.message, world.path.read_bytes() == before) == (
        FailureCode.TRACKER_REQUEST,
        Effect.NONE,
        True,
        True,
    )
    assert (await call(gateway, "file_issue_comment_add", {"body": "x"})).ok


@pytest.mark.anyio
async def test_a_write_that_the_disk_did_not_confirm_is_not_known(
    world: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).is_dir():
            raise OSError(errno.EIO, "input/output error")
        real(handle)

    gateway = await gateway_for(world, "DEMO-1")
    monkeypatch.setattr(os, "fsync", fsync)
    result = await call(gateway, "file_issue_move", {"target_state": "Done"})
    failure = result.failure
    assert failure is not None
    assert (failure.code, failure.effect) == (FailureCode.EFFECT_UNKNOWN, Effect.UNKNOWN)


@pytest.mark.anyio
async def test_a_move_that_someone_undid_at_once_is_not_reported_as_done(
    world: FileWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await gateway_for(world, "DEMO-1")
    real = os.replace

    def replace_and_undo(source: str, target: str) -> None:
        real(source, target)
        world.change("DEMO-1", state="Todo")

    monkeypatch.setattr(os, "replace", replace_and_undo)
    result = await call(gateway, "file_issue_move", {"target_state": "Done"})
    assert code_of(result) is FailureCode.EFFECT_UNKNOWN


@pytest.mark.anyio
async def test_the_file_keeps_its_permissions_and_leaves_no_temporary(world: FileWorld) -> None:
    world.path.chmod(0o640)
    await ok(await gateway_for(world, "DEMO-1"), "file_issue_move", {"target_state": "Done"})
    assert world.path.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in world.path.parent.iterdir()) == [".issues.json.lock", "issues.json"]


@pytest.mark.anyio
async def test_receipts_keep_no_text_of_a_comment(world: FileWorld) -> None:
    receipts = MemoryReceipts()
    bound = await gateway_for(world, "DEMO-1", receipts=receipts)
    await ok(bound, "file_issue_comment_add", {"body": "very private"})
    await ok(bound, "file_issue_move", {"target_state": "Done", "comment": "very private"})
    assert len(receipts.starts) == 2
    assert "very private" not in repr(receipts.events)
    assert [(end.effect, end.outcome.value) for end in receipts.ends] == [
        (Effect.REPORTED, "ok"),
        (Effect.VERIFIED, "ok"),
    ]
