"""How the real clients are started against a scripted model: environment from nothing, no way out but loopback.

These are the tests' own recipes. What the product does with a client is the product's and is tested as such.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.support.stub_anthropic import StubAnthropic
from tests.support.stub_openai import StubOpenAI

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

# What the clients present to the scripted models; no real key is ever near them.
ANTHROPIC_KEY = "sk-ant-scripted"
OPENAI_KEY = "sk-scripted"
OPENAI_KEY_VARIABLE = "SCRIPTED_MODEL_KEY"

# The model name decides what Codex 0.171.0 offers. `gpt-5.5` is its only bundled model with plain function tools; it
# finds the tools of an MCP server with `tool_search`, they are not listed. A name that Codex does not know has plain
# function tools and lists those of MCP servers too. All other bundled models work in code mode.
FUNCTION_CALL_MODEL = "gpt-5.5"
LISTING_MODEL = "scripted-model"
CODE_MODE_MODEL = "gpt-6.2-sol"


def claude_environment(model: StubAnthropic, home: Path, *, retries: int = 0) -> dict[str, str]:
    """Claude Code's whole environment; `home` must exist.

    `retries` is how often it repeats a failed model request. Even with 0 it repeats a request that got 400, and one
    whose stream was cut, the latter without streaming.
    """
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "PATH": SYSTEM_PATH,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "ANTHROPIC_BASE_URL": model.base_url,
        "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
        "CLAUDE_CODE_MAX_RETRIES": str(retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def claude_arguments(
    prompt: str, *, tools: Sequence[str] = (), allowed: Sequence[str] = (), mcp_config: str | None = None
) -> list[str]:
    """Arguments of one `claude -p` run that reads nothing from the repository or the user.

    `tools` are the client's own tools that exist at all, `allowed` the permission rules (`mcp__hostside`, `Read`),
    `mcp_config` a file name or inline JSON. Output is one JSON event a line.
    """
    arguments = ["-p", prompt, "--output-format", "stream-json", "--verbose"]
    arguments += ["--setting-sources", "", "--strict-mcp-config", "--permission-mode", "dontAsk"]
    arguments += ["--tools", ",".join(tools)]
    if allowed:
        arguments += ["--allowedTools", ",".join(allowed)]
    if mcp_config is not None:
        arguments += ["--mcp-config", mcp_config]
    return arguments


def codex_environment(home: Path) -> dict[str, str]:
    """Codex's whole environment; `home` must exist. Makes `CODEX_HOME` and a temporary folder beside it.

    Codex makes no helper programs when its home lies under the temporary folder, where pytest's folders are: so it is
    told of another temporary folder, and `home` may be anywhere.
    """
    codex_home, temporary = home / ".codex", home / "tmp"
    codex_home.mkdir(exist_ok=True)
    temporary.mkdir(exist_ok=True)
    return {
        "PATH": SYSTEM_PATH,
        "HOME": str(home),
        "CODEX_HOME": str(codex_home),
        "TMPDIR": str(temporary),
        OPENAI_KEY_VARIABLE: OPENAI_KEY,
    }


def codex_arguments(model: StubOpenAI, *, name: str | None = None) -> list[str]:
    """The `-c` settings, for `codex app-server` and `codex exec` alike, that leave the scripted model as only peer.

    `name` is the model that Codex believes it talks to; it decides between function calls and code mode, and is by
    default the one that fits `model.code_mode`.
    """
    settings = {
        "model": f'"{name or (CODE_MODE_MODEL if model.code_mode else FUNCTION_CALL_MODEL)}"',
        "model_provider": '"stub"',
        "model_providers.stub.name": '"stub"',
        "model_providers.stub.base_url": f'"{model.base_url}"',
        "model_providers.stub.wire_api": '"responses"',
        "model_providers.stub.env_key": f'"{OPENAI_KEY_VARIABLE}"',
        "model_providers.stub.request_max_retries": "0",
        "model_providers.stub.stream_max_retries": "0",
        "analytics.enabled": "false",
        "features.plugins": "false",
        "web_search": '"disabled"',
        "project_doc_max_bytes": "0",
    }
    return [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A client that ran to its end."""

    exit_code: int
    stdout: str
    stderr: str


async def run_client(
    command: Sequence[str], *, environment: Mapping[str, str], cwd: Path, within: float = 60.0
) -> Finished:
    """Run to the end with empty standard input. Raises `TimeoutError`, the process killed, after `within` seconds."""
    with anyio.fail_after(within):
        done = await anyio.run_process(command, input=b"", check=False, env=environment, cwd=cwd)
    return Finished(exit_code=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())
