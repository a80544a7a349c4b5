"""The host's own requests to a registry or a listed host: one answer, its head first and then its bytes as they come."""

import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc
import httpcore
from anyio.streams.tls import TLSStream

from hostside.worker.egress.addresses import Endpoint
from hostside.worker.egress.decisions import Case
from hostside.worker.egress.policy import EgressLimits
from hostside.worker.egress.presets import Address
from hostside.worker.egress.refusals import EgressRefused, Header
from hostside.worker.egress.resolver import Dialer

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_STOP_SECONDS = 5.0
_KEPT_ALIVE = 16
_KEEP_SECONDS = 20.0


class UpstreamAnswer:
    """An answer whose body is still under way. Use it within `Upstream.get`."""

    def __init__(self, response: httpcore.Response, address: Address, case: Case, limits: EgressLimits) -> None:
        self._response = response
        self._case = case
        self._limits = limits
        self.address = address
        self.status = response.status
        self.headers: list[Header] = [(name.lower(), value) for name, value in response.headers]

    def value(self, name: bytes) -> str | None:
        """Return the value of a header that stands there once; None for none. Raises EgressRefused for several."""
        values = {value for key, value in self.headers if key == name}
        if len(values) > 1:
            raise EgressRefused(502, "upstream_failed", f"hostside: {self.address.endpoint} answered twice over")
        return values.pop().decode("latin-1") if values else None

    @property
    def redirect(self) -> str | None:
        """Where the answer sends the client instead."""
        return self.value(b"location") if self.status in REDIRECTS else None

    def check_length(self) -> None:
        """Raise EgressRefused when the answer says that it is larger than the policy's bound."""
        length = self.value(b"content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            raise EgressRefused(502, "upstream_failed", f"hostside: {self.address.endpoint} answered without a length")
        if length is not None and int(length) > self._limits.response_bytes:
            raise self._too_large(self._limits.response_bytes)

    async def chunks(self, limit: int | None = None) -> AsyncIterator[bytes]:
        """Yield the body. Raises EgressRefused when it is larger than `limit`, or breaks off."""
        bound = self._limits.response_bytes if limit is None else limit
        received = 0
        async with contextlib.aclosing(self._stream()) as stream:
            async for chunk in stream:
                received += len(chunk)
                self._case.received += len(chunk)
                if received > bound:
                    raise self._too_large(bound)
                yield chunk

    async def whole(self, limit: int) -> bytes:
        """Return the body."""
        parts = [chunk async for chunk in self.chunks(limit)]
        return b"".join(parts)

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise _failed(self.address.endpoint, error) from None

    def _too_large(self, bound: int) -> EgressRefused:
        text = f"hostside: the answer of {self.address.endpoint} is larger than {bound} bytes, the limit of one answer"
        return EgressRefused(403, "answer_too_large", text)


class Upstream:
    """A pool of connections that belongs to one proxy."""

    def __init__(self, dialer: Dialer, limits: EgressLimits, ssl_context: ssl.SSLContext | None) -> None:
        self._limits = limits
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context or ssl.create_default_context(),
            max_connections=limits.upstream_connections,
            max_keepalive_connections=_KEPT_ALIVE,
            keepalive_expiry=_KEEP_SECONDS,
            network_backend=_CheckedBackend(dialer),
        )

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
            await self._pool.__aexit__(kind, error, trace)

    @contextlib.asynccontextmanager
    async def get(
        self, method: str, address: Address, headers: Iterable[Header], case: Case
    ) -> AsyncIterator[UpstreamAnswer]:
        """Ask for `address`, which the caller has allowed. Raises EgressRefused."""
        sent = [(b"Host", address.endpoint.authority(address.scheme).encode()), *headers]
        response = await self._ask(method, address, sent, case)
        connection = response.extensions.get("network_stream")
        case.address = connection.address if isinstance(connection, _NetworkStream) else None
        try:
            yield UpstreamAnswer(response, address, case, self._limits)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
                await response.aclose()

    async def _ask(self, method: str, address: Address, headers: list[Header], case: Case) -> httpcore.Response:
        endpoint = address.endpoint
        url = httpcore.URL(
            scheme=address.scheme.encode(),
            host=endpoint.host.encode(),
            port=endpoint.port,
            target=address.target.encode("ascii"),
        )
        idle = self._limits.idle_seconds
        timeouts = {"connect": idle, "read": idle, "write": idle, "pool": idle}
        request = httpcore.Request(method, url, headers=headers, extensions={"timeout": timeouts})
        size = len(address.target) + sum(len(name) + len(value) + 4 for name, value in headers)
        try:
            try:
                response = await self._pool.handle_async_request(request)
            except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                # The server had closed a connection that was kept alive; a GET may be asked again.
                response = await self._pool.handle_async_request(request)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            case.sent += size
            raise _failed(endpoint, error) from None
        case.sent += size
        return response


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """The pool's way to the network: the dialer's, and no other."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        dialed = await self._dialer.dial(Endpoint(host, port))
        return _NetworkStream(dialed.stream, dialed.address)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class _NetworkStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: anyio.abc.ByteStream, address: str) -> None:
        self._stream = stream
        self.address = address

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore.ReadError from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore.WriteError from error

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                # Many servers close without a goodbye; a body's end is told by HTTP.
                secure = await TLSStream.wrap(
                    self._stream,
                    ssl_context=ssl_context,
                    hostname=server_hostname,
                    standard_compatible=False,
                    server_side=False,
                )
        except TimeoutError as error:
            await self.aclose()
            raise httpcore.ConnectTimeout from error
        except ssl.SSLCertVerificationError as error:
            await self.aclose()
            text = f"hostside: the certificate of {server_hostname} is not one that the host trusts"
            raise EgressRefused(502, "upstream_untrusted", text) from error
        except (anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError) as error:
            await self.aclose()
            raise httpcore.ConnectError from error
        return _NetworkStream(secure, self.address)

    def get_extra_info(self, info: str) -> Any:
        """Nothing: the pool then takes the connection for a good one until it says otherwise."""
        return None


def _failed(endpoint: Endpoint, error: Exception) -> EgressRefused:
    # The text of these errors may name an address: only their kind leaves the host.
    if isinstance(error, httpcore.TimeoutException):
        return EgressRefused(504, "upstream_slow", f"hostside: {endpoint} did not answer in time")
    if isinstance(error, httpcore.NetworkError):
        return EgressRefused(502, "upstream_unreachable", f"hostside: {endpoint} could not be reached")
    return EgressRefused(502, "upstream_failed", f"hostside: {endpoint} did not answer as HTTP asks for")
