"""`hostside serve`: one stdio client, or an HTTP endpoint for sessions that other processes open (D5, D6, D11)."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from hostside.app.host import App, new_id, workspace_tools
from hostside.app.http_sessions import HttpSessions
from hostside.app.operator_checkout import OperatorGit, workspace_of
from hostside.app.planning import environment_source, git_identity
from hostside.app.server_records import Address, ServerFolder, ServerRecord
from hostside.config.host import HostSettings
from hostside.core.call import Workspace
from hostside.core.gateway import Gateway
from hostside.core.issue import Issue
from hostside.core.locality import CallerDisk, Reach
from hostside.core.policy import Profile
from hostside.core.spec import Tool
from hostside.edges.http_server import serve_on
from hostside.edges.mcp_http import ENDPOINT, http_app
from hostside.edges.mcp_stdio import serve_stdio
from hostside.errors import ConfigError
from hostside.worker.process_identity import started_at

CALLERS_DISK = Reach(caller_disk=CallerDisk.SHARED, server_checkout=False)
_BACKLOG = 128


def without_credentials(settings: HostSettings) -> HostSettings:
    """Return what a stdio server may know: limits and tools, no tracker, code host or agent, so nothing to resolve."""
    kept = {name: getattr(settings, name) for name in ("run", "policy", "serve")}
    network = settings.network.model_copy(update={"registry_tokens": {}})
    return HostSettings.model_validate({**kept, "network": network})


@contextlib.asynccontextmanager
async def local_session(
    app: App,
    *,
    edge: str,
    profile: Profile,
    workspace: Workspace | None,
    tracker_tools: tuple[Tool, ...] = (),
    issue: Issue | None = None,
) -> AsyncIterator[Gateway]:
    """Yield the gateway of a session on the caller's own disk; the session is revoked at the end of the block.

    Git runs in the workspace; without one, every tool of a workspace is refused.
    """
    identity = git_identity(app.settings.run.author_name, app.settings.run.author_email)
    place = workspace or Workspace(id="none", root=os.devnull)
    with OperatorGit(place, environment_source(app), identity) as git:
        gateway = app.open_session(
            [*tracker_tools, *workspace_tools(git)],
            edge=edge,
            profile=profile,
            reach=CALLERS_DISK,
            issue=issue,
            workspace=workspace,
        )
        try:
            yield gateway
        finally:
            gateway.close("its command ended")
            with anyio.CancelScope(shield=True):
                await run_sync(app.sessions.revoke, gateway.session.session_id)


async def serve_one_client(app: App, *, profile: Profile, folder: Path, read_fd: int, write_fd: int) -> None:
    """Serve MCP on two descriptors until the client ends or a signal comes. Raises ConfigError before the first frame."""
    workspace = workspace_of(folder, app.paths, top_level=False)
    async with local_session(app, edge="stdio", profile=profile, workspace=workspace) as gateway:
        await until_signal(lambda: serve_stdio(gateway, stdin_fd=read_fd, stdout_fd=write_fd))


async def serve_everyone(
    app: App,
    address: Address,
    *,
    profile: Profile,
    allow_remote: bool,
    ready: Callable[[ServerRecord], None],
) -> None:
    """Serve MCP over HTTP until a signal comes. Every request needs the token of a session opened for this server.

    Raises ConfigError when the address is not loopback and `allow_remote` is not set, or it cannot be had.
    """
    check_reachable(address, app.settings, allow_remote=allow_remote)
    for dead in ServerFolder(app.paths).take_dead():
        app.sessions.revoke_server(dead)
    with _listener(address) as listener:
        server = _record(app, address, listener.getsockname()[1], profile)
        hosts = {server.address, f"localhost:{listener.getsockname()[1]}", *app.settings.serve.allowed_hosts}
        edge = http_app(
            HttpSessions(app, server).resolve,
            allowed_hosts=hosts,
            allowed_origins=app.settings.serve.allowed_origins,
        )
        started = anyio.Event()

        async def announce() -> None:
            await started.wait()
            ServerFolder(app.paths).write(server)
            ready(server)

        async def serve() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(announce)
                await serve_on([listener], edge, ready=started, before_stop=edge.close)

        try:
            await until_signal(serve)
        finally:
            # A token is good for one server, and dies with it (D10, R-218).
            app.sessions.revoke_server(server.server_id)
            ServerFolder(app.paths).remove(server)


def check_reachable(address: Address, settings: HostSettings, *, allow_remote: bool) -> None:
    """Raise ConfigError for an address that others reach, unless that was asked for in so many words (D11)."""
    if address.is_loopback:
        return
    if not allow_remote:
        raise ConfigError(
            "invalid_configuration",
            f"{address} can be reached from other machines.",
            remedy="Use 127.0.0.1, or add --allow-remote and put a proxy with TLS in front; such sessions reach no disk.",
        )
    if address.is_wildcard and not settings.serve.allowed_hosts:
        raise ConfigError(
            "invalid_configuration",
            f"{address} names no host, and serve.allowed_hosts is empty: every request would be refused.",
            remedy='Name what clients write, in hostside.toml: [serve] allowed_hosts = ["tools.example.org"].',
        )


async def until_signal(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it ends, or cancel it at the first SIGINT, SIGTERM or SIGHUP and return when it has cleaned up."""
    with anyio.CancelScope() as scope, _on_signals(scope.cancel):
        await work()


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            "invalid_configuration",
            f"{address} cannot be listened on: {error.strerror}.",
            remedy="Stop what listens there, or give another port; port 0 takes any free one.",
        ) from None


def _record(app: App, address: Address, port: int, profile: Profile) -> ServerRecord:
    shown = Address(host=address.host, port=port)
    remote = not address.is_loopback
    return ServerRecord(
        server_id=new_id("srv"),
        url=f"{_public(app.settings, shown)}{ENDPOINT}",
        address=str(shown),
        remote=remote,
        profile=profile.value,
        configuration_sha256=app.policy_sha256(),
        pid=os.getpid(),
        pid_started_at=started_at(os.getpid()) or 0,
    )


def _public(settings: HostSettings, address: Address) -> str:
    """Return where clients find the server; from afar through the proxy with TLS, under the first allowed host."""
    if address.is_loopback or not settings.serve.allowed_hosts:
        return f"http://{address}"
    return f"https://{settings.serve.allowed_hosts[0]}"
