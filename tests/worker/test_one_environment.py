"""The dump of an agent's environment, on each edge, is the one contract and the few variables of that agent (AX-52, R-330).

Tools' processes are compared in `test_isolation.py`, hooks in `test_hooks.py`. There is no agent command of one's own.
"""

import json
import shlex
import sys
from pathlib import Path

import pytest

from hostside.core.canonical import JsonObject
from hostside.worker.agent import AgentRuntime
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.claude import ClaudeRuntime
from hostside.worker.codex import CodexRuntime
from hostside.worker.codex_exec import CodexExecRuntime
from hostside.worker.isolation_level import IsolationLevel
from tests.support import fake_app_server, fake_codex_exec
from tests.support.agent_bench import MODEL_KEY, Bench, fake_claude_in, settings
from tests.worker.conftest import IsolationFactory

pytestmark = [pytest.mark.anyio, pytest.mark.system]
CANARY = "canary-of-the-host-0123456789"
HOST = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/srv/operator",
    "GH_TOKEN": CANARY,
    "LINEAR_API_KEY": CANARY,
    "HARMLESS_NAME": CANARY,
    "SSH_AUTH_SOCK": "/canary-agent",
    "GIT_CONFIG_GLOBAL": "/srv/operator/.gitconfig",
}
#: A declared secret whose name is also a run fact's.
FACTS = {"HOSTSIDE_ISSUE_IDENTIFIER": "DEMO-1", "HOSTSIDE_BRANCH": "x", "DECLARED": "x"}
CLAUDE_ALONE = {
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
    "ENABLE_TOOL_SEARCH",
    "NO_PROXY",
    "TMPDIR",
}
CODEX_ALONE = {"CODEX_HOME", "HOSTSIDE_MODEL_TOKEN"}
#: The stand-ins' own interpreter and shell name their locale and folder.
OF_THE_STAND_IN = {"LC_CTYPE", "PWD"}


def stand_in(folder: Path, program: str | None) -> Path:
    """An executable that is that module's program."""
    executable = folder / "codex"
    executable.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", str(program)])} "$@"\n')
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("kind", "edge", "runtime", "program", "alone"),
    [
        ("claude", "inband", ClaudeRuntime(), None, CLAUDE_ALONE),
        ("claude", "run-http", ClaudeRuntime("run-http"), None, CLAUDE_ALONE),
        ("codex", "codex", CodexRuntime(), fake_app_server.__file__, CODEX_ALONE),
        ("codex", "run-http", CodexExecRuntime(), fake_codex_exec.__file__, {*CODEX_ALONE, "HOSTSIDE_EDGE_TOKEN"}),
    ],
    ids=["claude in-band", "claude over http", "codex app-server", "codex exec"],
)
async def test_every_agent_gets_the_one_environment_and_its_own_few_variables(
    isolate: IsolationFactory,
    folder: Path,
    kind: str,
    edge: str,
    runtime: AgentRuntime,
    program: str | None,
    alone: set[str],
) -> None:
    source = EnvironmentSource(
        base=HOST, declared_secrets=frozenset({"DECLARED"}), secret_values=frozenset({CANARY}), run_facts=FACTS
    )
    isolation = isolate(IsolationLevel.HOME, environment=source)
    executable = fake_claude_in(folder) if kind == "claude" else stand_in(folder, program)
    bench = Bench(isolation=isolation, settings=settings(kind, executable), session_edge=edge)
    steps: list[JsonObject] = [{"do": "init"}, {"do": "result"}] if kind == "claude" else [{"complete": {}}]
    outcome = await bench.play(runtime, steps)
    assert outcome.reason == "completed"
    (report,) = isolation.home.glob("report.json*")
    found: dict[str, str] = json.loads(report.read_text("utf-8").splitlines()[0])["environment"]
    contract = isolation.environment()
    assert {name: found.get(name) for name in contract} == contract
    assert found.keys() - contract.keys() - OF_THE_STAND_IN == alone
    assert "DECLARED" not in found
    assert [text for text in (CANARY, MODEL_KEY, "canary-agent", "/srv/operator") if text in json.dumps(found)] == []
