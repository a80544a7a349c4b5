"""The reference is what the code says: one changed character fails (R-345..R-348, D19)."""

from pathlib import Path

import pytest

from hostside.core.registry import Registry
from hostside.docs import MEANINGS, drift, inventory_page, pages, tool_page
from hostside.errors import FailureCode
from tests.cli.conftest import CommandLine
from tests.support.tools import Recorder, a_tool, schema

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def written(hostside: CommandLine, tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    assert hostside("docs", "--root", str(root)).code == 0
    return root


def test_the_pages_of_this_repository_are_what_the_code_says(hostside: CommandLine) -> None:
    found = hostside("docs", "--check", "--root", str(ROOT), "--json")

    assert found.json["differing"] == []
    assert found.code == 0


def test_what_was_written_is_what_is_checked(hostside: CommandLine, written: Path) -> None:
    assert hostside("docs", "--check", "--root", str(written)).whole == (0, "", "")
    assert hostside("docs", "--root", str(written)).whole == (0, "", "")


@pytest.mark.parametrize(
    "page",
    [
        "tools.md",
        "tools/edit_file.md",
        "errors.md",
        "cli.md",
        "trackers/file.md",
        "settings.md",
        "workflow.md",
        "hostside.schema.json",
    ],
)
def test_one_changed_character_fails_and_names_the_page(hostside: CommandLine, written: Path, page: str) -> None:
    file = written / "docs" / "reference" / page
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("e", "E", 1), encoding="utf-8")

    found = hostside("docs", "--check", "--root", str(written))

    assert (found.code, found.out) == (1, f"docs/reference/{page}\n")
    assert found.err.endswith("  try: make snap\n")


def test_a_missing_page_and_a_page_of_a_tool_that_is_gone_fail_too(hostside: CommandLine, written: Path) -> None:
    tools = written / "docs" / "reference" / "tools"
    (tools / "edit_file.md").rename(tools / "edit_files.md")

    found = hostside("docs", "--check", "--root", str(written), "--json")

    differing = ["docs/reference/tools/edit_file.md", "docs/reference/tools/edit_files.md"]
    assert (found.code, found.json["differing"]) == (1, differing)
    hostside("docs", "--root", str(written))
    assert hostside("docs", "--check", "--root", str(written)).code == 0
    assert not (tools / "edit_files.md").exists()


def test_every_failure_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(FailureCode)


def test_every_command_and_option_is_on_the_page(hostside: CommandLine, written: Path) -> None:
    text = (written / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")

    commands = [line.removeprefix("## hostside ") for line in text.splitlines() if line.startswith("## ")]
    assert commands == [
        *("demo", "run", "serve", "http", "call", "doctor"),
        *("tools list", "tools show", "tools explain"),
        *("sessions open", "sessions list", "sessions revoke"),
        *("receipts list", "receipts show", "receipts verify"),
        *("runs list", "runs show", "runs stop"),
        *("workflow show", "workflow trust"),
    ]
    assert text.count("`--json`") == len(commands) + 1
    for command in commands:
        assert hostside(*command.split(), "--help").code == 0


def test_a_page_holds_every_fact_of_a_tool_and_nothing_can_break_its_tables() -> None:
    tool = a_tool(
        Recorder(),
        name="odd",
        description="One | two\nthree",
        input_schema=schema(
            {"a": {"type": "array", "items": {"type": "string"}, "description": "x | y", "maxItems": 2}}
        ),
        aliases=("former",),
        argument_aliases={"b": "a"},
        confirm_on=frozenset({"tui"}),
    )
    registry = Registry([tool]).snapshot()

    assert inventory_page(registry).splitlines()[-1] == (
        "| [`odd`](tools/odd.md) | remotable | read | read | normal | a | former, b = a | tui | {} |"
    )
    assert "| a | array of string | no | maxItems `2` | x \\| y (at most 2 items) |" in tool_page(registry.tools["odd"])


def test_drift_is_found_without_any_page_there(tmp_path: Path) -> None:
    registry = Registry([a_tool(Recorder(), name="one")]).snapshot()
    wanted = pages(registry, [], [])

    assert drift(tmp_path, wanted) == tuple(sorted(wanted))
