"""The boundary on the real store: one receipt for each call, whatever its end (R-136, D7, D23)."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.gateway import Gateway, Host
from hostside.errors import Effect, FailureCode, ToolFailed
from hostside.store.queries import list_receipts, show_receipt
from hostside.store.verify import verify
from tests.store.rows import Store
from tests.store.tight_disk import TightDisk
from tests.support.gateways import an_issue, call, make_gateway, make_host
from tests.support.tools import Recorder, a_post_spec, a_tool, a_write_spec

pytestmark = pytest.mark.anyio
Facts = list[tuple[object, ...]]


async def _fail(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    raise ToolFailed(FailureCode.TOOL_FAILED, "exit 1", remedy="look", effect=Effect.NONE, exit_code=1)


async def _wait(_arguments: JsonObject, _context: CallContext) -> ToolResult:
    await anyio.sleep_forever()
    raise NotImplementedError


class Poster(Recorder):
    """Posts, with a new id each time."""

    async def __call__(self, arguments: JsonObject, context: CallContext) -> ToolResult:
        await super().__call__(arguments, context)
        return ToolResult(structured={"id": f"c-{len(self.arguments)}"}, effect=Effect.REPORTED)


def _gateway(
    store: Store, poster: Poster | None = None, *, session_id: str = "s-1", host: Host | None = None
) -> Gateway:
    tools = [
        a_tool(Recorder(), name="demo_get"),
        a_tool(_fail, name="demo_bad"),
        a_tool(_wait, name="demo_slow"),
        a_tool(Recorder(), spec=a_write_spec()),
        a_tool(_fail, spec=a_write_spec("demo_write_bad")),
        a_tool(_wait, spec=a_write_spec("demo_write_slow")),
        a_tool(poster or Poster(), spec=a_post_spec()),
    ]
    shared = host or make_host(receipts=store.receipts)
    gateway = make_gateway(tools, host=shared, run_id=None, issue=an_issue(), session_id=session_id)
    store.sessions.open(gateway.session)
    return gateway


async def _cancelled(gateway: Gateway, name: str) -> None:
    with anyio.move_on_after(0.05):
        await call(gateway, name, {})


def _facts(store: Store) -> Facts:
    return [
        tuple(item[name] for name in ("tool", "outcome", "code", "effect"))
        for item in list_receipts(store.database).receipts
    ]


async def test_each_call_leaves_one_receipt_whatever_its_end(store: Store) -> None:
    gateway = _gateway(store)
    ends: list[Callable[[], Awaitable[object]]] = [
        lambda: call(gateway, "demo_get", {}),
        lambda: call(gateway, "demo_nothing", {}),
        lambda: call(gateway, "demo_get", {"x": 1}),
        lambda: call(gateway, "demo_bad", {}),
        lambda: _cancelled(gateway, "demo_slow"),
        lambda: call(gateway, "demo_write", {}),
        lambda: call(gateway, "demo_write", []),
        lambda: call(gateway, "demo_write_bad", {}),
        lambda: _cancelled(gateway, "demo_write_slow"),
        lambda: call(gateway, "demo_post", {"body": "hello"}),
    ]
    for end in ends:
        await end()
    await store.receipts.flush()
    assert _facts(store) == [
        ("demo_get", "ok", None, "none"),
        ("demo_nothing", "refused", "unknown_tool", "none"),
        ("demo_get", "refused", "invalid_arguments", "none"),
        ("demo_bad", "failed", "tool_failed", "none"),
        ("demo_slow", "failed", "cancelled", "none"),
        ("demo_write", "ok", None, "none"),
        ("demo_write", "refused", "invalid_arguments", "none"),
        ("demo_write_bad", "failed", "tool_failed", "none"),
        ("demo_write_slow", "failed", "cancelled", "unknown"),
        ("demo_post", "ok", None, "reported"),
    ]
    report = verify(store.database)
    assert (report.ok, report.receipts) == (True, len(ends))


async def test_a_repeated_post_is_answered_from_the_store_with_a_receipt_of_its_own(store: Store) -> None:
    poster = Poster()
    gateway = _gateway(store, poster)
    first = await call(gateway, "demo_post", {"body": "hello"})
    second = await call(gateway, "demo_post", {"body": "hello"})
    third = await call(gateway, "demo_post", {"body": "hello"}, key="another")
    await store.receipts.flush()
    assert [first.structured, second.structured, third.structured] == [
        {"id": "c-1"},
        {"id": "c-1", "unchanged": True},
        {"id": "c-2"},
    ]
    assert len(poster.arguments) == 2
    assert second.receipt_id is not None
    shown = show_receipt(store.database, second.receipt_id)
    assert shown is not None
    assert (shown["replay_of"], shown["effect"]) == (first.receipt_id, "none")


@pytest.mark.parametrize("fault", ["full", "read_only"])
async def test_no_write_runs_while_receipts_cannot_be_kept_and_writes_run_again_after(store: Store, fault: str) -> None:
    poster, disk = Poster(), TightDisk(store.database)
    gateway = _gateway(store, poster)
    setattr(disk, fault, True)
    # Long free text is kept as a hash, so it takes many small rows to fill the last page.
    for number in range(400):
        result = await call(gateway, "demo_post", {"body": f"text {number}"})
        if not result.ok:
            break
    assert result.failure is not None
    assert (result.failure.code, result.failure.effect) in [
        (FailureCode.RECEIPT_UNAVAILABLE, Effect.NONE),
        (FailureCode.EFFECT_UNKNOWN, Effect.UNKNOWN),  # the start was the last row that fitted
    ]
    done = len(poster.arguments)
    again = await call(gateway, "demo_post", {"body": "x" * 3_000})
    read = await call(gateway, "demo_get", {})
    assert [item.failure and item.failure.code for item in (again, read)] == [FailureCode.RECEIPT_UNAVAILABLE] * 2
    assert len(poster.arguments) == done
    setattr(disk, fault, False)
    after = await call(gateway, "demo_post", {"body": "after"})
    assert (after.ok, len(poster.arguments)) == (True, done + 1)
    assert verify(store.database).ok


async def test_many_sessions_call_at_once_and_each_chain_holds(store: Store) -> None:
    host = make_host(receipts=store.receipts)
    gateways = [_gateway(store, session_id=f"s-{number}", host=host) for number in range(8)]

    async def work(gateway: Gateway) -> None:
        for number in range(8):
            await call(gateway, "demo_get", {})
            await call(gateway, "demo_post", {"body": f"{number}"})

    async with anyio.create_task_group() as group:
        for gateway in gateways:
            group.start_soon(work, gateway)
    await store.receipts.flush()
    report = verify(store.database)
    assert (report.ok, report.sessions, report.receipts) == (True, 8, 128)
