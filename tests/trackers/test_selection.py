"""Which tracker a run works on: one that is configured and known, or a typed error before anything starts (R-228, R-231)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hostside.app.host import App
from hostside.config.host import settings_from
from hostside.errors import ConfigError

SECRET = "lin_api_0123456789abcdefABCDEF"
FILE = {"kind": "file", "path": "/nonexistent/issues.json", "states": ["Todo"]}
LINEAR = {"kind": "linear", "token": "env:LINEAR_API_KEY", "project": "p"}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    # For good, and of the whole test process: other tests read their own /proc.
    monkeypatch.setattr("hostside.app.host.make_undumpable", lambda: None)
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "LINEAR_API_KEY": SECRET}


@pytest.mark.parametrize(
    ("trackers", "asked", "code"),
    [
        ({"main": LINEAR}, None, "unsupported_tracker_kind"),
        ({"main": LINEAR, "other": FILE}, "linear", "unsupported_tracker_kind"),
        ({}, None, "invalid_tracker_config"),
        ({"a": FILE, "b": FILE}, None, "invalid_tracker_config"),
        ({"a": FILE, "b": FILE}, "file", "invalid_tracker_config"),
        ({"a": FILE}, "absent", "invalid_tracker_config"),
    ],
)
def test_a_tracker_that_cannot_be_told_or_is_not_known_is_a_typed_error(
    environment: dict[str, str], trackers: Mapping[str, Any], asked: str | None, code: str
) -> None:
    settings = settings_from({"trackers": trackers}, source="test")
    with App.open(environment=environment, settings=settings) as app, pytest.raises(ConfigError) as refused:
        app.tracker(asked)
    assert (refused.value.code, bool(refused.value.remedy)) == (code, True)
    assert SECRET not in f"{refused.value.message} {refused.value.remedy}"


def test_the_one_that_is_named_is_taken_and_brings_its_own_tools_alone(environment: dict[str, str]) -> None:
    settings = settings_from({"trackers": {"a": FILE, "b": FILE, "main": LINEAR}}, source="test")
    with App.open(environment=environment, settings=settings) as app:
        name, adapter = app.tracker("b")
    assert (name, adapter.kind) == ("b", "file")
    assert {tool.spec.name.partition("_")[0] for tool in adapter.tools()} == {"file"}
