"""What of a WORKFLOW.md works without trust: prompt, states, turns and shorter timeouts (D16, R-229, R-338, R-360)."""

import pytest

from hostside.config.workflow import GUARDED, HooksPart, RuntimePart, WorkflowLimits, parse_workflow
from tests.config.workflow_texts import LITERAL, front, refusal

EVERYTHING_GUARDED = b"""\
---
tracker: {kind: linear, endpoint: "https://evil.example", api_key: $LINEAR}
workspace: {root: /srv}
hooks: {after_create: a, before_run: b, after_run: c, before_remove: d, timeout_ms: 1000}
codex: {command: x, approval_policy: never, thread_sandbox: danger, turn_sandbox_policy: {type: danger}, model: m-1}
claude: {command: x, permission_mode: bypassPermissions}
server: {port: 80}
---
"""


def test_every_guarded_key_is_ignored_and_named_without_trust() -> None:
    workflow = parse_workflow(EVERYTHING_GUARDED, trusted=False)
    assert workflow.ignored == (
        "tracker.endpoint",
        "tracker.api_key",
        "workspace.root",
        "hooks.after_create",
        "hooks.before_run",
        "hooks.after_run",
        "hooks.before_remove",
        "codex.command",
        "codex.approval_policy",
        "codex.thread_sandbox",
        "codex.turn_sandbox_policy",
        "claude.command",
        "claude.permission_mode",
        "server",
    )
    assert {name if name != "server" else "server.*" for name in workflow.ignored} == set(GUARDED)
    assert (workflow.hooks, workflow.guarded, workflow.tracker.kind, workflow.codex.model) == (
        HooksPart(timeout_ms=1_000),
        {},
        "linear",
        "m-1",
    )
    assert [notice.split(" ")[0] for notice in workflow.notices()] == list(workflow.ignored)


def test_trusted_content_gives_every_guarded_value_but_never_a_credential() -> None:
    workflow = parse_workflow(EVERYTHING_GUARDED, trusted=True)
    assert workflow.hooks == HooksPart(
        after_create="a", before_run="b", after_run="c", before_remove="d", timeout_ms=1_000
    )
    assert workflow.guarded == {
        "tracker.endpoint": "https://evil.example",
        "workspace.root": "/srv",
        "hooks.after_create": "a",
        "hooks.before_run": "b",
        "hooks.after_run": "c",
        "hooks.before_remove": "d",
        "codex.command": "x",
        "codex.approval_policy": "never",
        "codex.thread_sandbox": "danger",
        "codex.turn_sandbox_policy": {"type": "danger"},
        "claude.command": "x",
        "claude.permission_mode": "bypassPermissions",
        "server": {"port": 80},
    }
    assert (workflow.ignored, workflow.notices()) == ((), ())


@pytest.mark.parametrize("trusted", [False, True])
def test_a_secret_in_the_file_is_used_by_nobody_and_reported_without_its_value(trusted: bool) -> None:
    workflow = front(f"tracker: {{kind: linear, api_key: {LITERAL}}}", trusted=trusted)
    assert LITERAL not in repr(workflow)
    assert workflow.literal_secret
    assert "tracker.api_key holds a secret as itself. It is not used: remove and revoke it." in workflow.notices()


@pytest.mark.parametrize("value", ["$LINEAR_API_KEY", "''", "null"])
def test_a_reference_in_the_file_is_no_literal_secret(value: str) -> None:
    assert front(f"tracker: {{api_key: {value}}}").literal_secret is False


LIMITS = WorkflowLimits(turn_timeout_ms=1_000, read_timeout_ms=100, stall_timeout_ms=500, hook_timeout_ms=300)


def test_content_that_is_not_trusted_can_shorten_every_timeout() -> None:
    text = "codex: {turn_timeout_ms: 999, read_timeout_ms: 99, stall_timeout_ms: 499}\nhooks: {timeout_ms: '299'}"
    workflow = front(text, limits=LIMITS)
    assert (workflow.codex, workflow.hooks.timeout_ms, workflow.capped) == (
        RuntimePart(turn_timeout_ms=999, read_timeout_ms=99, stall_timeout_ms=499),
        299,
        (),
    )


@pytest.mark.parametrize("stall", ["501", "0", "-1", "9" * 40])
def test_content_that_is_not_trusted_cannot_lengthen_any(stall: str) -> None:
    text = f"""\
claude: {{turn_timeout_ms: 1001, read_timeout_ms: 101, stall_timeout_ms: {stall}}}
hooks: {{timeout_ms: 301}}"""
    workflow = front(text, limits=LIMITS)
    limit = RuntimePart(turn_timeout_ms=1_000, read_timeout_ms=100, stall_timeout_ms=500)
    assert (workflow.claude, workflow.codex, workflow.hooks.timeout_ms) == (limit, limit, 300)
    assert workflow.capped == (
        "hooks.timeout_ms",
        "claude.turn_timeout_ms",
        "claude.read_timeout_ms",
        "claude.stall_timeout_ms",
    )
    assert len(workflow.notices()) == 4


def test_trusted_content_can_lengthen_and_switch_stall_detection_off() -> None:
    workflow = front("codex: {turn_timeout_ms: 2000, stall_timeout_ms: 0}", trusted=True, limits=LIMITS)
    assert (workflow.codex, workflow.capped) == (
        RuntimePart(turn_timeout_ms=2_000, read_timeout_ms=100, stall_timeout_ms=0),
        (),
    )


@pytest.mark.parametrize("trusted", [False, True])
def test_a_hook_timeout_that_is_not_positive_means_the_default(trusted: bool) -> None:
    workflow = front("hooks: {timeout_ms: -5}", trusted=trusted, limits=LIMITS)
    assert (workflow.hooks.timeout_ms, workflow.capped) == (300, ())


def test_no_timeout_is_longer_than_a_day_even_with_trust() -> None:
    for name in ("turn_timeout_ms", "read_timeout_ms", "stall_timeout_ms"):
        raw = f"---\ncodex: {{{name}: 86400001}}\n---\n"
        assert refusal(raw, trusted=True) == f"codex.{name}: input should be less than or equal to 86400000"


def test_keys_without_effect_and_unknown_keys_are_listed() -> None:
    workflow = front(
        """\
tracker: {kind: linear, project_slug: p, colour: red}
polling: {interval_ms: 5}
agent: {max_concurrent_agents: 9}
plugins: {a: 1, b: {c: 2}}
theme: dark"""
    )
    assert (workflow.unused, workflow.unknown) == (
        ("tracker.project_slug", "polling.interval_ms", "agent.max_concurrent_agents"),
        ("tracker.colour", "plugins.a", "plugins.b", "theme"),
    )
    assert workflow.notices() == (
        "tracker.project_slug has no effect here.",
        "polling.interval_ms has no effect here.",
        "agent.max_concurrent_agents has no effect here.",
        "tracker.colour is not a known key and is ignored.",
        "plugins.a is not a known key and is ignored.",
        "plugins.b is not a known key and is ignored.",
        "theme is not a known key and is ignored.",
    )
