"""Secrets planted all over the host are found nowhere in a run (A0-06, A0-13, C-26, R-332): environment, arguments, home,
workspace, generated files. The key of the agent's own model is one of them (D10)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_script import Call, Say, Script
from tests.support.clients import find_claude, find_codex
from tests.support.host_world import HostWorld, make_world
from tests.system.test_twin_runs import claude_model, codex_model

pytestmark = [pytest.mark.anyio, pytest.mark.system]
MODEL_KEY = "canary-model-key-0123456789"
CANARIES = {
    "GH_TOKEN": "canary-gh-token-0123456789",
    "GITHUB_TOKEN": "canary-github-0123456789",
    "LINEAR_API_KEY": "canary-linear-0123456789",
    "GITEA_TOKEN": "canary-gitea-0123456789",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-0123456789",
    "X_CUSTOM_SECRET": "canary-custom-0123456789",
    "SSH_AUTH_SOCK": "/canary-ssh-agent-0123456789",
    "GIT_ASKPASS": "/canary-askpass-0123456789",
}
FILES = {
    ".netrc": "machine tracker.example login x password canary-netrc-0123456789\n",
    ".git-credentials": "https://x:canary-git-credentials-0123456789@tracker.example\n",
    ".gitconfig": "[credential]\n\thelper = store\n[http]\n\textraHeader = canary-gitconfig-0123456789\n",
    ".config/gh/hosts.yml": "github.com:\n  oauth_token: canary-gh-login-0123456789\n",
    ".ssh/id_test": "canary-ssh-key-0123456789\n",
    ".claude/settings.json": '{"env": {"LEAK": "canary-claude-settings-0123456789"}}\n',
    ".codex/config.toml": 'developer_instructions = "canary-codex-config-0123456789"\n',
}
# Whatever the agent's shell can read of itself, of others and of files goes into one file of its workspace.
PLACES = ("/home", "/tmp", "/run", "/etc", "/var", "/opt/hostside")
PROBE = (
    "{ env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null </dev/null | head -c 4000000; "
    f"find {' '.join(PLACES)} -xdev -type f -size -64k -exec cat {{}} + 2>/dev/null | head -c 20000000; "
    "printf 'protocol=https\\nhost=tracker.example\\n\\n' | git credential fill 2>&1; ls -la ~ /home; "
    "} > probe.out 2>&1 </dev/null; echo probed"
)


def planted(world: HostWorld) -> dict[str, str]:
    """Plant every canary; return the host's extra environment."""
    home = world.folder / "home"
    for name, content in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    world.configure('[trackers.other]\nkind = "linear"\ntoken = "env:LINEAR_API_KEY"\nproject = "x"\n')
    world.configure('[code]\nkind = "github"\nrepository = "a/b"\ntoken = "env:GITHUB_TOKEN"\n')
    return {**CANARIES, "THE_MODEL_KEY": MODEL_KEY}


def texts(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root) / name
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()


@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_an_agent_that_reads_all_it_can_finds_no_secret_of_the_host(agent: str, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    extra = planted(world)
    shell = (
        Call("Bash", {"command": PROBE}, native=True)
        if agent == "claude"
        else Call("exec_command", {"cmd": PROBE, "yield_time_ms": 30_000}, native=True)
    )
    play: Script = [[Call("file_issue_get")], [shell], [Call("file_issue_move", {"target_state": "Done"})], Say("done")]
    make = claude_model if agent == "claude" else codex_model
    executable = find_claude() if agent == "claude" else find_codex()
    workflow = tmp_path / "WORKFLOW.md"
    workflow.write_text("---\ntracker: {name: main}\n---\nWork.\n", encoding="utf-8")
    async with make(play) as model:
        world.configure(
            f'[agent]\nkind = "{agent}"\nexecutable = "{executable}"\nbase_url = "{model.base_url}"\n'
            'key = "env:THE_MODEL_KEY"\n' + ('model = "gpt-5.5"\n' if agent == "codex" else "")
        )
        finished = await world.run_async(
            "run", "DEMO-1", "--json", "--isolation", "bwrap", "--workflow", str(workflow), extra=extra
        )
        assert finished.exit_code == 0, finished.err + finished.out
        read = "\n".join(str(request) for request in model.requests)
    probe = (world.workspace("DEMO-1") / "probe.out").read_bytes()
    assert len(probe) > 1_000, "the probe found nothing at all, so it proves nothing"
    assert b"HOSTSIDE_ISSUE_IDENTIFIER=DEMO-1" in probe
    secrets = [
        MODEL_KEY,
        *CANARIES.values(),
        *(word for text in FILES.values() for word in text.replace('"', " ").split() if "canary-" in word),
    ]
    found: list[str] = []
    places = [
        (Path("probe"), probe),
        (Path("model"), read.encode()),
        (Path("output"), (finished.out + finished.err).encode()),
    ]
    places += [*texts(world.state), *texts(world.workspace("DEMO-1"))]
    for where, content in places:
        found += [f"{secret} in {where}" for secret in secrets if secret.encode() in content]
    assert found == []
    assert b"canary" not in probe


async def test_the_runs_files_belong_to_this_user_alone(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    assert world.run("demo", "--json").exit_code == 0
    wrong = [
        (str(path.relative_to(world.state)), oct(path.stat().st_mode & 0o777))
        for path in [world.state, *world.state.glob("*"), *world.state.glob("runs/*")]
        if path.stat().st_mode & 0o077
    ]
    assert wrong == []
