"""`hostside runs`."""

from typing import Annotated

import typer

from hostside.cli.options import AsJson, Config, Limit, group

app = group("Runs: what they did, and stopping one.")
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option("--state", help="Only those in this state.")] = None,
    issue: Annotated[str | None, typer.Option("--issue", metavar="ID", help="Only those on this issue.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List runs, newest last. A run whose host is gone is ended first, so that nothing stale looks alive."""
    from hostside.cli import recorded_run_commands

    raise typer.Exit(
        recorded_run_commands.list_runs(state=state, issue=issue, limit=limit, as_json=as_json, config=config)
    )


@app.command()
def show(run: RunId, as_json: AsJson = False, config: Config = None) -> None:
    """Show one run: agent, sessions, server address, token expiry, events. Never a token."""
    from hostside.cli import recorded_run_commands

    raise typer.Exit(recorded_run_commands.show_run(run, as_json=as_json, config=config))


@app.command()
def stop(
    run: RunId,
    seconds: Annotated[int, typer.Option("--seconds", min=1, max=3_600, help="How long to wait for its end.")] = 60,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Stop a run: its token dies at once, its processes end, its receipts are closed."""
    from hostside.cli import recorded_run_commands

    raise typer.Exit(recorded_run_commands.stop(run, seconds=seconds, as_json=as_json, config=config))
