"""`hostside workflow`."""

from pathlib import Path
from typing import Annotated

import typer

from hostside.cli.options import AsJson, Config, group

app = group("WORKFLOW.md: what of it works, and trusting its content.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="A WORKFLOW.md.")]


@app.command()
def show(file: File, as_json: AsJson = False, config: Config = None) -> None:
    """Show what of a workflow is used and what is ignored. Runs nothing."""
    from hostside.cli import workflow_commands

    raise typer.Exit(workflow_commands.show(file, as_json=as_json, config=config))


@app.command()
def trust(file: File, as_json: AsJson = False, config: Config = None) -> None:
    """Trust exactly this content, by its hash: its commands, hooks and policies then work."""
    from hostside.cli import workflow_commands

    raise typer.Exit(workflow_commands.trust(file, as_json=as_json, config=config))
