"""What `explain` says is what a call would meet, and nothing runs for it (R-354)."""

from datetime import UTC, datetime, timedelta

import pytest

from hostside.core.call import Workspace
from hostside.core.explain import STEPS, explain
from hostside.core.locality import CallerDisk, Locality, Reach
from hostside.core.policy import Policy, Profile
from hostside.core.registry import Registry
from hostside.core.scope import PathTarget
from hostside.core.session import Session, open_session
from hostside.core.spec import Capability, SideEffect
from tests.support.gateways import call, make_gateway
from tests.support.tools import Recorder, a_tool, a_write_spec, schema

PATH = schema({"path": {"type": "string"}}, ("path",))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _session(
    *,
    disk: CallerDisk = CallerDisk.SHARED,
    profile: Profile = Profile.FULL,
    policy: Policy | None = None,
    edge: str = "stdio",
) -> Session:
    tools = [
        a_tool(Recorder(), name="look"),
        a_tool(Recorder(), spec=a_write_spec("change", confirm_on=frozenset({"tui"}))),
        a_tool(
            Recorder(),
            name="open",
            input_schema=PATH,
            locality=Locality.CALLER_FILESYSTEM,
            targets_of=lambda arguments, _context: (PathTarget(path=str(arguments["path"])),),
        ),
        a_tool(Recorder(), name="broken", targets_of=lambda _arguments, _context: 1 / 0),
    ]
    return open_session(
        session_id="s-1",
        registry=Registry(tools).snapshot(),
        edge=edge,
        server_id="srv-1",
        principal="p-1",
        profile=profile,
        reach=Reach(caller_disk=disk, server_checkout=False),
        opened_at=NOW,
        expires_at=NOW + timedelta(hours=1),
        workspace=Workspace(id="w", root="/work"),
        policy=policy,
    )


@pytest.mark.parametrize(
    ("session", "name", "arguments", "expected"),
    [
        (_session(), "look", {}, (True, None, None, "ok ok ok ok ok ok")),
        (_session(), "look", None, (True, None, None, "ok ok not_checked ok not_checked ok")),
        (
            _session(),
            "nope",
            None,
            (False, "unknown_tool", "unknown_tool", "refused " + "not_reached " * 5),
        ),
        (
            _session(disk=CallerDisk.UNPROVEN),
            "open",
            {"path": "a"},
            (False, "locality_refused", "disk_unproven", "ok refused " + "not_reached " * 4),
        ),
        (
            _session(disk=CallerDisk.NONE),
            "open",
            None,
            (False, "locality_refused", "no_caller_disk", "ok refused " + "not_reached " * 4),
        ),
        (
            _session(),
            "open",
            {"path": 1},
            (False, "invalid_arguments", "invalid_arguments", "ok ok refused " + "not_reached " * 3),
        ),
        (
            _session(profile=Profile.READONLY),
            "change",
            {},
            (False, "capability_denied", "profile_readonly", "ok ok ok refused not_reached not_reached"),
        ),
        (
            _session(),
            "open",
            {"path": "../b"},
            (False, "outside_workspace", "outside_workspace", "ok ok ok ok refused not_reached"),
        ),
        (
            _session(edge="tui"),
            "change",
            {},
            (False, "approval_required", "approval", "ok ok ok ok ok refused"),
        ),
        (
            _session(policy=Policy(confirm=frozenset({"look"}))),
            "look",
            None,
            (False, "approval_required", "approval", "ok ok not_checked ok not_checked refused"),
        ),
        (_session(), "broken", {}, (False, "check_crashed", "check_crashed", "ok ok ok ok refused not_reached")),
    ],
)
def test_an_explanation_names_the_step_that_refuses(
    session: Session, name: str, arguments: object, expected: tuple[bool, str | None, str | None, str]
) -> None:
    found = explain(session, name, arguments)

    outcomes = " ".join(check.outcome for check in found.checks)
    assert (found.would_run, found.code, found.blocker, outcomes) == (*expected[:3], expected[3].strip())
    assert tuple(check.step for check in found.checks) == STEPS
    assert bool(found.alternative) is bool(found.message) is not found.would_run


@pytest.mark.anyio
async def test_an_explanation_agrees_with_the_call_and_executes_nothing() -> None:
    recorder = Recorder()
    gateway = make_gateway(
        [
            a_tool(recorder, name="look"),
            a_tool(
                recorder, spec=a_write_spec("shell_like", capability=Capability.SHELL, side_effect=SideEffect.STATEFUL)
            ),
        ],
        profile=Profile.READONLY,
    )

    explained = [explain(gateway.session, name, {}) for name in ("look", "shell_like", "nope")]
    assert recorder.arguments == []

    called = [await call(gateway, name, {}) for name in ("look", "shell_like", "nope")]
    assert [(item.would_run, item.code) for item in explained] == [
        (result.ok, None if result.failure is None else result.failure.code) for result in called
    ]


def test_an_explanation_as_json_has_the_promised_keys() -> None:
    assert explain(_session(), "look", None).as_object() == {
        "would_run": True,
        "code": None,
        "blocker": None,
        "alternative": None,
        "checks": [
            {"step": "resolve", "outcome": "ok"},
            {"step": "locality", "outcome": "ok"},
            {"step": "validate", "outcome": "not_checked"},
            {"step": "authorize", "outcome": "ok"},
            {"step": "narrow", "outcome": "not_checked"},
            {"step": "approve", "outcome": "ok"},
        ],
        "message": None,
    }
