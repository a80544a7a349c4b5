"""The posture is written down where a reader of the README finds it, and names what the code has (R-075)."""

from pathlib import Path

from hostside.worker.isolation_level import IsolationLevel

ROOT = Path(__file__).resolve().parents[2]
POSTURE = ROOT / "docs" / "concepts" / "security.md"


def test_the_security_page_says_for_whom_what_is_walled_who_answers_and_what_is_left() -> None:
    text = POSTURE.read_text(encoding="utf-8")
    assert "**Intended for**" in text
    headings = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}
    assert {"Isolation levels", "Approvals and user input", "Tokens", "Known limits"} <= headings
    rows = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert {level.value for level in IsolationLevel} <= rows


def test_the_readme_leads_to_it() -> None:
    assert "docs/concepts/security.md" in (ROOT / "README.md").read_text(encoding="utf-8")
