"""The reference pages of both configuration files, generated from the code that reads them (D19)."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hostside.config.host import settings_schema
from hostside.config.workflow_front import KEYS, Rule

SCHEMA_PAGE = "docs/reference/hostside.schema.json"
SETTINGS_PAGE = "docs/reference/settings.md"
WORKFLOW_PAGE = "docs/reference/workflow.md"

_SETTINGS_INTRODUCTION = """\
# hostside.toml

Generated from the code that reads it; editors can check the file against [`hostside.schema.json`](hostside.schema.json).

The file belongs to the host. It is read from `$XDG_CONFIG_HOME/hostside/hostside.toml` (`~/.config/hostside/hostside.toml`)
or from `--config FILE`, never from the current directory, a workspace or a `.env` file. A missing file is an empty one.
It decides which programs run, so it must belong to you or root, and nobody else may be able to change it.
A key that is not on this page is refused. A path is absolute or starts with `~/`.

A secret is a reference, never the secret itself. An empty value counts as missing.

| form | where the secret is |
| --- | --- |
| `env:NAME` | in the environment of the host's process |
| `file:/path` | in a file of yours that nobody else can read (mode 0600) |
| `command:["program", "argument"]` | in what the program prints; it has 10 seconds and must exit with 0 |
"""
_WORKFLOW_INTRODUCTION = """\
# WORKFLOW.md

Generated from the code that reads it. The file follows the Symphony specification: YAML front matter between two lines
`---`, then the prompt as a Liquid template that sees `issue` and `attempt`. Unknown variables and filters are errors, and
`include` and `render` do not exist. Without a prompt a short one is used.

Whoever can change the repository can change this file. So it is read once per run, from the operator's path or from the
default branch's commit, never from the agent's workspace, and its keys fall into four kinds.

| kind | meaning |
| --- | --- |
| always | works in any content |
| only shorter | content that is not trusted can lower the host's limit; what is longer is cut to it and named in a warning |
| trusted | works only in content trusted by its hash (`hostside workflow trust FILE`); else named and ignored |
| never | part of the specification, without effect here |

Any other key is ignored and listed by `hostside workflow show`. Any change of the file, a comment included, is other
content and is not trusted. Duplicate keys, anchors, aliases and tags are refused; `on`, `yes` and `1:30` are text.
"""


def render_settings() -> dict[str, str]:
    """Return the text of each generated page by its path in the repository."""
    schema = settings_schema()
    return {
        SCHEMA_PAGE: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        SETTINGS_PAGE: "\n".join((_SETTINGS_INTRODUCTION, *_sections(schema))),
        WORKFLOW_PAGE: "\n".join((_WORKFLOW_INTRODUCTION, *_front_matter())),
    }


def _sections(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, found in schema["properties"].items():
        if name == "trackers":
            # One table for each kind, in the order in which they are declared.
            (tracker,) = found["patternProperties"].values()
            kinds = tracker["discriminator"]["mapping"]
            for kind, reference in kinds.items():
                yield _section(f'[trackers.NAME], kind = "{kind}"', _definition(schema, reference))
        else:
            yield _section(f"[{name}]", _definition(schema, found["$ref"]))


def _section(title: str, definition: Mapping[str, Any]) -> str:
    required = frozenset(definition.get("required", ()))
    rows = (
        (f"`{key}`", _type(found), _default(found, required=key in required), found.get("description", ""))
        for key, found in definition["properties"].items()
    )
    return f"## `{title}`\n\n{definition['description']}\n\n{_table(('key', 'value', 'default', 'meaning'), rows)}"


def _front_matter() -> Iterator[str]:
    order = tuple(Rule)
    rows = (
        (f"`{key.name}`", key.rule.value, key.meaning) for key in sorted(KEYS, key=lambda key: order.index(key.rule))
    )
    yield f"## Keys\n\n{_table(('key', 'works', 'meaning'), rows)}"


def _definition(schema: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
    return found


def _type(found: Mapping[str, Any]) -> str:
    if "const" in found:
        return f'`"{found["const"]}"`'
    if "enum" in found:
        return ", ".join(f'`"{value}"`' for value in found["enum"])
    if str(found.get("pattern", "")).startswith("^(env:"):
        return "secret reference"
    if found["type"] == "array":
        return "list of text"
    if found["type"] == "integer" and "maximum" in found:
        return f"number, {found['minimum']} to {found['maximum']}"
    return {
        "string": "text",
        "integer": "number",
        "number": "number",
        "boolean": "`true`, `false`",
        "object": "table by preset",
    }[found["type"]]


def _default(found: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return "required"
    return f"`{json.dumps(found['default'])}`" if "default" in found else "none"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
