"""Pipes between the host and a child, and what is kept of them.

The descriptors are non-blocking and awaited one readiness at a time, so a cancelled read loses nothing and no event
loop transport outlives its process. This works alike on asyncio's loop and on uvloop.
"""

import os
from collections.abc import Callable

import anyio

from hostside.errors import HostsideError

CHUNK_BYTES = 65_536
MAX_LINE_BYTES = 64 * 1024 * 1024


class LineTooLong(HostsideError):
    """A child wrote more than `limit` bytes without a newline. Reading that stream cannot go on."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a line of more than {limit} bytes")
        self.limit = limit


class _Descriptor:
    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd

    def _open_fd(self) -> int:
        if self._fd is None:
            raise anyio.ClosedResourceError
        return self._fd

    def close(self) -> None:
        """Close the host's end; a task that waits on it gets `anyio.ClosedResourceError`. Safe to repeat."""
        fd, self._fd = self._fd, None
        if fd is not None:
            anyio.notify_closing(fd)
            os.close(fd)


class PipeReader(_Descriptor):
    """The host's end of a child's output. One reader at a time."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._buffer = bytearray()
        self._searched = 0

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """The next bytes, `b""` at the end of the stream. Bytes left over by `receive_line` come first."""
        if self._buffer:
            taken = bytes(self._buffer[:max_bytes])
            del self._buffer[:max_bytes]
            self._searched = 0
            return taken
        return await self._read(max_bytes)

    async def receive_line(self, max_bytes: int = MAX_LINE_BYTES) -> bytes | None:
        r"""The next line without its `\n`; None at the end of the stream.

        Only `\n` ends a line: `\r`, U+2028 and the like are content of a JSON frame. A last line without `\n` is
        returned as it is. Raises `LineTooLong`; cancellation keeps the bytes read so far for the next call.
        """
        while (at := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > max_bytes:
                raise LineTooLong(max_bytes)
            chunk = await self._read(CHUNK_BYTES)
            if not chunk:
                return self._take(len(self._buffer), 0) if self._buffer else None
            self._buffer += chunk
        if at > max_bytes:
            raise LineTooLong(max_bytes)
        return self._take(at, 1)

    def _take(self, length: int, separator: int) -> bytes:
        line = bytes(self._buffer[:length])
        del self._buffer[: length + separator]
        self._searched = 0
        return line

    async def _read(self, max_bytes: int) -> bytes:
        while True:
            fd = self._open_fd()
            try:
                return os.read(fd, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(fd)


class PipeWriter(_Descriptor):
    """The host's end of a child's input. One writer at a time."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`. Raises `anyio.BrokenResourceError` when the child no longer reads."""
        rest = memoryview(data)
        while rest:
            fd = self._open_fd()
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(fd)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error


class Tail:
    """The last `limit` bytes of a stream, so that draining a child costs bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.dropped = 0

    def add(self, chunk: bytes) -> None:
        self._kept += chunk
        excess = len(self._kept) - self._limit
        if excess > 0:
            del self._kept[:excess]
            self.dropped += excess

    def content(self) -> bytes:
        return bytes(self._kept)

    def text(self, redact: Callable[[str], str] = str) -> str:
        """Decoded and passed through `redact`, from the first whole line on.

        The cut may fall inside a secret, which `redact` could then not recognise: so a cut line is left out.
        """
        kept = bytes(self._kept)
        if self.dropped:
            kept = kept.partition(b"\n")[2]
        return redact(kept.decode("utf-8", "replace"))


class Head:
    """The first `limit` bytes of a stream; the rest is read and forgotten."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.truncated = False

    def add(self, chunk: bytes) -> None:
        room = self._limit - len(self._kept)
        self._kept += chunk[:room]
        self.truncated = self.truncated or len(chunk) > room

    def content(self) -> bytes:
        return bytes(self._kept)
