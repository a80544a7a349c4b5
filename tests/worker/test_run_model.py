"""The model token of a run as the store keeps it: good for one session's model, and for nothing else (D10, R-213..R-223)."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from hostside.store.faults import StateConflict, StoreUnavailable
from hostside.store.sessions import TokenKind, token_sha256
from hostside.worker.model_proxy import ModelAccess
from hostside.worker.model_usage import ModelBudget, ModelMeter
from hostside.worker.run_model import issue_model_access
from tests.store.rows import NOW, Store, open_store, run, session

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "hostside.db")
    opened.runs.create(run("run-1"))
    opened.runs.create(run("run-2"))
    yield opened
    opened.close()


async def access(store: Store, session_id: str, run_id: str) -> ModelAccess:
    """Open a session and issue its way to the model."""
    opened = session(session_id, run_id=run_id)
    store.sessions.open(opened)
    return await issue_model_access(store.sessions, opened, ModelMeter(ModelBudget()), now=store.clock)


async def test_a_token_opens_its_own_sessions_model_alone(store: Store) -> None:
    one, two = await access(store, "s-1", "run-1"), await access(store, "s-2", "run-2")
    edge = store.sessions.mint_token("s-1", TokenKind.EDGE, server_id="server-1", expires_at=NOW + timedelta(hours=1))
    presented = {
        "own": one.token,
        "another run's": two.token,
        "the edge's": edge,
        "none": "",
        "its hash": token_sha256(one.token),
        "longer": one.token + "=",
        "a scheme": f"Bearer {one.token}",
        "no ASCII": one.token[:-1] + "é",
    }
    assert [name for name, text in presented.items() if await one.authenticate(text)] == ["own"]
    # And the other way about: it is no token of the edge.
    assert store.sessions.authenticate(one.token, server_id="server-1", kind=TokenKind.EDGE, now=NOW) is None
    assert store.sessions.authenticate(one.token, server_id="server-2", kind=TokenKind.MODEL, now=NOW) is None
    assert one.token not in repr(one)


@pytest.mark.parametrize("end", ["session", "run", "token", "time"])
async def test_it_is_dead_from_the_end_of_its_session_on(store: Store, end: str) -> None:
    one = await access(store, "s-1", "run-1")
    assert await one.authenticate(one.token)
    if end == "session":
        store.sessions.revoke("s-1")
    elif end == "run":
        store.sessions.revoke_run("run-1")
    elif end == "token":
        store.sessions.revoke_token(token_sha256(one.token))
    else:
        store.clock.at = NOW + timedelta(hours=4)
    assert not await one.authenticate(one.token)


async def test_a_revocation_by_another_process_counts_at_once(store: Store, tmp_path: Path) -> None:
    one = await access(store, "s-1", "run-1")
    other = open_store(tmp_path / "hostside.db")
    try:
        other.sessions.revoke_run("run-1")
    finally:
        other.close()
    assert not await one.authenticate(one.token)


async def test_a_session_that_is_over_gets_none_and_a_second_one_is_refused(store: Store) -> None:
    opened = session("s-1", run_id="run-1")
    store.sessions.open(opened)
    meter = ModelMeter(ModelBudget())
    await issue_model_access(store.sessions, opened, meter, now=store.clock)
    with pytest.raises(StateConflict):
        await issue_model_access(store.sessions, opened, meter, now=store.clock)
    store.sessions.revoke("s-1")
    with pytest.raises(StateConflict):
        await issue_model_access(store.sessions, opened, meter, now=store.clock)


async def test_the_file_holds_no_token(store: Store, tmp_path: Path) -> None:
    one = await access(store, "s-1", "run-1")
    store.database.close()
    assert not any(one.token.encode() in path.read_bytes() for path in tmp_path.iterdir())
    with pytest.raises(StoreUnavailable):
        await one.authenticate(one.token)
