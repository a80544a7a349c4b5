"""A real Gateway over one session for tests of tools and edges: everything real but the receipt log and the ids."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from hostside.core.call import ToolCall, ToolResult, Workspace
from hostside.core.canonical import JsonValue
from hostside.core.gateway import Gateway, Host
from hostside.core.issue import Issue, NativeRef
from hostside.core.locality import CallerDisk, Reach
from hostside.core.observers import ObserverQueue
from hostside.core.policy import Mode, Policy, Profile
from hostside.core.receipt import Approver, NobodyToAsk, Observer, ReceiptLog
from hostside.core.redaction import Redactor
from hostside.core.registry import Registry
from hostside.core.scope import NamedTarget
from hostside.core.serialization import KeyedLocks
from hostside.core.session import open_session
from hostside.core.spec import Tool
from tests.support.memory_receipts import MemoryReceipts

FULL_REACH = Reach(caller_disk=CallerDisk.SHARED, server_checkout=True)
_log = logging.getLogger(__name__)


def an_issue(identifier: str = "DEMO-1", *, id: str | None = None, state: str = "Todo") -> Issue:
    """Return a small issue whose id is `id-<identifier>` unless given."""
    made = id or f"id-{identifier}"
    return Issue(
        id=made,
        identifier=identifier,
        title="Greeting is misspelled",
        state=state,
        dispatchable=True,
        native_ref=NativeRef({"itemId": made}),
    )


def make_host(
    *,
    receipts: ReceiptLog | None = None,
    approver: Approver | None = None,
    observers: Iterable[Observer] = (),
    secrets: Iterable[str] = (),
    is_open: Callable[[str], bool] = lambda _session_id: True,
) -> Host:
    """Return a host with real clocks, ids `rc-1`, `rc-2`, … and events on the debug log. Nobody answers approvals."""
    numbers = itertools.count(1)
    return Host(
        receipts=receipts or MemoryReceipts(),
        approver=approver or NobodyToAsk(),
        redactor=Redactor(secrets),
        locks=KeyedLocks(),
        observers=ObserverQueue(observers),
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        new_id=lambda prefix: f"{prefix}-{next(numbers)}",
        event=lambda name, facts: _log.debug("%s %s", name, facts),
        is_open=is_open,
    )


def make_gateway(
    tools: Iterable[Tool] | Registry,
    *,
    issue: Issue | None = None,
    workspace: Workspace | None = None,
    edge: str = "stdio",
    reach: Reach = FULL_REACH,
    profile: Profile = Profile.FULL,
    mode: Mode = Mode.WORK,
    policy: Policy | None = None,
    named: frozenset[NamedTarget] = frozenset(),
    session_id: str = "s-1",
    run_id: str | None = "r-1",
    attempt: int = 1,
    lifetime: timedelta = timedelta(hours=4),
    host: Host | None = None,
    receipts: ReceiptLog | None = None,
    approver: Approver | None = None,
    observers: Iterable[Observer] = (),
) -> Gateway:
    """Return a gateway over a new session of all `tools`, with every reach and capability unless narrowed here.

    Pass `receipts` to look at what was recorded, or `host` to share one host (locks, receipts) between gateways.
    """
    registry = tools if isinstance(tools, Registry) else Registry(tools)
    now = datetime.now(UTC)
    session = open_session(
        session_id=session_id,
        registry=registry.snapshot(),
        edge=edge,
        server_id="server-1",
        principal=f"principal-of-{session_id}",
        profile=profile,
        reach=reach,
        opened_at=now,
        expires_at=now + lifetime,
        run_id=run_id,
        attempt=attempt,
        issue=issue,
        workspace=workspace,
        mode=mode,
        policy=policy,
        named=named,
    )
    return Gateway(session, host or make_host(receipts=receipts, approver=approver, observers=observers))


async def call(
    gateway: Gateway, name: str, arguments: object, *, key: str | None = None, delivery: str | None = None
) -> ToolResult:
    """Send one call. `key` is the caller's idempotency key, `delivery` its delivery key."""
    return await gateway.call(ToolCall(name=name, arguments=arguments, idempotency_key=key, delivery_key=delivery))


async def ok(gateway: Gateway, name: str, arguments: object = None, **keys: str) -> Mapping[str, JsonValue]:
    """Send one call that must succeed and return its `structured`; None sends `{}`."""
    result = await call(gateway, name, {} if arguments is None else arguments, **keys)
    assert result.failure is None, result.failure
    return result.structured
