"""A stream that begins with bytes which were read too early."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio.abc


class Ahead(anyio.abc.ByteStream):
    """`stream`, as if `ahead` had not been read from it yet."""

    def __init__(self, stream: anyio.abc.ByteStream, ahead: bytes) -> None:
        self._stream = stream
        self._ahead = ahead

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if self._ahead:
            taken, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
            return taken
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes
