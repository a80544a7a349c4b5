"""Bytes in both directions between a client and the one address that was checked, counted and bounded."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import anyio.abc

from hostside.worker.egress.client_connection import CHUNK_BYTES
from hostside.worker.egress.decisions import Case
from hostside.worker.egress.policy import EgressLimits


@dataclass(slots=True)
class _Last:
    at: float


async def tunnel(
    client: anyio.abc.ByteStream, ahead: bytes, remote: anyio.abc.ByteStream, case: Case, limits: EgressLimits
) -> None:
    """Pass bytes on until both sides have ended, one breaks, or a bound is reached; `case.reason` says which bound.

    `ahead`: what the client has sent already. Closes neither stream.
    """
    last = _Last(anyio.current_time())

    async def outwards() -> None:
        data = ahead
        while True:
            case.sent += len(data)
            if case.sent > limits.tunnel_sent_bytes:
                stop("too_much_sent")
                return
            if data:
                await remote.send(data)
                last.at = anyio.current_time()
            data = await client.receive(CHUNK_BYTES)

    async def inwards() -> None:
        while True:
            data = await remote.receive(CHUNK_BYTES)
            case.received += len(data)
            if case.received > limits.response_bytes:
                stop("answer_too_large")
                return
            await client.send(data)
            last.at = anyio.current_time()

    async def watch() -> None:
        end = anyio.current_time() + limits.total_seconds
        while (now := anyio.current_time()) < min(end, last.at + limits.tunnel_idle_seconds):
            await anyio.sleep(min(end, last.at + limits.tunnel_idle_seconds) - now)
        stop("too_long" if now >= end else "idle")

    def stop(reason: str) -> None:
        case.reason = reason
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        async with anyio.create_task_group() as both:
            both.start_soon(_until_end, outwards, remote, tasks.cancel_scope)
            both.start_soon(_until_end, inwards, client, tasks.cancel_scope)
        tasks.cancel_scope.cancel()


async def _until_end(pump: Callable[[], Awaitable[None]], to: anyio.abc.ByteStream, whole: anyio.CancelScope) -> None:
    """An end of one direction is handed on; a broken connection ends both."""
    try:
        await pump()
    except anyio.EndOfStream:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await to.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        whole.cancel()
