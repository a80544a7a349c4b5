"""How Claude Code is started: arguments, environment, the one MCP server it is told of, what the host says to it.

Nothing the repository holds is read by it (`--setting-sources ""`, `--strict-mcp-config`: D24), and neither the token
nor the prompt is in an argument, a file or a variable.
"""

import json
import re
from pathlib import Path

from hostside.worker.agent import AgentSettings
from hostside.worker.sandbox_args import Bind

SERVER = "hostside"
TOOL_PREFIX = f"mcp__{SERVER}__"
NATIVE_TOOLS = ("Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Write")
"""The client's own tools with `native_tools = workspace`: files and shell of the run, no network, no sub-agents."""

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
"""Where the client finds what it presents to its model: as a key, and as a login."""

_INSIDE = "/opt/agent/claude"
# The entry's `timeout` is a hard wall around one call: the host's own deadlines must come first (facts: 60 s without it).
_LONGEST_CALL_SECONDS = 86_400.0
HANDSHAKE = "handshake"
"""The id of the control request that opens the control protocol."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,199}")


def claude_binds(executable: Path) -> tuple[Bind, ...]:
    """What a sandbox must show so that `executable` exists inside: the one file, nothing beside it."""
    real = executable.resolve(strict=True)
    return () if real.is_relative_to("/usr") else (Bind(source=real, target=_INSIDE),)


def native_tools(settings: AgentSettings) -> tuple[str, ...]:
    """The client's own tools that this run has (`agent.native_tools`)."""
    return NATIVE_TOOLS if settings.native_tools == "workspace" else ()


def http_config(url: str, token: str, settings: AgentSettings) -> bytes:
    """The MCP configuration of the HTTP edge: one server with a URL and one header, nothing else (R-203)."""
    return _config({"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}}, settings)


def inband_config(settings: AgentSettings) -> bytes:
    """The MCP configuration of the in-band edge: one server behind the client's own pipes, no address and no token."""
    return _config({"type": "sdk", "name": SERVER}, settings)


def _config(server: dict[str, object], settings: AgentSettings) -> bytes:
    # `alwaysLoad` offers the tools at once; by default the client hides them behind a search.
    timeout = int(min(settings.turn_timeout_seconds, _LONGEST_CALL_SECONDS) * 1000)
    return json.dumps({"mcpServers": {SERVER: {**server, "alwaysLoad": True, "timeout": timeout}}}).encode()


def arguments(
    settings: AgentSettings, *, executable: str, config: str, session_id: str, resume: str | None
) -> list[str]:
    """The command line. `config` is the path under which the process reads its MCP configuration.

    Options of `settings`: `max_model_turns` (model requests of one run) and `effort`. Raises `ValueError` for a value that
    the client could take for an option: the session to resume was named by an agent, the model perhaps by a repository.
    """
    native = native_tools(settings)
    command = [executable, "-p", "--input-format", "stream-json", "--output-format", "stream-json"]
    command += ["--verbose", "--include-partial-messages"]
    command += ["--setting-sources", "", "--strict-mcp-config", "--mcp-config", config]
    command += ["--permission-mode", "dontAsk", "--allowedTools", ",".join((f"mcp__{SERVER}", *native))]
    command += ["--tools", ",".join(native)]
    command += ["--session-id", session_id] if resume is None else ["--resume", _plain("--resume", resume)]
    for option, value in (
        ("--model", settings.model),
        ("--max-turns", settings.options.get("max_model_turns")),
        ("--effort", settings.options.get("effort")),
    ):
        if value is not None:
            command += [option, _plain(option, value)]
    return command


def variables(settings: AgentSettings, *, model_url: str, model_token: str, temporary: str | None) -> dict[str, str]:
    """The agent's own variables, beside the run's (`RunIsolation.environment`). Its key is the run's model token.

    `temporary`: where TMPDIR must point, None where the run has a /tmp of its own. Option of `settings`: `max_retries`.
    """
    # With a login the client asks the provider in another way than with a key; what it presents is the token in both.
    own = {
        KEY_VARIABLES[settings.model_login]: model_token,
        "ANTHROPIC_BASE_URL": model_url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        # Every tool is loaded at once; without this the client offers the model a placeholder for those to come.
        "ENABLE_TOOL_SEARCH": "false",
        # The client applies a configured proxy to loopback too.
        "NO_PROXY": "127.0.0.1,localhost",
    }
    if temporary is not None:
        own["TMPDIR"] = temporary
    if (retries := settings.options.get("max_retries")) is not None:
        own["CLAUDE_CODE_MAX_RETRIES"] = retries
    return own


def user_message(text: str) -> bytes:
    """One message of the user, as a line of `--input-format stream-json`."""
    message = {"role": "user", "content": text}
    return _line({"type": "user", "session_id": "", "parent_tool_use_id": None, "message": message})


def handshake_request() -> bytes:
    """The control line that opens the control protocol. The client connects its `sdk` servers before it answers."""
    return _line({"type": "control_request", "request_id": HANDSHAKE, "request": {"subtype": "initialize"}})


def interrupt_request() -> bytes:
    """The control line that ends the turn as Ctrl-C does: running calls are cancelled, the result is still written."""
    return _line({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})


def _plain(option: str, value: str) -> str:
    if not _PLAIN.fullmatch(value):
        raise ValueError(f"no usable value for {option}")
    return value


def _line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"
