"""`hostside sessions`."""

from pathlib import Path
from typing import Annotated

import typer

from hostside.cli.options import AsJson, Config, Limit, Profile, Tracker, group

app = group("Sessions of `serve --http`: open, list, revoke.")


@app.command("open")
def open_(
    issue: Annotated[str | None, typer.Option("--issue", metavar="ID", help="Bind the session to this issue.")] = None,
    tracker: Tracker = None,
    profile: Profile = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", metavar="DIR", help="The folder that the caller may prove to share.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="ID|URL", help="Which running server; not needed where there is one."),
    ] = None,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=1_440, help="How long its token is good.")] = 240,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Open a session on a running `serve --http` and print its address and token, once."""
    from hostside.cli import session_commands

    wishes = session_commands.Wishes(
        issue=issue, tracker=tracker, profile=profile, workspace=workspace, server=server, minutes=minutes
    )
    raise typer.Exit(session_commands.open_session(wishes, as_json=as_json, config=config))


@app.command("list")
def list_(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Only those of this run.")] = None,
    open_only: Annotated[bool, typer.Option("--open", help="Only those that are open now.")] = False,
    limit: Limit = 100,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List sessions, newest last. Tokens are never shown."""
    from hostside.cli import session_commands

    raise typer.Exit(
        session_commands.list_sessions(run=run, open_only=open_only, limit=limit, as_json=as_json, config=config)
    )


@app.command()
def revoke(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Revoke a session and its tokens, effective at once, on open connections too."""
    from hostside.cli import session_commands

    raise typer.Exit(session_commands.revoke_session(session, as_json=as_json, config=config))
