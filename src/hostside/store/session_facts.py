"""A session's frozen facts as one row (design §5.1): what a later reader needs to judge its receipts."""

from collections.abc import Iterable

from hostside.core.canonical import JsonValue, encode
from hostside.core.issue import Issue
from hostside.core.scope import NamedTarget
from hostside.core.session import Session
from hostside.store.chain import Fields
from hostside.store.instants import to_text
from hostside.store.tables import GENESIS


def session_row(session: Session) -> Fields:
    """Return the columns of a new session: its chain is empty. Issue texts and the adapter's own reference stay out."""
    issue, workspace, policy = session.issue, session.workspace, session.policy
    return {
        "session_id": session.session_id,
        "run_id": session.run_id,
        "attempt": session.attempt,
        "edge": session.edge,
        "server_id": session.server_id,
        "principal": session.principal,
        "issue_id": None if issue is None else issue.id,
        "issue_identifier": None if issue is None else issue.identifier,
        "issue": None if issue is None else encode(_issue(issue)),
        "workspace": None
        if workspace is None
        else encode({"id": workspace.id, "root": workspace.root, "branch": workspace.branch}),
        "registry_fingerprint": session.registry.fingerprint,
        "granted": encode(
            {
                "issue_id": session.granted.issue_id,
                "workspace_root": session.granted.workspace_root,
                "named": _named(session.granted.named),
            }
        ),
        "capabilities": encode(_words(session.capabilities)),
        "profile": session.profile.value,
        "mode": session.mode.value,
        "policy": encode(
            {
                "configuration": _words(policy.configuration),
                "confirm": _words(policy.confirm),
                "calls_per_minute": policy.calls_per_minute,
                "list_unreachable": policy.list_unreachable,
            }
        ),
        "reach": encode(
            {"caller_disk": session.reach.caller_disk.value, "server_checkout": session.reach.server_checkout}
        ),
        "opened_at": to_text(session.opened_at),
        "expires_at": to_text(session.expires_at),
        "revoked_at": None,
        "chain_head": GENESIS,
        "chain_count": 0,
    }


def _issue(issue: Issue) -> JsonValue:
    return {
        "id": issue.id,
        "identifier": issue.identifier,
        "title": issue.title,
        "state": issue.state,
        "branch_name": issue.branch_name,
        "url": issue.url,
    }


def _words(values: Iterable[str]) -> JsonValue:
    return [str(value) for value in sorted(values)]


def _named(targets: Iterable[NamedTarget]) -> JsonValue:
    return [{"kind": kind, "id": id_} for kind, id_ in sorted((target.kind, target.id) for target in targets)]
