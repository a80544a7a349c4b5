"""The YAML of a front matter, read so that it has one meaning and a bounded cost.

The plain values of YAML 1.2's core schema alone: `On`, `no` and `1:30` are text, as somebody who writes the name of a
state expects, and `<<` is a key like any other. Duplicate keys, anchors, aliases and tags are refused.
"""

import re
from typing import Any

import yaml

MAX_FRONT_BYTES = 65_536
MAX_DEPTH = 20
MAX_DIGITS = 18


class FrontMatterError(Exception):
    """Why the text is no front matter. The message never repeats a line of it: a line may hold a secret."""


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            # They can make a small text grow without bound.
            raise _at("aliases are not accepted", event.start_mark)
        if getattr(event, "anchor", None) is not None:
            raise _at("anchors are not accepted", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _at("tags are not accepted", event.start_mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _at("it is nested too deeply", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _at("a key that is not text", key.start_mark)
            if key.value in seen:
                raise _at(f"the key {key.value[:60]!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    core = (
        ("null", r"null|Null|NULL|~|", "nN~"),
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", rf"[-+]?[0-9]{{1,{MAX_DIGITS}}}", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?", "-+.0123456789"),
    )
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for kind, pattern, firsts in core:
        for first in (*firsts, "") if kind == "null" else firsts:
            table.setdefault(first, []).append((f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z")))
    return table


_Loader.yaml_implicit_resolvers = _resolvers()
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def load_front_matter(text: str) -> dict[str, Any]:
    """Return the map that `text` holds; empty text is an empty map. Raises FrontMatterError."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_FRONT_BYTES:
        raise FrontMatterError(f"its front matter is larger than {MAX_FRONT_BYTES} bytes")
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as exc:
        # str(exc) quotes the line.
        where = "" if exc.problem_mark is None else f" (line {exc.problem_mark.line + 2})"
        raise FrontMatterError(f"its front matter is not accepted: {exc.problem}{where}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise FrontMatterError(f"its front matter is not YAML ({type(exc).__name__})") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise FrontMatterError("its front matter is not a map")
    return document


def _at(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
