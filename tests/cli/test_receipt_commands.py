"""`hostside receipts`: listable by run, issue, tool and outcome; one in full; chains recomputed (R-355)."""

import sqlite3

import pytest

from tests.cli.conftest import CommandLine, keys_of


@pytest.fixture
def called(hostside: CommandLine) -> CommandLine:
    """A host on which three calls were made: one ok, one refused, one failed."""
    hostside("call", "file_issue_comment_add", "--issue", "DEMO-1", "--arguments", '{"body": "hello"}')
    hostside("call", "read_file", "--arguments", '{"path": "../x"}')
    hostside("call", "read_file", "--arguments", '{"path": "absent"}')
    return hostside


def test_receipts_are_listed_by_what_is_asked(called: CommandLine) -> None:
    def tools(*words: str) -> list[tuple[str, str]]:
        found = called("receipts", "list", *words, "--json").json
        assert list(found) == ["receipts", "before"]
        return [(receipt["tool"], receipt["outcome"]) for receipt in found["receipts"]]

    comment, refused, failed = (
        ("file_issue_comment_add", "ok"),
        ("read_file", "refused"),
        ("read_file", "failed"),
    )
    assert tools() == [comment, refused, failed]
    assert tools("--issue", "DEMO-1") == [comment]
    assert tools("--tool", "read_file") == [refused, failed]
    assert tools("--outcome", "refused") == [refused]
    assert tools("--run", "r-none") == []
    assert tools("--limit", "1") == [failed]


def test_pages_go_back_to_the_first_receipt(called: CommandLine) -> None:
    seen: list[str] = []
    before: tuple[str, ...] = ()
    for _ in range(4):
        page = called("receipts", "list", "--limit", "1", *before, "--json").json
        seen += [receipt["outcome"] for receipt in page["receipts"]]
        before = ("--before", str(page["before"]))
        if page["before"] is None:
            break

    assert seen == ["failed", "refused", "ok"]


def test_the_table_names_what_happened(called: CommandLine) -> None:
    lines = called("receipts", "list").out.splitlines()

    assert lines[0].split() == "RECEIPT AT MS TOOL OUTCOME CODE EFFECT ISSUE RUN EDGE".split()
    rows = [line.split() for line in lines[1:]]
    assert [row[4:] for row in rows] == [
        ["file_issue_comment_add", "ok", "-", "reported", "DEMO-1", "-", "cli"],
        ["read_file", "refused", "outside_workspace", "none", "-", "-", "cli"],
        ["read_file", "failed", "tool_failed", "none", "-", "-", "cli"],
    ]


def test_one_receipt_shows_its_events_and_keeps_free_text_as_a_hash(called: CommandLine) -> None:
    first = called.world.receipts()[0]

    shown = called("receipts", "show", first["receipt_id"], "--json").json
    text = called("receipts", "show", first["receipt_id"]).out

    assert next(iter(shown)) == "receipt_id"
    assert [event["phase"] for event in shown["events"]] == ["started", "finished"]
    assert keys_of(shown["arguments"]) == {"body": {"sha256": None, "bytes": None}}
    assert "hello" not in text.partition("result ")[0]
    assert [event["hash"] in text for event in shown["events"]] == [True, True]


def test_whole_chains_are_verified_and_a_changed_row_is_named(called: CommandLine) -> None:
    assert called("receipts", "verify", "--json").json == {"ok": True, "sessions": 3, "receipts": 3, "broken": []}
    assert called("receipts", "verify").whole == (0, "3 receipts in 3 sessions: every chain holds\n", "")
    victim = called.world.receipts()[1]
    connection = sqlite3.connect(called.world.state / "hostside.db")
    with connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("UPDATE receipt_events SET tool = 'other' WHERE receipt_id = ?", [victim["receipt_id"]])
    connection.close()

    found = called("receipts", "verify", "--json")

    assert (found.code, found.json["ok"]) == (1, False)
    assert found.json["broken"] == [
        {
            "session_id": victim["session_id"],
            "seq": 1,
            "receipt_id": victim["receipt_id"],
            "reason": "its content does not match its hash",
        }
    ]
    good = called.world.receipts()[0]["session_id"]
    assert called("receipts", "verify", "--session", good).code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("receipts", "show", "rc-none"), 1, "there is no receipt rc-none."),
        (("receipts", "list", "--outcome", "good"), 2, "there is no outcome good."),
    ],
)
def test_what_does_not_exist_is_an_error_with_a_remedy(
    hostside: CommandLine, words: tuple[str, ...], code: int, message: str
) -> None:
    found = hostside(*words, "--json")

    assert (found.code, found.json["ok"], found.json["error"]["message"]) == (code, False, message)
    assert found.json["error"]["remedy"]
