"""What the host says to a Claude Code process: whole lines, one after another, from any task of the loop."""

import contextlib
from collections import deque

import anyio

from hostside.worker.process import Child

MAX_UNREAD_BYTES = 64 * 1024 * 1024


class AgentInput:
    """A queue in front of the child's standard input. One task runs `write_to`; everything else may be called from any.

    `put` never waits, so that whoever reads the agent's output goes on reading: an agent that is busy writing does not
    read, and both would wait for each other for ever.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._unread = 0
        self._wake = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._scope = anyio.CancelScope(shield=True)
        self._gone = False
        self.overflowed = False
        """The agent left more than `MAX_UNREAD_BYTES` unread. What came after them was dropped."""

    @property
    def unread(self) -> int:
        """Bytes that the agent has not taken; 0 also when it takes no more."""
        return self._unread

    def put(self, line: bytes) -> None:
        """Queue one line with its end. Dropped when the agent takes no more."""
        if self._gone:
            return
        if self._unread + len(line) > MAX_UNREAD_BYTES:
            self.overflowed = True
            return
        self._lines.append(line)
        self._unread += len(line)
        self._idle = anyio.Event()
        self._wake.set()

    async def flushed(self) -> None:
        """Wait until the agent has taken everything, or takes no more."""
        while self._unread:
            await self._idle.wait()

    async def write_to(self, child: Child) -> None:
        """Write until `close`, or until the child's input is closed from either side.

        Not cancelled with its surroundings: the last words to a run that is being cancelled still go out, and never
        behind half a line.
        """
        with self._scope, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                while self._lines:
                    await child.send(self._lines[0])
                    self._unread -= len(self._lines.popleft())
                self._idle.set()
                self._wake = anyio.Event()
                await self._wake.wait()
        self._gone = True
        self._lines.clear()
        self._unread = 0
        self._idle.set()

    def close(self) -> None:
        """End `write_to`. Safe to repeat, and before it began."""
        self._scope.cancel()
