"""`hostside tools`."""

from typing import Annotated

import typer

from hostside.cli.options import Arguments, AsJson, Config, Profile, group, tool_names

app = group("What each tool is, and whether it would run.")
Name = Annotated[str, typer.Argument(help="The tool's name.", autocompletion=tool_names)]


@app.command("list")
def list_(as_json: AsJson = False, config: Config = None) -> None:
    """List every tool that this host knows, with class, capability, effect and approval."""
    from hostside.cli import tool_commands

    raise typer.Exit(tool_commands.list_tools(as_json=as_json, config=config))


@app.command()
def show(tool: Name, as_json: AsJson = False, config: Config = None) -> None:
    """Show one tool: description, arguments, facts."""
    from hostside.cli import tool_commands

    raise typer.Exit(tool_commands.show_tool(tool, as_json=as_json, config=config))


@app.command()
def explain(
    tool: Name,
    transport: Annotated[
        str, typer.Option("--transport", help="stdio, run-http, inband, codex, functions or http.")
    ] = "stdio",
    profile: Profile = None,
    arguments: Arguments = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Tell whether a call would run over a transport, and if not, why and what to do instead. Runs nothing."""
    from hostside.cli import tool_commands

    raise typer.Exit(
        tool_commands.explain_tool(
            tool, transport=transport, profile=profile, arguments=arguments, as_json=as_json, config=config
        )
    )
