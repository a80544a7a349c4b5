"""The HTTP edge of one run: served on listeners that only this run has, gone with it (R-173, R-202, R-218)."""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence

import anyio

from hostside.edges.http_server import serve_on
from hostside.edges.mcp_http import ENDPOINT, http_app
from hostside.worker.agent import AgentTask

START_SECONDS = 10.0


def edge_url(address: tuple[str, int]) -> str:
    """Return the endpoint as the agent reaches it."""
    return f"http://{address[0]}:{address[1]}{ENDPOINT}"


@contextlib.asynccontextmanager
async def run_edge(
    task: AgentTask, listeners: Sequence[socket.socket], address: tuple[str, int]
) -> AsyncIterator[None]:
    """Serve the run's tools on `listeners` while the block runs.

    The server answers before the block is entered. At its end open streams and calls in flight are ended first, so that
    each of them leaves its receipt, then the listeners are closed. Tells `edge_started` and `edge_stopped` (R-211).
    """
    host = f"{address[0]}:{address[1]}"
    # An agent that builds for an hour comes back to the session it left; a 404 would make it send its call again (D23).
    edge = http_app(task.resolve_token, allowed_hosts=(host, f"localhost:{address[1]}"), sessions_expire=False)
    ready = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serve_on(listeners, edge, ready=ready, before_stop=edge.close))
        try:
            with anyio.fail_after(START_SECONDS):
                await ready.wait()
            task.event("edge_started", {"edge": task.gateway.session.edge, "url": edge_url(address)})
            yield
        finally:
            task.event("edge_stopped", {"edge": task.gateway.session.edge})
            group.cancel_scope.cancel()
