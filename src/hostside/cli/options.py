"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="hostside.toml to use instead of the user's own.")
]
Isolation = Annotated[str | None, typer.Option("--isolation", help="auto, bwrap, user or home.")]
Profile = Annotated[str | None, typer.Option("--profile", help="readonly, workspace or full.")]
Tracker = Annotated[
    str | None,
    typer.Option("--tracker", metavar="NAME", help="Which configured tracker; not needed where there is one."),
]
Arguments = Annotated[
    str | None,
    typer.Option(
        "--arguments", metavar="JSON|@FILE", help="The tool's arguments: JSON, or @FILE, or @- for standard input."
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, the newest.")]


def group(text: str) -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def tool_names(incomplete: str) -> list[str]:
    """Return tool names for the shell's completion."""
    from hostside.app.catalogue import catalogue
    from hostside.config.host import HostSettings

    return [name for name in catalogue(HostSettings()).registry.tools if name.startswith(incomplete)]
