"""Sessions and tokens: one way in, kept as a hash, closed at once (D10, R-213 to R-223)."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from hostside.core.canonical import parse
from hostside.store.faults import NotStored, StateConflict
from hostside.store.sessions import TokenKind, TokenRecord, new_token, token_sha256
from hostside.store.tables import sessions
from tests.store.rows import EMPTY, NOW, Store, run, session

FAR = NOW + timedelta(days=9)
EDGE, MODEL = TokenKind.EDGE, TokenKind.MODEL


def _mint(store: Store, session_id: str = "s-1", kind: TokenKind = EDGE) -> str:
    return store.sessions.mint_token(session_id, kind, server_id="server-1", expires_at=FAR)


def _known(store: Store, token: str, *, server_id: str = "server-1", kind: TokenKind = EDGE) -> bool:
    found = store.sessions.authenticate(token, server_id=server_id, kind=kind, now=store.clock())
    return found is not None


def test_a_session_row_keeps_every_fact_that_its_receipts_are_judged_by(store: Store) -> None:
    store.sessions.open(session())
    with store.database.read() as connection:
        row = connection.execute(select(sessions)).one()._asdict()
    documents = ("issue", "granted", "capabilities", "policy", "reach")
    assert {name: parse(row.pop(name)) for name in documents} == {
        "issue": {
            "id": "id-of-PAY-12",
            "identifier": "PAY-12",
            "title": "Fix it",
            "state": "Todo",
            "branch_name": None,
            "url": None,
        },
        "granted": {"issue_id": "id-of-PAY-12", "workspace_root": None, "named": []},
        "capabilities": ["browser", "destructive", "dynamic", "git", "network", "read", "shell", "write"],
        "policy": {
            "configuration": ["browser", "destructive", "dynamic", "git", "network", "read", "shell", "write"],
            "confirm": [],
            "calls_per_minute": 600,
            "list_unreachable": False,
        },
        "reach": {"caller_disk": "none", "server_checkout": False},
    }
    assert row == {
        "session_id": "s-1",
        "run_id": None,
        "attempt": 1,
        "edge": "http",
        "server_id": "server-1",
        "principal": "agent:s-1",
        "issue_id": "id-of-PAY-12",
        "issue_identifier": "PAY-12",
        "workspace": None,
        "registry_fingerprint": EMPTY.fingerprint,
        "profile": "full",
        "mode": "work",
        "opened_at": "2026-03-01T12:00:00.000000Z",
        "expires_at": "2026-03-01T16:00:00.000000Z",
        "revoked_at": None,
        "chain_head": "0" * 64,
        "chain_count": 0,
    }


def test_a_session_opens_once_and_only_under_a_run_that_exists(store: Store) -> None:
    store.sessions.open(session())
    with pytest.raises(StateConflict):
        store.sessions.open(session())
    with pytest.raises(StateConflict):
        store.sessions.open(session("s-2", run_id="run-nobody"))
    assert [item["session_id"] for item in store.sessions.list()] == ["s-1"]


def test_a_token_opens_its_own_server_and_kind_alone(store: Store) -> None:
    store.sessions.open(session())
    token = _mint(store)
    model = _mint(store, kind=MODEL)
    assert store.sessions.authenticate(token, server_id="server-1", kind=EDGE, now=NOW) == TokenRecord(
        sha256=token_sha256(token),
        session_id="s-1",
        run_id=None,
        kind=EDGE,
        server_id="server-1",
        expires_at=NOW + timedelta(hours=4),
        revoked_at=None,
    )
    assert _known(store, model, kind=MODEL)
    wrong = [
        _known(store, token, server_id="server-2"),
        _known(store, token, kind=MODEL),
        _known(store, model, kind=EDGE),
        _known(store, token[:-1] + ("A" if token[-1] != "A" else "B")),
        _known(store, token.upper()),
        _known(store, token + "="),
        _known(store, ""),
        _known(store, "hst_"),
        _known(store, token_sha256(token)),
        _known(store, "hst_" + "é" * 43),
        _known(store, "hst_" + "\ud800" * 43),
    ]
    assert wrong == [False] * len(wrong)


def test_a_token_ends_with_its_session_or_after_24_hours(store: Store) -> None:
    store.sessions.open(session("short", hours=2))
    store.sessions.open(session("long", hours=72))
    _mint(store, "short")
    token = _mint(store, "long")
    lives = [store.sessions.tokens(name)[0].expires_at - NOW for name in ("short", "long")]
    assert lives == [timedelta(hours=2), timedelta(hours=24)]
    store.clock.at = NOW + timedelta(hours=24, microseconds=-1)
    assert _known(store, token)
    store.clock.at = NOW + timedelta(hours=24)
    assert not _known(store, token)


def test_a_session_holds_one_live_token_of_a_kind(store: Store) -> None:
    store.sessions.open(session())
    token = _mint(store)
    with pytest.raises(StateConflict, match="live edge token"):
        _mint(store)
    assert store.sessions.revoke_token(token_sha256(token))
    assert not _known(store, token)
    assert not store.sessions.revoke_token(token_sha256(token))
    renewed = _mint(store)
    assert (_known(store, renewed), _known(store, token), renewed != token) == (True, False, True)


def test_a_session_that_is_over_gets_no_token(store: Store) -> None:
    with pytest.raises(NotStored):
        _mint(store, "nobody")
    store.sessions.open(session())
    store.clock.at = NOW + timedelta(hours=4)
    with pytest.raises(StateConflict, match="over"):
        _mint(store)


def test_revoking_a_session_closes_both_its_tokens_and_no_others(store: Store) -> None:
    for name in ("s-1", "s-2"):
        store.sessions.open(session(name))
    tokens = [_mint(store), _mint(store, kind=MODEL), _mint(store, "s-2")]
    assert (store.sessions.revoke("s-1"), store.sessions.revoke("s-1")) == (True, False)
    found = [_known(store, tokens[0]), _known(store, tokens[1], kind=MODEL), _known(store, tokens[2])]
    assert found == [False, False, True]
    assert (store.sessions.is_open("s-1", now=NOW), store.sessions.is_open("s-2", now=NOW)) == (False, True)


def test_revoking_a_run_closes_all_its_sessions(store: Store) -> None:
    store.runs.create(run())
    for name in ("first", "second"):
        store.sessions.open(session(name, run_id="run-1"))
    store.sessions.open(session("other"))
    tokens = [_mint(store, name) for name in ("first", "second", "other")]
    assert store.sessions.revoke_run("run-1") == 2
    assert [_known(store, token) for token in tokens] == [False, False, True]
    assert [item["session_id"] for item in store.sessions.list(open_only=True)] == ["other"]


def test_a_session_without_rows_is_not_open(store: Store) -> None:
    assert not store.sessions.is_open("nobody", now=NOW)


def test_the_list_shows_tokens_without_anything_to_use(store: Store) -> None:
    store.sessions.open(session())
    token = _mint(store)
    listed = store.sessions.list()
    assert next(iter(listed[0])) == "session_id"
    assert listed[0]["tokens"] == [{"kind": "edge", "expires_at": "2026-03-01T16:00:00.000000Z", "revoked_at": None}]
    assert token not in repr(listed)
    assert token_sha256(token) not in repr(listed)


def test_10_000_tokens_differ_and_none_is_in_the_file(store: Store, path: Path) -> None:
    # Minted in turn for one session: a new one needs the end of the one before.
    store.sessions.open(session(hours=20_000))
    few = []
    for _ in range(20):
        few.append(_mint(store))
        store.clock.at += timedelta(hours=24)
    many = {new_token() for _ in range(10_000)} | set(few)
    assert len(many) == 10_020
    assert {len(token) for token in many} == {47}
    assert len({token[position] for token in many for position in range(4, 47)}) == 64
    content = b"".join(item.read_bytes() for item in path.parent.iterdir())
    assert token_sha256(few[-1]).encode() in content
    assert [token for token in few if token[4:].encode() in content] == []
