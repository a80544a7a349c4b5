"""One request of the agent to its model and the answer to it, byte by byte as they come."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import anyio
import httpx

from hostside.worker.model_headers import KeyMask, response_headers
from hostside.worker.model_provider import ModelProvider
from hostside.worker.model_usage import UsageReader

BODY_SECONDS = 60.0
_STOP_SECONDS = 5.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_Message = MutableMapping[str, Any]
_Channel = Callable[..., Awaitable[Any]]


class ModelRefused(Exception):
    """The request ends here with this status; `code` is a stable word. `again`: it may succeed a moment later."""

    def __init__(self, status: int, code: str, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.again = again


class ClientGone(Exception):
    """The agent hung up while it sent its request."""


class Revoked(Exception):
    """The token died while its answer was open."""


class Exchange:
    """The body and the watch for a hang-up read the same channel, one after the other."""

    def __init__(self, receive: _Channel, send: _Channel, *, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._body_over = anyio.Event()
        self._complete = False
        self._began = False
        self._status: int | None = None
        self.sent = 0
        """Bytes of the request's body that went upstream."""
        self.received = 0
        """Bytes of the answer's body that came back."""

    @property
    def may_cost(self) -> bool:
        """The provider got a whole request and did not say that it failed."""
        return self._complete and (self._status is None or 200 <= self._status < 300)

    def no_body(self) -> None:
        """The request has no body."""
        self._body_over.set()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the request's body. Raises ClientGone and ModelRefused (408, 413)."""
        more = True
        while more:
            message = await self._next()
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            chunk: bytes = message.get("body", b"")
            self.sent += len(chunk)
            if self.sent > self._limit:
                raise ModelRefused(413, "body_too_large", f"a request has at most {self._limit} bytes")
            if chunk:
                yield chunk
        self._complete = True
        self._body_over.set()

    async def watch(self, exchange: anyio.CancelScope) -> None:
        """Cancel the exchange when the agent hangs up."""
        await self._body_over.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        exchange.cancel()

    async def forward(
        self,
        transport: httpx.AsyncBaseTransport,
        request: httpx.Request,
        *,
        key: str | None,
        reader: Callable[[str], UsageReader],
        alive: Callable[[], Awaitable[bool]],
    ) -> None:
        """Send the request and pass its answer on, `key` masked in it. `reader`, made for a Content-Type, looks on.

        Raises Revoked as soon as `alive` says no, ModelRefused (502) for an answer that cannot be passed on, and what
        httpx raises.
        """
        response = await transport.handle_async_request(request)
        try:
            self._status = response.status_code
            _check(response)
            self._began = True
            self._body_over.set()
            headers = list(response_headers(response.headers.raw, key))
            await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            looking, mask = reader(response.headers.get("content-type", "")), KeyMask(key)
            assert isinstance(response.stream, httpx.AsyncByteStream)
            async for chunk in response.stream:
                self.received += len(chunk)
                looking.feed(chunk)
                if not await alive():
                    raise Revoked
                if piece := mask.feed(chunk):
                    await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            looking.end()
            await self._send({"type": "http.response.body", "body": mask.end(), "more_body": False})
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
                await response.aclose()

    async def refuse(self, refused: ModelRefused, provider: ModelProvider) -> None:
        """Answer with a refusal, unless an answer has begun."""
        if self._began:
            return
        self._began = True
        body = provider.refusal(refused.status, refused.code, refused.message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            # Both providers' clients would otherwise ask again, some of them for minutes.
            (b"x-should-retry", b"true" if refused.again else b"false"),
            # What is left of the request's body is nobody's.
            (b"connection", b"close"),
        ]
        await self._send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _next(self) -> _Message:
        with anyio.move_on_after(BODY_SECONDS):
            message: _Message = await self._receive()
            return message
        raise ModelRefused(408, "body_too_slow", f"the next bytes did not arrive within {BODY_SECONDS:g} seconds")


def _check(response: httpx.Response) -> None:
    if response.status_code in _REDIRECTS:
        raise ModelRefused(502, "upstream_redirect", "the provider answered with a redirect, which is not followed")
    encodings = {value.strip().lower() for value in response.headers.get_list("content-encoding", split_commas=True)}
    # In a compressed answer neither the usage nor an echoed key could be seen.
    if encodings - {"", "identity"}:
        raise ModelRefused(502, "upstream_encoding", "the provider answered in an encoding that was not asked for")
