"""The prompt of WORKFLOW.md: strict Liquid over the issue's fields, bounded whatever the template does (Symphony §5.4)."""

import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from hostside.config.workflow import DEFAULT_PROMPT, parse_workflow
from hostside.core.issue import Blocker, Issue, NativeRef
from hostside.errors import ConfigError

ISSUE = Issue(
    id="1",
    identifier="ENG-1",
    title="{{ attempt }} {% include 'x' %}",
    state="Todo",
    dispatchable=True,
    description="{% for i in (1..9) %}x{% endfor %}\n{{ secret }}",
    priority=2,
    labels=("bug", "p1"),
    branch_name="eng-1",
    url="https://tracker.example/1",
    assignees=("ada",),
    blocked_by=(Blocker(id="2", identifier=None, state="Done"),),
    created_at=datetime(2026, 1, 2, tzinfo=UTC),
    native_ref=NativeRef({"node": "hidden"}),
)


def render(template: str, *, attempt: int | None = None, issue: Issue = ISSUE) -> str:
    return parse_workflow(template.encode(), trusted=False).render(issue, attempt=attempt)


def refusal(template: str) -> str:
    with pytest.raises(ConfigError) as caught:
        render(template)
    assert len(caught.value.message) < 400
    return caught.value.message.removeprefix("the prompt of WORKFLOW.md cannot be rendered: ")


def test_every_field_of_the_specification_is_there() -> None:
    template = """\
{{ issue.id }}|{{ issue.identifier }}|{{ issue.state }}|{{ issue.priority }}|{{ issue.labels | join: "," }}|\
{{ issue.branch_name }}|{{ issue.url }}|{{ issue.assignees[0] }}|{% for b in issue.blocked_by %}{{ b.id }}-{{ b.identifier }}-\
{{ b.state }}{% endfor %}|{{ issue.created_at }}|{{ issue.updated_at }}|{{ attempt }}|{% if attempt %}again{% endif %}"""
    assert render(template, attempt=2) == (
        "1|ENG-1|Todo|2|bug,p1|eng-1|https://tracker.example/1|ada|2--Done|2026-01-02T00:00:00+00:00||2|again"
    )
    assert render("{{ attempt }}{% if attempt %}again{% else %}first{% endif %}") == "first"


def test_what_the_issue_says_is_data_even_where_it_looks_like_a_template() -> None:
    assert render("{{ issue.title }}\n{{ issue.description }}") == f"{ISSUE.title}\n{ISSUE.description}"
    assert render("{% assign t = issue.title %}{{ t | append: '!' }}") == f"{ISSUE.title}!"


def test_without_a_prompt_there_is_a_short_one() -> None:
    assert render("---\nagent: {max_turns: 1}\n---\n \n") == render("")
    assert render(DEFAULT_PROMPT) == render("").rstrip("\n")
    assert render("") == f"You are working on issue ENG-1: {ISSUE.title}\n\n{ISSUE.description}\n"
    bare = Issue(id="1", identifier="A", title="T", state="S", dispatchable=True)
    assert render("", issue=bare) == "You are working on issue A: T\n\n\n"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ nope }}", "'nope' is undefined"),
        ("{{ issue.nope }}", "issue.nope is undefined"),
        ("{% if issue.nope %}x{% endif %}", "issue.nope is undefined"),
        ("{{ issue.native_ref }}", "issue.native_ref is undefined"),
        ("{{ issue.__class__ }}", "issue.__class__ is undefined"),
        ("{{ issue.title | nope }}", "unknown filter 'nope'"),
        ("{% nope %}", "unexpected tag 'nope'"),
        ("{% include '/etc/passwd' %}", "unexpected tag 'include'"),
        ("{% render 'x' %}", "unexpected tag 'render'"),
    ],
)
def test_what_is_unknown_fails(template: str, why: str) -> None:
    assert refusal(template) == why


@pytest.mark.parametrize("template", ["{{ issue.title", "{% if %}", "{% for i in %}{% endfor %}", "{% if true %}"])
def test_a_syntax_error_fails(template: str) -> None:
    assert refusal(template)


HOSTILE = {
    "a huge loop": "{% for i in (1..1000000000) %}{% endfor %}",
    "loops in loops": "{% for i in (1..1000) %}{% for j in (1..1000) %}{{ j }}{% endfor %}{% endfor %}",
    "a table": "{% tablerow i in (1..1000000000) %}x{% endtablerow %}",
    "a range as a list": "{{ (1..1000000000) | join: ',' }}",
    "doubled text": "{% assign x = 'ab' %}" + "{% assign x = x | append: x %}" * 60,
    "squared numbers": "{% assign x = 99999 %}" + "{% assign x = x | times: x %}" * 60,
    "squared text": "{% assign x = '" + "a" * 100_000 + "' %}{{ x | replace: 'a', x | size }}",
    "captured text": "{% assign x = 'ab' %}" + "{% capture x %}{{ x }}{{ x }}{% endcapture %}" * 60,
    "much output": "{% for i in (1..90000) %}0123456789{% endfor %}",
    "deep blocks": "{% if true %}" * 5_000,
    "a parser's worst case": "{{" * 60_000,
    "another one": "{% raw %}" * 20_000,
}


@pytest.mark.system
@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_template_ends_soon_and_in_words(template: str) -> None:
    began = time.monotonic()
    assert refusal(template).split(" ")[0] in ("it", "block")
    assert time.monotonic() - began < 15


@pytest.mark.system
def test_a_hostile_template_gets_512_megabytes_and_no_more() -> None:
    program = """
import resource, sys
from hostside.config.workflow_template import TemplateError, render_template
try:
    render_template(sys.argv[1], {})
except TemplateError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    argv = [sys.executable, "-c", program, HOSTILE["a range as a list"]]
    reason, kilobytes = subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout.splitlines()
    assert reason.startswith(b"it ")
    assert int(kilobytes) < 540_000


def test_a_long_issue_and_a_long_prompt_are_no_attack() -> None:
    issue = Issue(id="1", identifier="A", title="T", state="S", dispatchable=True, description="é" * 60_000)
    assert render("x" * 100_000 + "{{ issue.description }}", issue=issue) == "x" * 100_000 + "é" * 60_000


def test_the_renderer_gets_nothing_of_the_hosts_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []
    real = subprocess.run

    def recorded(argv: list[str], **options: Any) -> object:
        calls.append({"argv": argv, **options})
        return real(argv, **options)

    monkeypatch.setattr("hostside.config.workflow_template.subprocess.run", recorded)
    assert render("Work.") == "Work."
    (call,) = calls
    assert (call["env"], call["cwd"], "Work." in str(call["argv"])) == ({}, "/", False)
