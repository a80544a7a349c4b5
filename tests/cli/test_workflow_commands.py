"""`hostside workflow`: what works of a file is shown before anything runs, and trust is of a content (D16)."""

import hashlib
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

TEXT = """\
---
tracker: {kind: file, active_states: [Todo]}
hooks: {after_create: npm ci}
polling: {interval_ms: 5}
colour: blue
---
Fix {{ issue.identifier }}.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "WORKFLOW.md"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_what_is_used_and_what_is_ignored_is_shown_before_and_after_trust(hostside: CommandLine, file: Path) -> None:
    digest = hashlib.sha256(TEXT.encode()).hexdigest()

    before = hostside("workflow", "show", str(file), "--json").json
    trusted = hostside("workflow", "trust", str(file), "--json").json
    after = hostside("workflow", "show", str(file), "--json").json

    facts = ("trusted", "sha256", "ignored", "unused", "unknown", "guarded", "prompt")
    assert {key: before[key] for key in facts} == {
        "trusted": False,
        "sha256": digest,
        "ignored": ["hooks.after_create"],
        "unused": ["polling.interval_ms"],
        "unknown": ["colour"],
        "guarded": {},
        "prompt": "Fix {{ issue.identifier }}.",
    }
    assert before["used"]["hooks"]["after_create"] is None
    assert before["used"]["tracker"]["active_states"] == ["Todo"]
    assert trusted == {
        "ok": True,
        "file": str(file),
        "sha256": digest,
        "trusted": True,
        "keys": ["hooks.after_create"],
    }
    assert (after["trusted"], after["ignored"], after["used"]["hooks"]["after_create"]) == (True, [], "npm ci")
    assert list(before) == list(after)


def test_any_change_of_a_trusted_file_is_not_trusted(hostside: CommandLine, file: Path) -> None:
    hostside("workflow", "trust", str(file))
    file.write_text(TEXT + " ", encoding="utf-8")

    assert hostside("workflow", "show", str(file), "--json").json["trusted"] is False


def test_the_text_form_names_each_ignored_key_and_what_to_do(hostside: CommandLine, file: Path) -> None:
    found = hostside("workflow", "show", str(file))

    assert "not trusted" in found.out
    assert "hooks.after_create is ignored" in found.err
    assert f"try: read it, then `hostside workflow trust {file}`" in found.err


@pytest.mark.parametrize("command", ["show", "trust"])
def test_a_file_that_cannot_be_used_is_an_error_and_is_not_trusted(
    hostside: CommandLine, tmp_path: Path, command: str
) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("---\na: [\n---\n", encoding="utf-8")

    codes = [hostside("workflow", command, str(path), "--json") for path in (wrong, tmp_path / "absent.md")]

    assert [(found.code, found.json["ok"], bool(found.json["error"]["remedy"])) for found in codes] == [
        (2, False, True),
        (2, False, True),
    ]
    assert not (hostside.world.state / "trusted-workflows.json").exists()
