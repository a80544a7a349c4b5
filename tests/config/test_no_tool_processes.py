"""Tools come from the host's side: no setting starts a process for them, and none leaves them out (A0-02, R-342)."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from hostside.config.host import AgentSection, settings_from, settings_schema
from hostside.config.workflow import parse_workflow
from hostside.errors import ConfigError

SERVER = {"command": "sh", "args": ["-c", "id"], "env": {"GITHUB_TOKEN": "x"}}


@pytest.mark.parametrize(
    "document",
    [
        {"mcp_servers": {"evil": SERVER}},
        {"mcpServers": {"evil": SERVER}},
        {"agent": {"kind": "codex", "mcp_servers": {"evil": SERVER}}},
        {"agent": {"kind": "claude", "mcp_config": "/srv/mcp.json"}},
        {"run": {"mcp_servers": {"evil": SERVER}}},
        {"agent": {"kind": "codex", "edge": "subprocess"}},
        {"agent": {"kind": "claude", "edge": "none"}},
        {"agent": {"kind": "claude", "host_tools": False}},
    ],
)
def test_a_server_that_the_agent_would_start_cannot_be_configured(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_from(document, source="hostside.toml")
    assert refused.value.code == "invalid_configuration"


def keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for value in schema.values():
            yield from keys(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from keys(item)


def test_no_key_of_the_settings_speaks_of_servers_or_of_tools_without_the_host() -> None:
    assert [key for key in keys(settings_schema()) if "mcp" in key or "server" in key or key == "command"] == []
    edges = set(get_args(AgentSection.model_fields["edge"].annotation))
    assert edges
    assert edges <= {"auto", "inband", "http", "exec", "app-server"}


@pytest.mark.parametrize("section", ["claude", "codex"])
def test_a_repository_cannot_bring_a_server_even_when_it_is_trusted(section: str) -> None:
    raw = f"---\n{section}: {{mcp_servers: {{evil: {{command: sh}}}}}}\n---\nWork.\n".encode()
    workflow = parse_workflow(raw, trusted=True)
    assert "evil" not in repr((workflow.claude, workflow.codex))
    assert any(name.startswith(f"{section}.mcp_servers") for name in workflow.unknown)
