"""One conversation with `codex app-server`: JSON lines over its pipes, requests in both directions (R-190, R-201)."""

import json
from collections.abc import AsyncIterator

import anyio

from hostside.core.canonical import JsonObject
from hostside.errors import HostsideError
from hostside.worker.codex_frames import LineSplitter, Notification, Request, RequestId, Response, Unreadable
from hostside.worker.process import Child

METHOD_NOT_FOUND = -32601


class AgentGone(HostsideError):
    """The app-server no longer reads or no longer writes."""


class RequestRejected(HostsideError):
    """The app-server answered a request with an error. `message` is its own text."""

    def __init__(self, method: str, message: str) -> None:
        super().__init__(f"{method}: {message}")
        self.method = method
        self.message = message


class _Waiting:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.response: Response | None = None


class AppServer:
    """The host's end. One task runs `frames`; everything else may be called from any task of the loop."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._writing = anyio.Lock()
        self._waiting: dict[RequestId, _Waiting] = {}
        self._requests = 0
        self._torn = False
        self.gone = False
        """Its output has ended."""

    async def frames(self) -> AsyncIterator[Request | Notification | Unreadable]:
        """Yield what the app-server sends until it ends; answers to our requests go to those who wait for them."""
        lines = LineSplitter()
        try:
            while chunk := await self._child.receive():
                for frame in lines.feed(chunk):
                    if isinstance(frame, Response):
                        self._settle(frame)
                    else:
                        yield frame
            for frame in lines.finish():
                if not isinstance(frame, Response):
                    yield frame
        except anyio.ClosedResourceError:
            pass
        finally:
            self.gone = True
            for waiting in self._waiting.values():
                waiting.settled.set()

    async def request(self, method: str, params: JsonObject, *, timeout_seconds: float) -> JsonObject:
        """Return the result. Raises `RequestRejected`, `AgentGone` or `TimeoutError`."""
        self._requests += 1
        number, waiting = self._requests, _Waiting()
        self._waiting[number] = waiting
        try:
            with anyio.fail_after(timeout_seconds):
                if self.gone or not await self._send({"id": number, "method": method, "params": params}):
                    raise AgentGone(f"the agent ended before it answered {method}")
                await waiting.settled.wait()
        finally:
            del self._waiting[number]
        if waiting.response is None:
            raise AgentGone(f"the agent ended before it answered {method}")
        if waiting.response.error is not None:
            raise RequestRejected(method, str(waiting.response.error.get("message", "no reason given")))
        return waiting.response.result

    async def notify(self, method: str) -> bool:
        """Send a notification; False when nobody reads any more."""
        return await self._send({"method": method})

    async def answer(self, number: RequestId, result: JsonObject) -> bool:
        """Answer a request of the app-server; False when nobody reads any more (R-191)."""
        return await self._send({"id": number, "result": result})

    async def refuse(self, number: RequestId, message: str) -> bool:
        """Answer a request that this host does not know; False when nobody reads any more."""
        return await self._send({"id": number, "error": {"code": METHOD_NOT_FOUND, "message": message}})

    def _settle(self, frame: Response) -> None:
        waiting = self._waiting.get(frame.id)
        if waiting is not None and not waiting.settled.is_set():
            waiting.response = frame
            waiting.settled.set()

    async def _send(self, message: JsonObject) -> bool:
        # ASCII alone: no reader can take a part of a text for the end of a line.
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        async with self._writing:
            if self._torn:
                return False
            # A write cut off by a cancellation leaves half a line, and whatever followed would become part of it.
            self._torn = True
            try:
                await self._child.send(line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return False
            self._torn = False
            return True
