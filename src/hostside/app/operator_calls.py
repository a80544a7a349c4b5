"""`hostside call`: one call by the operator, through the same boundary as everybody's."""

import contextlib
from pathlib import Path

from hostside.app.host import App
from hostside.app.http_sessions import issue_of
from hostside.app.operator_checkout import workspace_of
from hostside.app.serving import local_session
from hostside.core.call import ToolCall, ToolResult, Workspace
from hostside.core.policy import Profile
from hostside.core.spec import Tool
from hostside.errors import ConfigError


async def call_once(
    app: App,
    tool: str,
    arguments: object,
    *,
    issue: str | None,
    tracker: str | None,
    profile: Profile,
    folder: Path,
) -> ToolResult:
    """Run one call on edge `cli`, with the issue and the checkout around `folder`, and return its result.

    Besides the workspace's tools there are those of the named tracker, or of the only configured one. A folder that
    cannot be a workspace gives a session without one. Raises ConfigError for a missing issue or an ambiguous tracker.
    """
    tools: tuple[Tool, ...] = ()
    bound = None
    if issue is not None:
        adapter, bound = await issue_of(app, issue, tracker)
        tools = adapter.tools()
    elif tracker is not None:
        tools = app.tracker(tracker)[1].tools()
    else:
        with contextlib.suppress(ConfigError):  # none, several, or of an unknown kind: the workspace's tools remain
            tools = app.tracker()[1].tools()
    session = local_session(
        app, edge="cli", profile=profile, workspace=_workspace(app, folder), tracker_tools=tools, issue=bound
    )
    async with session as gateway:
        result = await gateway.call(ToolCall(name=tool, arguments=arguments))
        await app.receipts.flush()
    return result


def _workspace(app: App, folder: Path) -> Workspace | None:
    try:
        return workspace_of(folder, app.paths, top_level=True)
    except ConfigError:  # a home folder, say: tracker tools work from anywhere
        return None
