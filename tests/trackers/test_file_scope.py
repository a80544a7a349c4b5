"""The issue is the wall: no word in a request moves it, and what the tracker calls an issue decides nothing elsewhere
(R-077..R-080, R-083..R-085, A0-08, A0-19)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostside.config.workflow import default_workflow
from hostside.core.call import ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.issue import Issue, NativeRef
from hostside.errors import FailureCode
from hostside.worker.workspace import branch_name, workspace_key
from tests.support.gateways import call, make_gateway, ok
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_post_spec, a_tool
from tests.trackers.contract import code_of, comment_in, gateway_for, issue_named
from tests.trackers.file_world import FileWorld, issue_record

pytestmark = pytest.mark.anyio
FOREIGN_REF = {"itemId": "PVTI_foreign", "number": 2}


def a_world(folder: Path, *, native_ref: Any = None) -> FileWorld:
    """Two issues; the first one has `native_ref`."""
    folder.mkdir(exist_ok=True)
    made = FileWorld(folder)
    made.write(
        [issue_record("DEMO-1", native_ref=native_ref), issue_record("DEMO-2", native_ref=FOREIGN_REF, state="Todo")]
    )
    return made


@pytest.fixture
def world(tmp_path: Path) -> FileWorld:
    return a_world(tmp_path)


#: The three ways past a guard that looks for the right id somewhere in the request: a constant of the reference, a decoy
#: beside a foreign target, and the state's name.
DECOYS = [
    json.dumps(FOREIGN_REF),
    "DEMO-1 id-DEMO-1 but write this to id-DEMO-2",
    "Todo",
    "DEMO-2",
    "id-DEMO-2",
    '{"issue": "id-DEMO-2", "id": "id-DEMO-2"}',
    'mutation { issueUpdate(id: "id-DEMO-2") { success } } # id-DEMO-1',
    "Closes DEMO-2",
]


@pytest.mark.parametrize("decoy", DECOYS)
async def test_whatever_a_text_names_the_write_is_on_the_runs_own_issue(world: FileWorld, decoy: str) -> None:
    before = world.entry("DEMO-2")
    gateway = await gateway_for(world, "DEMO-1")
    await ok(gateway, "file_issue_comment_add", {"body": decoy})
    await ok(gateway, "file_issue_move", {"target_state": "Done", "comment": f"again: {decoy}"})
    assert (world.bodies("DEMO-1"), world.state_of("DEMO-1")) == ([decoy, f"again: {decoy}"], "Done")
    assert world.entry("DEMO-2") == before


@pytest.mark.parametrize("decoy", DECOYS)
async def test_a_decoy_beside_a_foreign_comment_does_not_open_it(world: FileWorld, decoy: str) -> None:
    other = await gateway_for(world, "DEMO-2", session_id="s-2", run_id="r-2")
    foreign = str(comment_in(await ok(other, "file_issue_comment_add", {"body": "theirs"}))["id"])
    before = world.entry("DEMO-2")
    gateway = await gateway_for(world, "DEMO-1")
    for comment_id in (foreign, f"{foreign} id-DEMO-1", decoy[:50]):
        result = await call(gateway, "file_issue_comment_update", {"comment_id": comment_id, "body": decoy})
        assert code_of(result) in {FailureCode.OUTSIDE_ISSUE, FailureCode.INVALID_ARGUMENTS}
    assert (world.entry("DEMO-2"), world.bodies("DEMO-1")) == (before, [])


@pytest.mark.parametrize("name", ["issue", "issue_id", "id", "identifier", "native_ref", "project", "item_id", "path"])
async def test_a_target_among_the_arguments_is_an_unknown_property(world: FileWorld, name: str) -> None:
    arguments: dict[str, JsonObject] = {
        "file_issue_get": {},
        "file_issue_comments": {},
        "file_issue_states": {},
        "file_issue_comment_add": {"body": "x"},
        "file_issue_comment_update": {"comment_id": "1", "body": "x"},
        "file_issue_move": {"target_state": "Done"},
    }
    before, gateway = world.entries(), await gateway_for(world, "DEMO-1")
    assert set(arguments) == set(gateway.session.listed)
    for tool, given_arguments in arguments.items():
        result = await call(gateway, tool, {**given_arguments, name: "id-DEMO-2"})
        assert code_of(result) is FailureCode.INVALID_ARGUMENTS
    assert world.entries() == before


async def test_the_reference_reaches_the_adapters_tool_as_it_is_and_leaves_by_no_result(tmp_path: Path) -> None:
    reference = {"itemId": "PVTI_1", "nested": {"deep": [1, None, "é"]}}
    world = a_world(tmp_path, native_ref=reference)
    issue = await issue_named(world, "DEMO-1")
    execute = Recorder(ToolResult(structured={"id": "1"}))
    log = MemoryReceipts()
    recording = make_gateway([a_tool(execute, spec=a_post_spec())], issue=issue, receipts=log)
    await ok(recording, "demo_post", {"body": "x"})
    (context,) = execute.contexts
    assert context.issue == issue
    assert (context.issue.native_ref or NativeRef({})).open() == reference
    gateway = await gateway_for(world, "DEMO-1")
    told = [(await call(gateway, tool, {})).text() for tool in ("file_issue_get", "file_issue_comments")]
    assert not any("PVTI_1" in text for text in [*told, repr(log.events), gateway.session.instructions()])


async def test_an_issue_without_a_reference_has_none_and_its_tools_reach_no_further(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    bare = Issue(id="id-DEMO-1", identifier="DEMO-1", title="t", state="Todo", dispatchable=True)
    assert bare.native_ref is None
    gateway = make_gateway(world.adapter.tools(), issue=bare)
    await ok(gateway, "file_issue_move", {"target_state": "Done"})
    assert (world.state_of("DEMO-1"), world.state_of("DEMO-2")) == ("Done", "Todo")


REFERENCES = st.dictionaries(
    st.text(max_size=8),
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.just("id-DEMO-2")
    | st.lists(st.text(max_size=4)),
    max_size=4,
)


def _without_the_reference(entries: list[Any]) -> list[Any]:
    unstable = ("native_ref", "updated_at", "comments")
    return [{name: value for name, value in entry.items() if name not in unstable} for entry in entries]


@settings(max_examples=10)
@given(REFERENCES)
async def test_a_scrambled_reference_changes_nothing_outside_the_adapter(
    tmp_path_factory: pytest.TempPathFactory, reference: JsonObject
) -> None:
    seen = []
    for native_ref in (reference, {"itemId": "I_1"}):
        world = a_world(tmp_path_factory.mktemp("world"), native_ref=native_ref)
        issue = await issue_named(world, "DEMO-1")
        log = MemoryReceipts()
        gateway = await gateway_for(world, "DEMO-1", receipts=log)
        for tool, arguments in (
            ("file_issue_get", {}),
            ("file_issue_comment_add", {"body": "x"}),
            ("file_issue_move", {"target_state": "Done"}),
        ):
            assert (await call(gateway, tool, arguments)).ok
        calls = [(start.tool, start.operation_id, start.issue_id) for start in log.starts]
        decided = (branch_name(issue), workspace_key(issue.identifier), default_workflow().render(issue, attempt=None))
        seen.append((calls, decided, _without_the_reference(world.entries()), world.bodies("DEMO-1")))
    assert seen[0] == seen[1]
