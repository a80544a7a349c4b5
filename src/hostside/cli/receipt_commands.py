"""`hostside receipts list|show|verify`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hostside.app.host import App
from hostside.cli.output import colour, fields, moment, note, plain, print_json, say, table
from hostside.cli.stopping import DONE, FAILED, not_found
from hostside.core.canonical import JsonObject, compact
from hostside.core.receipt import Outcome
from hostside.errors import ConfigError
from hostside.store.queries import ReceiptFilter, ReceiptPage
from hostside.store.queries import list_receipts as list_from
from hostside.store.queries import show_receipt as show_from
from hostside.store.verify import verify

_HEADER = ("RECEIPT", "AT", "MS", "TOOL", "OUTCOME", "CODE", "EFFECT", "ISSUE", "RUN", "EDGE")
_OUTCOMES = (*Outcome, "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which receipts; None means any."""

    run: str | None
    issue: str | None
    session: str | None
    tool: str | None
    outcome: str | None


def list_receipts(wanted: Wanted, *, limit: int, before: int | None, as_json: bool, config: Path | None) -> int:
    """Print receipts, newest last. Raises ConfigError for an outcome that does not exist."""
    if wanted.outcome is not None and wanted.outcome not in _OUTCOMES:
        raise ConfigError(
            "invalid_configuration",
            f"there is no outcome {wanted.outcome}.",
            remedy=f"Use one of: {', '.join(_OUTCOMES)}.",
        )
    chosen = ReceiptFilter(
        run_id=wanted.run,
        issue=wanted.issue,
        session_id=wanted.session,
        tool=wanted.tool,
        outcome=wanted.outcome,
    )
    with App.open(config=config) as app:
        page = list_from(app.database, chosen, limit=limit, before=before)
    if as_json:
        print_json({"receipts": list(page.receipts), "before": page.before})
    else:
        _show_page(page)
    return DONE


def show_receipt(receipt_id: str, *, as_json: bool, config: Path | None) -> int:
    """Print one receipt in full. Raises CommandFailed for an unknown one."""
    with App.open(config=config) as app:
        found = show_from(app.database, receipt_id)
    if found is None:
        raise not_found("receipt", receipt_id, remedy="`hostside receipts list` shows them.")
    if as_json:
        print_json(found)
        return DONE
    for line in fields({name: _words(value) for name, value in found.items() if name != "events"}):
        say(line)
    events = found["events"]
    assert isinstance(events, list)
    say()
    rows = [(item["seq"], item["phase"], moment(item["at"]), item["hash"]) for item in events if isinstance(item, dict)]
    for line in table(rows, header=("SEQ", "PHASE", "AT", "HASH")):
        say(line)
    return DONE


def verify_receipts(session_id: str | None, *, as_json: bool, config: Path | None) -> int:
    """Recompute the chains; exit code 1 where one does not hold."""
    with App.open(config=config) as app:
        report = verify(app.database, session_id)
    if as_json:
        print_json(asdict(report))
    else:
        verdict = colour("every chain holds", "green") if report.ok else colour("NOT verified", "red")
        say(f"{report.receipts} receipts in {report.sessions} sessions: {verdict}")
        for fault in report.broken:
            say(plain(f"  {fault.session_id}  event {fault.seq}  {fault.receipt_id or '-'}  {fault.reason}"))
        if not report.ok:
            note(
                "  try: keep a copy of the state folder and find out who wrote to it; later receipts are not vouched for"
            )
    return DONE if report.ok else FAILED


def _show_page(page: ReceiptPage) -> None:
    for line in table([_row(item) for item in page.receipts], header=_HEADER) if page.receipts else ["no receipts"]:
        say(line)
    if page.before is not None:
        note(f"older ones: --before {page.before}")


def _row(item: JsonObject) -> tuple[object, ...]:
    issue = item["issue_identifier"] or item["issue_id"] or "-"
    end = item["outcome"], item["code"] or "-", item["effect"] or "-"
    ms = "-" if item["duration_ms"] is None else item["duration_ms"]
    return (
        item["receipt_id"],
        moment(item["started_at"]),
        ms,
        item["tool"],
        *end,
        issue,
        item["run_id"] or "-",
        item["edge"],
    )


def _words(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping | list):
        return compact(value)  # type: ignore[arg-type]
    return str(value)
