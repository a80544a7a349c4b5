"""What bwrap tells about one sandbox: its first process, and whether the program inside ever ran."""

import json
import os
from contextlib import suppress

import anyio

from hostside.worker.process_identity import children_of
from hostside.worker.process_streams import LineTooLong, PipeReader

_EMPTIED_SECONDS = 5.0
_LINE_BYTES = 4_096


class SandboxStatus:
    """The host's end of bwrap's `--json-status-fd`: `{"child-pid": N}` at the start, `{"exit-code": N}` at the end."""

    def __init__(self, fd: int) -> None:
        self._reader = PipeReader(fd)
        self._first_pid: int | None = None
        self._first: int | None = None
        self._emptying = anyio.Lock()
        self.ran = False
        """The program inside ran and ended: bwrap reports an exit code only then."""

    async def started(self) -> bool:
        """Wait for the sandbox's first process. False when bwrap ended without making one."""
        pid = (await self._message()).get("child-pid")
        if pid is None:
            return False
        self._first_pid = pid
        with suppress(ProcessLookupError):
            self._first = os.pidfd_open(pid)
        return True

    def programs(self) -> tuple[int, ...]:
        """The program that was started inside, as the host numbers it; empty before and after its life."""
        return () if self._first_pid is None else children_of(self._first_pid)

    async def emptied(self) -> None:
        """Wait until the sandbox's first process is gone, and by the kernel's rule every other one before it.

        bwrap itself ends a moment earlier. Raises `TimeoutError` after 5 seconds.
        """
        # One descriptor, many waiters: the loop watches it for one at a time.
        async with self._emptying:
            if self._first is None:
                return
            with anyio.fail_after(_EMPTIED_SECONDS):
                await anyio.wait_readable(self._first)
            self.ran = "exit-code" in await self._message()
            self._close_first()

    def close(self) -> None:
        self._reader.close()
        self._close_first()

    async def _message(self) -> dict[str, int]:
        try:
            line = await self._reader.receive_line(_LINE_BYTES)
            message = json.loads(line or b"{}")
        except (ValueError, LineTooLong, anyio.ClosedResourceError):
            return {}
        return message if isinstance(message, dict) else {}

    def _close_first(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            anyio.notify_closing(first)
            os.close(first)
