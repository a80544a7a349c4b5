"""The command line. Commands import what they need when they run, so that `--help` is quick."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hostside.errors import ConfigError, HostsideError

app = typer.Typer(
    name="hostside",
    help="The host's side of a coding agent's tool calls: validated, bounded to one issue, executed by the host, recorded.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="hostside.toml to use instead of the user's own.")
]
Isolation = Annotated[str | None, typer.Option("--isolation", help="auto, bwrap, user or home.")]


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


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 done, 1 failed, 2 usage or configuration, 3 refused."""
    try:
        result: Any = app(arguments, standalone_mode=False)
    except ConfigError as error:
        return _stop(error.message, error.remedy, code=error.code)
    except HostsideError as error:
        return _stop(str(error), getattr(error, "remedy", ""), code="failed", exit_code=1)
    except typer.Exit as done:
        return done.exit_code
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):
            error.show()
            return int(error.exit_code)
        raise
    return result if isinstance(result, int) else 0


def _stop(message: str, remedy: str, *, code: str, exit_code: int = 2) -> int:
    from hostside.cli.output import note, plain

    note(plain(f"error: {message}"))
    if remedy:
        note(plain(f"  try: {remedy}"))
    if "--json" in sys.argv:
        from hostside.cli.output import print_json

        print_json({"ok": False, "error": {"code": code, "message": message, "remedy": remedy}})
    return exit_code
