"""WORKFLOW.md: what its front matter may hold (Symphony §5)."""

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.config.workflow import (
    AgentPart,
    HooksPart,
    RuntimePart,
    TrackerPart,
    Workflow,
    default_workflow,
    parse_workflow,
    read_workflow,
    workflow_digest,
)
from hostside.errors import ConfigError
from tests.config.workflow_texts import LITERAL, front, refusal

SMALLEST = b"""\
---
tracker: {kind: linear, active_states: [Todo, Rework], terminal_states: [Done]}
hooks: {after_create: npm ci}
---
Fix {{ issue.identifier }}: {{ issue.title }}
{{ issue.description }}
"""
PROMPT = "Fix {{ issue.identifier }}: {{ issue.title }}\n{{ issue.description }}"


def test_the_smallest_workflow_of_the_design_says_what_it_says() -> None:
    tracker = TrackerPart(kind="linear", active_states=("Todo", "Rework"), terminal_states=("Done",))
    assert parse_workflow(SMALLEST, trusted=True) == Workflow(
        sha256=sha256(SMALLEST).hexdigest(),
        trusted=True,
        tracker=tracker,
        hooks=HooksPart(after_create="npm ci"),
        agent=AgentPart(),
        codex=RuntimePart(),
        claude=RuntimePart(),
        prompt=PROMPT,
        ignored=(),
        guarded={"hooks.after_create": "npm ci"},
    )
    untrusted = parse_workflow(SMALLEST, trusted=False)
    assert (untrusted.tracker, untrusted.hooks, untrusted.prompt, untrusted.ignored, untrusted.guarded) == (
        tracker,
        HooksPart(),
        PROMPT,
        ("hooks.after_create",),
        {},
    )


def test_a_repository_without_a_workflow_gets_the_defaults_of_the_specification() -> None:
    workflow = default_workflow()
    assert (workflow.tracker, workflow.agent.max_turns, workflow.codex, workflow.hooks.timeout_ms) == (
        TrackerPart(
            active_states=("Todo", "In Progress"),
            terminal_states=("Closed", "Cancelled", "Canceled", "Duplicate", "Done"),
        ),
        20,
        RuntimePart(turn_timeout_ms=3_600_000, read_timeout_ms=5_000, stall_timeout_ms=300_000),
        60_000,
    )
    assert (workflow.prompt, workflow.notices()) == ("", ())


@pytest.mark.parametrize(
    ("raw", "turns", "prompt"),
    [
        ("---\nagent: {max_turns: 3}\n---\nWork.\n", 3, "Work."),
        ("---\r\nagent:\r\n  max_turns: 3\r\n---\r\nWork.\r\n", 3, "Work."),
        ("\ufeff---\nagent: {max_turns: 3}\n---\nWork.", 3, "Work."),
        ("---  \nagent: {max_turns: 3}\n--- \t\nWork.", 3, "Work."),
        ("---\nagent: {max_turns: 3}\n---", 3, ""),
        ("---\nagent: {max_turns: 3}\n---\n  \n\n", 3, ""),
        ("---\n---\nWork.", 20, "Work."),
        ("---\n# only a comment\n---\nWork.", 20, "Work."),
        ("---\nagent:\ntracker:\n---\nWork.", 20, "Work."),
        ("---\nagent: {max_turns: null}\n---\nWork.", 20, "Work."),
        ("---\nagent: {max_turns: '7'}\n---\nWork.", 7, "Work."),
        (
            "---\nagent: {max_turns: 3}\n---\nWork.\n---\nagent: {max_turns: 9}\n",
            3,
            "Work.\n---\nagent: {max_turns: 9}",
        ),
        ("Work.\n---\nagent: {max_turns: 9}\n---\n", 20, "Work.\n---\nagent: {max_turns: 9}\n---"),
        ("\n---\nagent: {max_turns: 9}\n---\n", 20, "---\nagent: {max_turns: 9}\n---"),
        ("-----\nWork.", 20, "-----\nWork."),
        ("", 20, ""),
    ],
)
def test_front_matter_and_prompt_are_told_apart(raw: str, turns: int, prompt: str) -> None:
    workflow = parse_workflow(raw.encode(), trusted=False)
    assert (workflow.agent.max_turns, workflow.prompt) == (turns, prompt)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("---\nagent: {}\n", "its front matter is not closed by a line `---`"),
        ("---\nagent: {}\n ---\n", "its front matter is not closed by a line `---`"),
        (
            "--- # front\nagent: {}\n---\n",
            "its first line starts with `---` and goes on; front matter starts with `---` alone",
        ),
        ("---\n- 1\n---\n", "its front matter is not a map"),
        ("---\ntext\n---\n", "its front matter is not a map"),
        ("---\na: [1\n---\n", "its front matter is not accepted: expected ',' or ']', but got '<stream end>' (line 2)"),
        (
            f"---\ntracker:\n  api_key: [{LITERAL}\n---\n",
            "its front matter is not accepted: expected ',' or ']', but got '<stream end>' (line 3)",
        ),
        (
            f"---\ntracker:\n  api_key: '{LITERAL}\n---\n",
            "its front matter is not accepted: found unexpected end of stream (line 3)",
        ),
        (
            "---\nagent: {max_turns: 1}\nagent: {max_turns: 2}\n---\n",
            "its front matter is not accepted: the key 'agent' is given twice (line 3)",
        ),
        (
            "---\nhooks:\n  after_run: a\n  'after_run': b\n---\n",
            "its front matter is not accepted: the key 'after_run' is given twice (line 4)",
        ),
        ("---\na: &x 1\n---\n", "its front matter is not accepted: anchors are not accepted (line 2)"),
        ("---\na: *x\n---\n", "its front matter is not accepted: aliases are not accepted (line 2)"),
        (
            "---\na: !!python/object/apply:os.system [x]\n---\n",
            "its front matter is not accepted: tags are not accepted (line 2)",
        ),
        ("---\na: ! x\n---\n", "its front matter is not accepted: tags are not accepted (line 2)"),
        ("---\n1: x\n---\n", "its front matter is not accepted: a key that is not text (line 2)"),
        ("---\ntrue: x\n---\n", "its front matter is not accepted: a key that is not text (line 2)"),
        ("---\n? [a]\n: x\n---\n", "its front matter is not accepted: a key that is not text (line 2)"),
        ("---\na: " + "[" * 30_000 + "\n---\n", "its front matter is not accepted: it is nested too deeply (line 2)"),
        ("---\na: " + "x" * 65_536 + "\n---\n", "its front matter is larger than 65536 bytes"),
        ("---\na: \x01\n---\n", "its front matter is not YAML (ReaderError)"),
        ("Work.\0", "it holds a null character"),
        (b"\xff", "it is not UTF-8"),
        (b"x" * 262_145, "it is larger than 262144 bytes"),
        ("---\nagent: 3\n---\n", "agent: input should be a valid dictionary or instance of AgentPart"),
        (f"---\nhooks: {LITERAL}\n---\n", "hooks: input should be a valid dictionary or instance of HooksPart"),
        ("---\nagent: {max_turns: true}\n---\n", "agent.max_turns: expected an integer"),
        ("---\nagent: {max_turns: 1.5}\n---\n", "agent.max_turns: expected an integer"),
        ("---\nagent: {max_turns: many}\n---\n", "agent.max_turns: expected an integer"),
        ("---\nagent: {max_turns: 0}\n---\n", "agent.max_turns: input should be greater than or equal to 1"),
        ("---\nagent: {max_turns: 1001}\n---\n", "agent.max_turns: input should be less than or equal to 1000"),
        (
            "---\nagent: {max_turns: " + "9" * 5000 + "}\n---\n",
            "agent.max_turns: input should be less than or equal to 1000",
        ),
        ("---\ncodex: {turn_timeout_ms: soon}\n---\n", "codex.turn_timeout_ms: expected an integer"),
        (
            "---\ncodex: {turn_timeout_ms: 0}\n---\n",
            "codex.turn_timeout_ms: input should be greater than or equal to 1",
        ),
        (
            "---\ntracker: {active_states: 3}\n---\n",
            "tracker.active_states: expected a list of states, or text with commas",
        ),
        (
            "---\ntracker: {active_states: [Todo, 3]}\n---\n",
            "tracker.active_states: expected a list of states, or text with commas",
        ),
        (
            "---\ntracker: {terminal_states: {a: b}}\n---\n",
            "tracker.terminal_states: expected a list of states, or text with commas",
        ),
        ("---\ntracker: {kind: [linear]}\n---\n", "tracker.kind: input should be a valid string"),
        (
            "---\nclaude: {model: --dangerously-skip-permissions}\n---\n",
            r"claude.model: must match ^[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}$",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_place_and_never_by_value(raw: str | bytes, why: str) -> None:
    assert refusal(raw) == why


def test_a_trusted_hook_must_be_a_script() -> None:
    assert refusal("---\nhooks: {after_create: [npm, ci]}\n---\n", trusted=True) == (
        "hooks.after_create: input should be a valid string"
    )


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("[Todo, Rework]", ("Todo", "Rework")),
        ("Todo, In Review ,, Rework", ("Todo", "In Review", "Rework")),
        ("[' Todo ']", ("Todo",)),
        (
            "[On, no, Yes, 1:30, 0x1F, 2026-01-01, 1_000, '<<']",
            ("On", "no", "Yes", "1:30", "0x1F", "2026-01-01", "1_000", "<<"),
        ),
        ("[]", ()),
        ("Todo", ("Todo",)),
    ],
)
def test_states_are_a_list_or_text_with_commas(text: str, states: tuple[str, ...]) -> None:
    assert (
        front(f"tracker: {{active_states: {text}}}").tracker.active_states == states
        if text[0] == "["
        else (front(f"tracker:\n  active_states: {text}").tracker.active_states == states)
    )


def test_any_other_byte_is_other_content() -> None:
    digests = {workflow_digest(raw) for raw in (SMALLEST, SMALLEST + b"\n", SMALLEST.replace(b"\n", b"\r\n"))}
    assert len(digests) == 3
    assert parse_workflow(SMALLEST, trusted=False).sha256 == workflow_digest(SMALLEST)


def test_a_file_that_was_named_must_be_readable(tmp_path: Path) -> None:
    file = tmp_path / "WORKFLOW.md"
    for problem, path in (
        ("does not exist", file),
        ("not a regular file", tmp_path),
        ("not a regular", Path("/dev/zero")),
    ):
        with pytest.raises(ConfigError, match=problem):
            read_workflow(path)
    file.write_bytes(SMALLEST)
    assert read_workflow(file) == SMALLEST
    file.write_bytes(b"x" * 262_145)
    with pytest.raises(ConfigError, match="262144 bytes"):
        read_workflow(file)


YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "timeout_ms", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["tracker", "hooks", "agent", "codex", "server", "x"]), YAML), st.booleans())
def test_no_front_matter_breaks_the_reader(document: dict[str, object], trusted: bool) -> None:
    text = "\n".join(f"{key}: {value!r}" for key, value in document.items())
    try:
        workflow = front(text, trusted=trusted)
    except ConfigError:
        return
    assert workflow.trusted == trusted


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: f"---\n{text}\n---\n".encode()))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    try:
        workflow = parse_workflow(raw, trusted=False)
    except ConfigError:
        return
    assert workflow.hooks == HooksPart(timeout_ms=workflow.hooks.timeout_ms)
