"""The host beside a probe: a real state folder with sessions and tokens, and a model's address that asks nobody."""

import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import anyio

from hostside.core.call import Workspace
from hostside.core.gateway import Gateway, Host
from hostside.core.locality import CallerDisk, Reach
from hostside.core.observers import ObserverQueue
from hostside.core.policy import Profile
from hostside.core.receipt import NobodyToAsk
from hostside.core.redaction import Redactor
from hostside.core.registry import Registry
from hostside.core.serialization import KeyedLocks
from hostside.core.session import open_session
from hostside.edges.http_server import serve_on
from hostside.store.database import open_database
from hostside.store.receipts import ReceiptStore
from hostside.store.sessions import SessionStore, TokenKind
from hostside.store.writer import GroupWriter
from hostside.tools.files import file_tools
from hostside.worker.model_proxy import ModelAccess
from hostside.worker.model_usage import ModelBudget, ModelMeter
from hostside.worker.probe_canaries import Planted
from hostside.worker.run_model import issue_model_access

SERVER_ID = "srv-probe"
_LIFE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSession:
    """One run's session, its edge token and its way to the model."""

    gateway: Gateway
    token: str
    model: ModelAccess

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.gateway.session.session_id


class ProbeWorld:
    """A state folder as the host keeps it (0700): database with sessions and tokens, key, approvals. A context manager."""

    def __init__(self, folder: Path, secrets: Planted) -> None:
        """`folder` exists and holds no state yet. Raises `OSError` or `ConfigError` as the store does."""
        self.folder = folder
        self.state = folder / "host-state"
        self.state.mkdir(mode=0o700)
        for name in ("host.key", "approvals.json"):
            path = self.state / name
            path.write_text(secrets.canary("host-state"), encoding="utf-8")
            path.chmod(0o600)
        self._database = open_database(self.state / "hostside.db")
        self._writer = GroupWriter(self._database)
        self._receipts = ReceiptStore(self._database, self._writer)
        self.sessions = SessionStore(self._database, now=utc_now)
        self._host = Host(
            receipts=self._receipts,
            approver=NobodyToAsk(),
            redactor=Redactor(()),
            locks=KeyedLocks(),
            observers=ObserverQueue(()),
            now=utc_now,
            monotonic=time.monotonic,
            new_id=lambda prefix: f"{prefix}-{os.urandom(5).hex()}",
            event=lambda _name, _facts: None,
            is_open=lambda session_id: self.sessions.is_open(session_id, now=utc_now()),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._host.observers.close()
        self._receipts.close()
        self._writer.close()
        self._database.close()

    async def session(self, name: str, workspace: Path) -> ProbeSession:
        """Open the session of a run with the workspace's file tools, and mint its tokens."""
        now = utc_now()
        session = open_session(
            session_id=f"s-{name}",
            registry=Registry(file_tools()).snapshot(),
            edge="run-http",
            server_id=SERVER_ID,
            principal=f"agent-{name}",
            profile=Profile.WORKSPACE,
            reach=Reach(caller_disk=CallerDisk.SHARED, server_checkout=False),
            opened_at=now,
            expires_at=now + _LIFE,
            workspace=Workspace(id=name, root=str(workspace), branch=None),
        )
        self.sessions.open(session)
        token = self.sessions.mint_token(
            session.session_id, TokenKind.EDGE, server_id=SERVER_ID, expires_at=session.expires_at
        )
        model = await issue_model_access(self.sessions, session, ModelMeter(ModelBudget()), now=utc_now)
        return ProbeSession(gateway=Gateway(session, self._host), token=token, model=model)


@contextlib.asynccontextmanager
async def stub_model() -> AsyncIterator[str]:
    """Serve an origin on loopback that answers every request with the path at which it landed; its address."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for moment in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{moment}.complete"})
            return
        body = json.dumps({"upstream": scope["raw_path"].decode("latin-1")}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    ready = anyio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: serve_on((listener,), app, ready=ready))
            await ready.wait()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            group.cancel_scope.cancel()


def utc_now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC)
