"""`hostside docs`: the reference pages, written or checked (D19). Hidden: it is for whoever changes the code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hostside.app.catalogue import catalogue, listed_adapter
from hostside.cli.output import note, print_json, say
from hostside.cli.stopping import DONE, FAILED
from hostside.config.host import HostSettings
from hostside.docs import CommandFact, OptionFact, drift, pages, write

_WIDTH = 100


def docs(app: typer.Typer, root: Path, *, check: bool, as_json: bool) -> int:
    """Write the pages below `root`, or with `check` name those that differ and return 1."""
    wanted = pages(catalogue(HostSettings()).registry, [listed_adapter().profile()], commands_of(app))
    found = drift(root, wanted) if check else write(root, wanted)
    good = not (check and found)
    if as_json:
        print_json({"ok": good, "pages": len(wanted), "differing": list(found)})
        return DONE if good else FAILED
    for path in found:
        say(path)
    if not good:
        note(f"error: {len(found)} of {len(wanted)} reference pages differ from the code\n  try: make snap")
    return DONE if good else FAILED


def commands_of(app: typer.Typer) -> tuple[CommandFact, ...]:
    """Return every command that help shows, in its order."""
    return tuple(_walk(typer.main.get_command(app), "hostside", None))


def _walk(command: Any, name: str, parent: Any) -> Iterator[CommandFact]:
    context = command.context_class(command, info_name=name.rpartition(" ")[2], parent=parent)
    children = getattr(command, "commands", None)
    if children is None:
        yield _fact(command, name, context)
        return
    for child, found in children.items():
        if not found.hidden:
            yield from _walk(found, f"{name} {child}", context)


def _fact(command: Any, name: str, context: Any) -> CommandFact:
    options = [_option(parameter, context) for parameter in command.get_params(context)]
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    return CommandFact(
        name=name,
        usage=usage,
        meaning=" ".join((command.help or "").split()),
        options=tuple(option for option in options if option is not None),
    )


def _option(parameter: Any, context: Any) -> OptionFact | None:
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    default = parameter.default
    shown = "required" if parameter.required else "" if default in (None, False) or callable(default) else str(default)
    meaning = str(getattr(parameter, "help", None) or record[1])
    return OptionFact(name=record[0], meaning=meaning, default=shown)
