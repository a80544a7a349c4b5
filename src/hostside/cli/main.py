"""The command line. Commands import what they need when they run, so that `--help` is quick."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hostside.cli import receipt_group, run_group, session_group, tool_group, workflow_group
from hostside.cli.options import Arguments, AsJson, Config, Isolation, Profile, Tracker, tool_names
from hostside.cli.stopping import exit_code_of

app = typer.Typer(
    name="hostside",
    help="The host's side of a coding agent's tool calls: validated, bounded to one issue, executed by the host, recorded.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hostside {version('hostside')}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    agent: Annotated[str, typer.Option("--agent", help="scripted, claude or codex.")] = "scripted",
    isolation: Isolation = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Work an embedded issue to its end: tracker, store and repository are made for it."""
    from hostside.cli import run_commands

    raise typer.Exit(run_commands.demo(agent=agent, as_json=as_json, isolation=isolation, config=config))


@app.command()
def run(
    issue: Annotated[str, typer.Argument(help="The issue's identifier, as its tracker shows it.")],
    workflow: Annotated[Path | None, typer.Option("--workflow", metavar="FILE", help="WORKFLOW.md to use.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="claude, codex or scripted.")] = None,
    isolation: Isolation = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop on workflow keys that are not trusted.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Let an agent work one issue, behind the wall."""
    from hostside.app.planning import RunWishes
    from hostside.cli import run_commands

    wishes = RunWishes(identifier=issue, agent=agent, workflow_file=workflow, isolation=isolation, strict=strict)
    raise typer.Exit(run_commands.run(wishes, as_json=as_json, config=config))


AllowRemote = Annotated[
    bool, typer.Option("--allow-remote", help="Listen where other machines reach it. No session then reaches a disk.")
]


@app.command()
def serve(
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve the client on standard input and output.")] = False,
    http: Annotated[
        str | None, typer.Option("--http", metavar="[HOST:]PORT", help="Serve sessions that `sessions open` opens.")
    ] = None,
    profile: Profile = None,
    allow_remote: AllowRemote = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Serve tools over MCP: to one client over stdio, or over HTTP to sessions with a token."""
    from hostside.cli import serve_commands

    if stdio == (http is not None):
        raise typer.BadParameter("give either --stdio or --http [HOST:]PORT")
    if http is None:
        raise typer.Exit(serve_commands.serve_stdio(profile=profile, config=config))
    raise typer.Exit(
        serve_commands.serve_http(http, profile=profile, allow_remote=allow_remote, as_json=as_json, config=config)
    )


@app.command()
def http(
    address: Annotated[str, typer.Argument(metavar="[HOST:]PORT", help="Where to listen.")],
    profile: Profile = None,
    allow_remote: AllowRemote = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Serve tools over HTTP: the same as `serve --http`."""
    from hostside.cli import serve_commands

    raise typer.Exit(
        serve_commands.serve_http(address, profile=profile, allow_remote=allow_remote, as_json=as_json, config=config)
    )


@app.command()
def call(
    tool: Annotated[str, typer.Argument(help="The tool's name.", autocompletion=tool_names)],
    arguments: Arguments = None,
    issue: Annotated[str | None, typer.Option("--issue", metavar="ID", help="Bind the call to this issue.")] = None,
    tracker: Tracker = None,
    profile: Profile = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Call one tool here and now, through the same checks and receipts as an agent's call."""
    from hostside.cli import call_command

    raise typer.Exit(
        call_command.call(
            tool, arguments=arguments, issue=issue, tracker=tracker, profile=profile, as_json=as_json, config=config
        )
    )


app.add_typer(tool_group.app, name="tools")
app.add_typer(session_group.app, name="sessions")
app.add_typer(receipt_group.app, name="receipts")
app.add_typer(run_group.app, name="runs")
app.add_typer(workflow_group.app, name="workflow")


@app.command()
def doctor(
    as_agent: Annotated[
        str | None,
        typer.Option(
            "--as-agent", metavar="AGENT", help="Start a run's environment with a probe in place of claude or codex."
        ),
    ] = None,
    isolation: Isolation = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Check this installation: isolation, agents, trackers, secrets, store, leftovers. Each finding has a remedy."""
    from hostside.cli import doctor_command

    if as_agent is not None:
        code = doctor_command.doctor_as_agent(as_agent, isolation=isolation, as_json=as_json, config=config)
        raise typer.Exit(code)
    raise typer.Exit(doctor_command.doctor(as_json=as_json, config=config))


@app.command(hidden=True)
def docs(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a file differs.")] = False,
    root: Annotated[Path, typer.Option("--root", metavar="DIR", help="The repository.")] = Path("."),
    as_json: AsJson = False,
) -> None:
    """Write the reference pages from the code."""
    from hostside.cli import docs_command

    raise typer.Exit(docs_command.docs(app, root, check=check, as_json=as_json))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 done, 1 failed, 2 usage or configuration, 3 refused."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        result: Any = app(words, prog_name="hostside", standalone_mode=False)
    except SystemExit as end:  # how the framework leaves after a broken pipe and after completion
        return end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        return exit_code_of(error, as_json="--json" in words)
    return result if isinstance(result, int) else 0
