"""`hostside doctor --as-agent`, as an operator runs it: nothing beyond the run's own surface for either agent."""

from pathlib import Path

import pytest

from tests.support.clients import find_claude, find_codex
from tests.support.host_world import make_world
from tests.system.test_planted_secrets import planted

pytestmark = pytest.mark.system


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_at_the_strongest_level_nothing_beyond_the_runs_own_surface_is_reached(agent: str, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    executable = find_claude() if agent == "claude" else find_codex()
    extra = planted(world)
    world.configure(f'[agent]\nkind = "{agent}"\nexecutable = "{executable}"\nkey = "env:THE_MODEL_KEY"\n')
    done = world.run("doctor", "--as-agent", agent, "--isolation", "bwrap", "--json", extra=extra)
    report = done.json()
    assert [check for check in report["checks"] if check["status"] == "fail"] == []
    assert (report["ok"], done.exit_code) == (True, 0)
    assert {check["detail"] for check in report["checks"] if check["status"] == "ok"} == {
        "a private /tmp, /run and /dev/shm",
        "its workspace and its home, writable",
        "the run's edge, with its own token",
        "the run's model port, with its own model token",
        "the run's way out, which refuses by name what is not listed",
        "the system, read-only",
    }


def test_an_agent_that_is_not_known_is_a_usage_error(tmp_path: Path) -> None:
    done = make_world(tmp_path).run("doctor", "--as-agent", "nobody")
    assert (done.exit_code, "Use claude or codex." in done.err) == (2, True)
