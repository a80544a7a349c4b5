"""How `codex exec` is started: one MCP server, required and on the run's own listener; nothing of the task in an argument.

The token is in a variable, since this client reads it from nowhere else. The agent's shell does not inherit it, but where
Codex's own sandbox is off it can read it in the agent's process: it grants that shell what it has anyway (D24).
"""

import re
from collections.abc import Mapping

from hostside.worker.agent import AgentSettings
from hostside.worker.codex_launch import codex_settings, sandbox_mode, settings_arguments
from hostside.worker.isolation_level import IsolationLevel

SERVER = "hostside"
EDGE_TOKEN_VARIABLE = "HOSTSIDE_EDGE_TOKEN"
# `exec resume` takes a thread's name too, and an option where a word looks like one; the id was named by an agent.
_THREAD_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_CALL_SECONDS = 86_400
# Codex gives up on a server before the host gives up on Codex, so it can still say why.
_START_PART = 0.8


def exec_words(settings: Mapping[str, str | int | bool], *, resume: str | None) -> tuple[str, ...]:
    """Return the arguments after the program; the prompt is read from standard input.

    A setting that this Codex does not know stops it, so that none of them is ever left out unseen. Raises `ValueError`
    when `resume` is no thread id.
    """
    if resume is not None and not is_thread_id(resume):
        raise ValueError("the thread to resume is no thread id")
    flags = ("--json", "--skip-git-repo-check", "--ignore-user-config", "--ignore-rules", "--strict-config")
    thread = () if resume is None else ("resume", resume)
    return ("exec", *flags, *settings_arguments(settings), *thread, "-")


def exec_settings(
    settings: AgentSettings, *, level: IsolationLevel, edge_url: str, model_url: str
) -> dict[str, str | int | bool]:
    """Return Codex's configuration: that of every run, and the run's tools behind `edge_url`.

    `required` makes it wait for them and end without them (D24); calls have the host's deadlines, not its own.
    """
    native = settings.native_tools != "off"
    server = f"mcp_servers.{SERVER}"
    return {
        **codex_settings(model=settings.model, base_url=model_url, shell=native),
        f"{server}.url": edge_url,
        f"{server}.bearer_token_env_var": EDGE_TOKEN_VARIABLE,
        f"{server}.required": True,
        # The host decides; what Codex would ask, nobody is there to answer.
        f"{server}.default_tools_approval_mode": "approve",
        f"{server}.startup_timeout_sec": max(1, int(settings.start_timeout_seconds * _START_PART)),
        f"{server}.tool_timeout_sec": max(1, int(min(settings.turn_timeout_seconds, _LONGEST_CALL_SECONDS))),
        "approval_policy": "never",
        # Some models keep an editor that no feature switches off.
        "sandbox_mode": sandbox_mode(level) if native else "read-only",
    }


def is_thread_id(text: str) -> bool:
    """Return whether `text` is the id of a thread, which `codex exec resume` takes for nothing else."""
    return _THREAD_ID.fullmatch(text) is not None
