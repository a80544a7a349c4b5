"""`hostside receipts`."""

from typing import Annotated

import typer

from hostside.cli.options import AsJson, Config, Limit, group

app = group("What was called, by whom, and how it ended.")


@app.command("list")
def list_(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Only those of this run.")] = None,
    issue: Annotated[str | None, typer.Option("--issue", metavar="ID", help="Only those of this issue.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only those of this session.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only those of this tool.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="ok, refused, failed, or unknown: no end yet.")
    ] = None,
    limit: Limit = 100,
    before: Annotated[
        int | None, typer.Option("--before", metavar="N", help="The page before, as a list names it.")
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """List receipts, newest last."""
    from hostside.cli import receipt_commands

    wanted = receipt_commands.Wanted(run=run, issue=issue, session=session, tool=tool, outcome=outcome)
    raise typer.Exit(receipt_commands.list_receipts(wanted, limit=limit, before=before, as_json=as_json, config=config))


@app.command()
def show(
    receipt: Annotated[str, typer.Argument(metavar="RECEIPT", help="The receipt's id.")],
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show one receipt in full: who, what, when, the result that is kept, its place in the chain."""
    from hostside.cli import receipt_commands

    raise typer.Exit(receipt_commands.show_receipt(receipt, as_json=as_json, config=config))


@app.command()
def verify(
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only this session's chain.")] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Recompute the hash chains and name what does not hold."""
    from hostside.cli import receipt_commands

    raise typer.Exit(receipt_commands.verify_receipts(session, as_json=as_json, config=config))
