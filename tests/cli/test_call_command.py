"""`hostside call`: the operator's own call, through the boundary, with a receipt."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.support.host_world import GREETING, git


def test_a_call_in_a_checkout_prints_the_text_that_an_agent_would_read(hostside: CommandLine) -> None:
    found = hostside("call", "read_file", "--arguments", '{"path": "greeting.py"}')

    assert (found.code, found.err) == (0, "")
    assert json.loads(found.out)["text"] == GREETING


def test_the_object_of_a_call_has_the_promised_keys_whether_it_succeeds_or_not(hostside: CommandLine) -> None:
    done = hostside("call", "list_dir", "--json")
    refused = hostside("call", "read_file", "--arguments", '{"path": "../x"}', "--json")
    failed = hostside("call", "read_file", "--arguments", '{"path": "absent"}', "--json")

    assert [done.code, refused.code, failed.code] == [0, 3, 1]
    assert list(done.json) == list(refused.json) == ["ok", "result", "failure", "receipt_id"]
    assert json.loads(done.json["result"]["text"]) == done.json["result"]["structured"]
    assert done.json["failure"] is None
    assert refused.json["result"] is None
    assert list(refused.json["failure"]) == ["code", "message", "remedy", "effect", "retry_after_ms", "details"]
    assert [item.json["failure"]["code"] for item in (refused, failed)] == ["outside_workspace", "tool_failed"]


def test_a_refused_call_says_why_what_to_do_and_where_its_receipt_is(hostside: CommandLine) -> None:
    found = hostside("call", "read_file")

    (receipt,) = hostside.world.receipts()
    assert found.whole == (
        3,
        "",
        "refused: invalid_arguments  /path: expected a value, got nothing.\n"
        "  try: Correct the arguments and call again; nothing was done.\n"
        f"  see: hostside receipts show {receipt['receipt_id']}   (effect none)\n",
    )


def test_an_issue_is_bound_by_its_identifier_and_the_write_is_recorded_as_the_operators(hostside: CommandLine) -> None:
    words = ("--issue", "DEMO-1", "--arguments", '{"target_state": "In Progress"}', "--json")
    found = hostside("call", "file_issue_move", *words)

    assert found.json["result"]["structured"]["state"] == "In Progress"
    assert hostside.world.issue("DEMO-1")["state"] == "In Progress"
    (receipt,) = hostside.world.receipts()
    facts = {key: receipt[key] for key in ("tool", "edge", "run_id", "issue_identifier", "outcome", "effect")}
    assert facts == {
        "tool": "file_issue_move",
        "edge": "cli",
        "run_id": None,
        "issue_identifier": "DEMO-1",
        "outcome": "ok",
        "effect": "verified",
    }


def test_without_an_issue_a_tracker_tool_is_refused_and_nothing_is_read(hostside: CommandLine) -> None:
    found = hostside("call", "file_issue_get", "--json")

    assert (found.code, found.json["failure"]["code"]) == (3, "outside_issue")


def test_an_unknown_issue_is_an_error_with_a_remedy_before_any_session_is_opened(hostside: CommandLine) -> None:
    found = hostside("call", "file_issue_get", "--issue", "DEMO-9", "--json")

    assert found.code == 2
    assert found.json == {
        "ok": False,
        "error": {
            "code": "invalid_configuration",
            "message": "there is no issue DEMO-9 in the tracker main.",
            "remedy": "Check the identifier; `hostside doctor` tells whether the tracker can be read.",
        },
    }
    with hostside.opened() as app:
        assert app.sessions.list() == ()


def test_the_workspace_is_the_whole_checkout_also_from_a_folder_in_it(
    hostside: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = hostside.project / "deep" / "er"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)

    assert hostside("call", "read_file", "--arguments", '{"path": "greeting.py"}').code == 0


def test_a_folder_that_holds_the_hosts_own_files_is_no_workspace(
    hostside: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostside.world.folder)

    read = hostside("call", "read_file", "--arguments", '{"path": "state/hostside/host.key"}', "--json")
    issue = hostside("call", "file_issue_get", "--issue", "DEMO-1", "--json")

    assert (read.code, read.json["failure"]["code"]) == (3, "outside_workspace")
    assert issue.code == 0


def test_arguments_come_from_a_file_too_and_wrong_json_is_a_usage_error(hostside: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text('{"path": "greeting.py"}', encoding="utf-8")

    assert hostside("call", "read_file", "--arguments", f"@{file}").code == 0
    for wrong in ('{"path": "a", "path": "b"}', "{", f"@{tmp_path / 'absent'}"):
        found = hostside("call", "read_file", "--arguments", wrong, "--json")
        assert (found.code, list(found.json), bool(found.json["error"]["remedy"])) == (2, ["ok", "error"], True)
    assert len(hostside.world.receipts()) == 1


def test_a_readonly_profile_narrows_the_operator_too(hostside: CommandLine) -> None:
    words = ("--profile", "readonly", "--arguments", '{"path": "a", "content": "b"}', "--json")
    found = hostside("call", "write_file", *words)

    assert (found.code, found.json["failure"]["code"]) == (3, "capability_denied")
    assert not (hostside.project / "a").exists()


def test_the_session_of_a_call_is_over_when_the_command_ends(hostside: CommandLine) -> None:
    hostside("call", "list_dir")

    with hostside.opened() as app:
        (session,) = app.sessions.list()
        assert (session["edge"], session["revoked_at"] is None) == ("cli", False)


def test_what_steers_a_terminal_arrives_escaped(hostside: CommandLine) -> None:
    (hostside.project / "x.txt").write_text("a\x1b]0;owned\x07b\u202ec", encoding="utf-8")

    out = hostside("call", "read_file", "--arguments", '{"path": "x.txt"}').out

    assert "\\u001b]0;owned\\u0007b\\u202ec" in out
    assert not any(character in out for character in "\x1b\x07\u202e")


@pytest.mark.system
def test_git_runs_in_a_checkout_and_in_a_linked_worktree_of_it(
    hostside: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worktree = tmp_path / "linked"
    git(hostside.project, "worktree", "add", "--quiet", str(worktree), "-b", "topic")
    before = sorted(Path("/tmp").glob("hostside-home-*"))

    branches = []
    for folder in (hostside.project, worktree):
        monkeypatch.chdir(folder)
        branches.append(hostside("call", "git_status", "--json").json["result"]["structured"]["branch"])

    assert branches == ["main", "topic"]
    assert sorted(Path("/tmp").glob("hostside-home-*")) == before


@pytest.mark.system
def test_a_git_file_that_points_elsewhere_opens_nothing_there(
    hostside: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    decoy = tmp_path / "decoy"
    decoy.mkdir()
    folder = hostside.world.folder / "seed" / ".git" / "worktrees" / "decoy"
    folder.mkdir(parents=True)
    (folder / "gitdir").write_text(str(tmp_path / "another" / ".git"), encoding="utf-8")
    (folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (folder / "commondir").write_text("../..\n", encoding="utf-8")
    (decoy / ".git").write_text(f"gitdir: {folder}\n", encoding="utf-8")
    monkeypatch.chdir(decoy)

    found = hostside("call", "git_status", "--json")

    assert (found.code, found.json["failure"]["code"]) == (1, "precondition_failed")
