"""Bytes in both directions between a client and the one address that was checked, counted and bounded."""

import contextlib
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from hostside.worker.egress.client_connection import CHUNK_BYTES
from hostside.worker.egress.decisions import Case
from hostside.worker.egress.policy import EgressLimits


class Tunnel:
    """Passes bytes on until both sides have ended, one breaks, or a bound is reached; `case.reason` says which bound.

    `ahead`: what the client has sent already. Closes neither stream.
    """

    def __init__(
        self,
        client: anyio.abc.ByteStream,
        ahead: bytes,
        remote: anyio.abc.ByteStream,
        case: Case,
        limits: EgressLimits,
    ) -> None:
        self._client = client
        self._ahead = ahead
        self._remote = remote
        self._case = case
        self._limits = limits
        self._last = anyio.current_time()
        self._whole = anyio.CancelScope()

    async def run(self) -> None:
        """Return when it is over."""
        with self._whole:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                async with anyio.create_task_group() as both:
                    both.start_soon(self._until_end, self._outwards, self._remote)
                    both.start_soon(self._until_end, self._inwards, self._client)
                tasks.cancel_scope.cancel()

    async def _outwards(self) -> None:
        data = self._ahead
        while True:
            if self._case.sent + len(data) > self._limits.tunnel_sent_bytes:
                self._stop("too_much_sent")
                return
            if data:
                await self._remote.send(data)
                self._case.sent += len(data)
                self._last = anyio.current_time()
            data = await self._client.receive(CHUNK_BYTES)

    async def _inwards(self) -> None:
        while True:
            data = await self._remote.receive(CHUNK_BYTES)
            self._case.received += len(data)
            if self._case.received > self._limits.response_bytes:
                self._stop("answer_too_large")
                return
            await self._client.send(data)
            self._last = anyio.current_time()

    async def _watch(self) -> None:
        end = anyio.current_time() + self._limits.total_seconds
        while (now := anyio.current_time()) < (until := min(end, self._last + self._limits.tunnel_idle_seconds)):
            await anyio.sleep(until - now)
        self._stop("too_long" if now >= end else "idle")

    def _stop(self, reason: str) -> None:
        self._case.reason = reason
        self._whole.cancel()

    async def _until_end(self, pump: Callable[[], Awaitable[None]], to: anyio.abc.ByteStream) -> None:
        """An end of one direction is handed on; a broken connection ends both."""
        try:
            await pump()
        except anyio.EndOfStream:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await to.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._whole.cancel()
