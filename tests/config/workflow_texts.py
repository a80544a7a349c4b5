"""Ways to read a WORKFLOW.md in a test, and a secret that no message may repeat."""

import pytest

from hostside.config.workflow import Workflow, WorkflowLimits, parse_workflow
from hostside.errors import ConfigError

LITERAL = "lin_api_0123456789abcdefXYZ"


def front(text: str, *, trusted: bool = False, limits: WorkflowLimits | None = None) -> Workflow:
    raw = f"---\n{text}\n---\nWork.".encode()
    return (
        parse_workflow(raw, trusted=trusted) if limits is None else parse_workflow(raw, trusted=trusted, limits=limits)
    )


def refusal(raw: bytes | str, *, trusted: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_workflow(raw.encode() if isinstance(raw, str) else raw, trusted=trusted)
    assert (caught.value.code, LITERAL in f"{caught.value} {caught.value.remedy}") == ("invalid_configuration", False)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value.message.removeprefix("WORKFLOW.md cannot be used: ").removesuffix(".")
