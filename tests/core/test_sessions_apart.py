"""Sessions beside each other: whose tools, who waits for whom, and what a wait finds at its end (AX-05, R-183, R-218)."""

from typing import Any

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult, Workspace
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway, Host
from hostside.core.registry import Registry
from hostside.core.scope import PathTarget
from hostside.core.spec import Tool
from hostside.errors import FailureCode
from tests.support.gateways import call, make_gateway, make_host
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_tool, a_write_spec

pytestmark = pytest.mark.anyio


def a_change(execute: Any) -> Tool:
    """A write to a file of the workspace."""
    return a_tool(execute, spec=a_write_spec(targets_of=lambda _arguments, _context: [PathTarget(path="f")]))


class Crowd:
    """Counts how many executions of it run at once; they stay until `release`."""

    def __init__(self) -> None:
        self.running, self.most = 0, 0
        self.release = anyio.Event()

    async def __call__(self, _arguments: JsonObject, _context: CallContext) -> ToolResult:
        """Stay until released."""
        self.running += 1
        self.most = max(self.most, self.running)
        await self.release.wait()
        self.running -= 1
        return ToolResult()


def gateways(host: Host, crowd: Crowd, *workspaces: str) -> list[Gateway]:
    return [
        make_gateway(
            [a_change(crowd)], host=host, session_id=f"s-{number}", workspace=Workspace(id=name, root=f"/srv/{name}")
        )
        for number, name in enumerate(workspaces)
    ]


@pytest.mark.parametrize(("workspaces", "most"), [(("w", "w"), 1), (("w-1", "w-2"), 2)])
async def test_changes_of_one_workspace_follow_each_other_and_those_of_two_do_not(
    workspaces: tuple[str, str], most: int
) -> None:
    crowd = Crowd()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for gateway in gateways(make_host(), crowd, *workspaces):
                group.start_soon(call, gateway, "demo_write", {})
            await anyio.wait_all_tasks_blocked()
            assert crowd.running == most
            crowd.release.set()
    assert crowd.most == most


async def test_a_change_that_waited_while_its_session_ended_is_refused_and_not_made() -> None:
    crowd, log = Crowd(), MemoryReceipts()
    first, waiting = gateways(make_host(receipts=log), crowd, "w", "w")
    results: list[ToolResult] = []

    async def ask() -> None:
        results.append(await call(waiting, "demo_write", {}))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(call, first, "demo_write", {})
            await anyio.wait_all_tasks_blocked()
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            waiting.close("its run ended")
            crowd.release.set()
    assert [result.failure and result.failure.code for result in results] == [FailureCode.SESSION_CLOSED]
    assert (crowd.most, sorted(end.outcome.value for end in log.ends)) == (1, ["ok", "refused"])


async def test_two_workspaces_have_their_own_tools_and_their_own_executors() -> None:
    one, two = Recorder(ToolResult(structured={"who": "one"})), Recorder(ToolResult(structured={"who": "two"}))
    registries = [
        Registry([a_tool(one), a_tool(name="private_one")]),
        Registry([a_tool(two), a_tool(name="private_two")]),
    ]
    sessions = [make_gateway(registry, session_id=f"s-{number}") for number, registry in enumerate(registries)]
    assert [gateway.session.listed for gateway in sessions] == [
        ("demo_get", "private_one"),
        ("demo_get", "private_two"),
    ]
    foreign = [await call(sessions[0], "private_two", {}), await call(sessions[1], "private_one", {})]
    assert [result.failure and result.failure.code for result in foreign] == [FailureCode.UNKNOWN_TOOL] * 2
    assert [(await call(gateway, "demo_get", {})).structured for gateway in sessions] == [
        {"who": "one"},
        {"who": "two"},
    ]
    assert (len(one.arguments), len(two.arguments)) == (1, 1)


async def test_a_filtered_view_can_neither_be_widened_nor_used_to_change_the_registry() -> None:
    registry = Registry([a_tool(Recorder(), name="shown"), a_tool(Recorder(), name="excluded")])
    view: Any = registry.snapshot(["shown"])
    excluded: Any = registry.snapshot().tools["excluded"]
    with pytest.raises(TypeError):
        view.tools["excluded"] = excluded
    with pytest.raises(TypeError):
        del view.tools["shown"]
    with pytest.raises(AttributeError):
        view.tools = {}
    assert (list(view.tools), registry.names()) == (["shown"], ("excluded", "shown"))
