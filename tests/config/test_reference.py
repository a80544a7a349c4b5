"""The generated pages leave out no key; `python -m hostside.docs --check` compares them with the repository (D19)."""

import json

from hostside.config.host import HostSettings
from hostside.config.reference import SCHEMA_PAGE, SETTINGS_PAGE, WORKFLOW_PAGE, render_settings
from hostside.config.workflow_front import KEYS, FrontMatter


def test_every_key_of_the_settings_is_described() -> None:
    schema = json.loads(render_settings()[SCHEMA_PAGE])
    bare = [
        f"{name}.{key}"
        for name, definition in schema["$defs"].items()
        for key, found in definition["properties"].items()
        if not found.get("description", "").endswith(".")
    ]
    assert bare == []
    page = render_settings()[SETTINGS_PAGE]
    missing = [
        key for definition in schema["$defs"].values() for key in definition["properties"] if f"| `{key}` |" not in page
    ]
    assert missing == []
    assert all(f"[{name}" in page for name in HostSettings.model_fields)


def test_every_key_that_is_read_of_a_workflow_is_on_its_page() -> None:
    read = {
        f"{section}.{key}"
        for section, field in FrontMatter.model_fields.items()
        for key in type(field.default).model_fields
    }
    named = {key.name for key in KEYS}
    assert read - named == set()
    page = render_settings()[WORKFLOW_PAGE]
    assert all(f"| `{name}` |" in page for name in named)
