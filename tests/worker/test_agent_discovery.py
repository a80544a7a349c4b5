"""What is said of an agent that is not there."""

import pytest

from hostside.errors import ConfigError
from hostside.worker.agent_discovery import find_agent


def test_an_agent_that_is_not_found_names_the_package_that_installs_it() -> None:
    with pytest.raises(ConfigError) as caught:
        find_agent("claude", None, {"PATH": ""})
    assert "npm install -g @anthropic-ai/claude-code@" in caught.value.remedy


@pytest.mark.parametrize("configured", [None, "/bin/sh"])
def test_a_mistyped_agent_never_becomes_a_package_to_install(configured: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        find_agent("cluade", configured, {"PATH": "/bin"})
    assert (str(caught.value), caught.value.remedy) == (
        "there is no agent cluade.",
        "Use claude, codex or scripted.",
    )
