"""Sessions of `serve --http`: opened by one process, served by another, revoked by any (D6, D10, D11)."""

import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from hostside.app.catalogue import NoGit
from hostside.app.host import App, utc_now, workspace_tools
from hostside.app.operator_checkout import workspace_of
from hostside.app.server_records import ServerRecord, profile_within
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway
from hostside.core.issue import Issue
from hostside.core.locality import NO_REACH, CallerDisk, Reach
from hostside.core.policy import PROFILES, Profile
from hostside.core.registry import Registry
from hostside.core.session import open_session
from hostside.core.spec import Tool
from hostside.errors import ConfigError
from hostside.store.session_records import SessionRecord, read_session
from hostside.store.sessions import TokenKind
from hostside.trackers.base import TrackerAdapter

EDGE = "http"
#: Codex reads the token from this variable of its own environment; arguments are visible to every process.
TOKEN_VARIABLE = "HOSTSIDE_TOKEN"
_log = logging.getLogger(__name__)


def reach_of(server: ServerRecord) -> Reach:
    """Return what a session of this server reaches: nothing, until it is proven; from afar never (D6, D11)."""
    return NO_REACH if server.remote else Reach(caller_disk=CallerDisk.UNPROVEN, server_checkout=False)


def http_tools(adapter: TrackerAdapter | None) -> Iterable[Tool]:
    """Return the tools of an HTTP session. Those of a workspace are there to be refused with their reason."""
    return (*(() if adapter is None else adapter.tools()), *workspace_tools(NoGit()))


async def issue_of(app: App, identifier: str, tracker: str | None) -> tuple[TrackerAdapter, Issue]:
    """Return an issue of a configured tracker. Raises ConfigError when there is none, and what the tracker raises."""
    name, adapter = app.tracker(tracker)
    adapter.check_credential()
    issue = await adapter.fetch_by_identifier(identifier)
    if issue is None:
        raise ConfigError(
            "invalid_configuration",
            f"there is no issue {identifier} in the tracker {name}.",
            remedy="Check the identifier; `hostside doctor` tells whether the tracker can be read.",
        )
    return adapter, issue


async def open_http_session(
    app: App,
    server: ServerRecord,
    *,
    issue: str | None,
    tracker: str | None,
    profile: str | None,
    workspace: Path | None,
    life: timedelta,
) -> JsonObject:
    """Open a session for a running server and return the object of `sessions open`; its token is nowhere else.

    Raises ConfigError when the server runs on another configuration or allows less.
    """
    if server.configuration_sha256 != app.policy_sha256():
        raise ConfigError(
            "invalid_configuration",
            f"the server at {server.url} was started with another configuration.",
            remedy="Start it again, or give both the same --config.",
        )
    chosen = profile_within(profile, server.profile)
    adapter, bound = (None, None) if issue is None else await issue_of(app, issue, tracker)
    if bound is not None and len(await _trackers_of(app, bound.id, bound.identifier)) != 1:
        raise ConfigError(
            "invalid_configuration",
            f"more than one configured tracker has an issue {bound.identifier} with the same id.",
            remedy="Start a server with a --config that names one of them.",
        )
    place = None if workspace is None else workspace_of(workspace, app.paths, top_level=False)
    session = app.open_session(
        http_tools(adapter),
        edge=EDGE,
        profile=chosen,
        reach=reach_of(server),
        issue=bound,
        workspace=place,
        life=life,
        server_id=server.server_id,
    ).session
    token = app.sessions.mint_token(
        session.session_id, TokenKind.EDGE, server_id=server.server_id, expires_at=session.expires_at
    )
    (record,) = app.sessions.tokens(session.session_id)
    return {
        "session_id": session.session_id,
        "url": server.url,
        "token": token,
        "expires_at": record.expires_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "mcp_config": {
            "mcpServers": {
                "hostside": {"type": "http", "url": server.url, "headers": {"Authorization": f"Bearer {token}"}}
            }
        },
        "codex_args": [
            "-c",
            f'mcp_servers.hostside.url="{server.url}"',
            "-c",
            f'mcp_servers.hostside.bearer_token_env_var="{TOKEN_VARIABLE}"',
        ],
    }


async def _trackers_of(app: App, issue_id: str, identifier: str) -> list[tuple[TrackerAdapter, Issue]]:
    """Return every configured tracker that has this issue: a session's row names the issue, not its tracker."""
    found = []
    for name in app.settings.trackers:
        try:
            _, adapter = app.tracker(name)
        except ConfigError:  # of a kind that this version cannot read: no session was opened on it
            continue
        issues = await adapter.fetch_by_ids([issue_id])
        found += [(adapter, issue) for issue in issues if issue.identifier == identifier]
    return found


class HttpSessions:
    """The gateways of one server, each made when its token first comes. `resolve` is the edge's."""

    def __init__(self, app: App, server: ServerRecord) -> None:
        self._app = app
        self._server = server
        self._gateways: dict[str, Gateway] = {}
        self._making = anyio.Lock()

    async def resolve(self, token: str) -> Gateway | None:
        """Return the gateway that a token is good for now, or None. Raises what a tracker or the store raises."""
        record = self._app.sessions.authenticate(
            token, server_id=self._server.server_id, kind=TokenKind.EDGE, now=utc_now()
        )
        if record is None:
            return None
        async with self._making:
            gateway = self._gateways.get(record.session_id)
            if gateway is None:
                self._forget_closed()
                gateway = await self._make(record.session_id)
        return gateway

    async def _make(self, session_id: str) -> Gateway | None:
        record = await run_sync(read_session, self._app.database, session_id)
        if record is None or record.edge != EDGE or not PROFILES[record.profile] <= self._granted:
            return None
        adapter, issue = await self._issue(record)
        if issue is None and record.issue_id is not None:
            _log.warning("session %s: its issue is gone, or two trackers have it", session_id)
            return None
        registry = Registry(http_tools(adapter)).snapshot()
        if registry.fingerprint != record.registry_fingerprint:
            _log.warning("session %s was opened with other tools than this server has; open a new one", session_id)
            return None
        session = open_session(
            session_id=session_id,
            registry=registry,
            edge=EDGE,
            server_id=record.server_id,
            principal=record.principal,
            profile=record.profile,
            mode=record.mode,
            reach=reach_of(self._server),
            opened_at=record.opened_at,
            expires_at=record.expires_at,
            issue=issue,
            workspace=record.workspace,
            policy=record.policy,
        )
        gateway = self._gateways[session_id] = Gateway(session, self._app.host)
        return gateway

    @property
    def _granted(self) -> frozenset[object]:
        return frozenset(PROFILES[Profile(self._server.profile)])

    async def _issue(self, record: SessionRecord) -> tuple[TrackerAdapter | None, Issue | None]:
        if record.issue_id is None or record.issue_identifier is None:
            return None, None
        found = await _trackers_of(self._app, record.issue_id, record.issue_identifier)
        return found[0] if len(found) == 1 else (None, None)

    def _forget_closed(self) -> None:
        now = utc_now()
        for session_id in [key for key in self._gateways if not self._app.sessions.is_open(key, now=now)]:
            self._gateways.pop(session_id).close("it was revoked or its time is over")
