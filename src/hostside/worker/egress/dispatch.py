"""What a client asks of the proxy, and which part of it answers. Every request ends in a decision."""

import ssl
from dataclasses import dataclass

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream

from hostside.worker.egress.addresses import Endpoint, parse_endpoint
from hostside.worker.egress.client_connection import ClientConnection, ClientGone, ClientRequest
from hostside.worker.egress.decisions import Case, Hops, Recorder, Way
from hostside.worker.egress.policy import EgressLimits, EgressPolicy
from hostside.worker.egress.presets import Address, Registries
from hostside.worker.egress.refusals import EgressRefused
from hostside.worker.egress.registry_paths import BadPath, Wanted, by_address, by_path, named_preset
from hostside.worker.egress.registry_proxy import RegistryProxy
from hostside.worker.egress.resolver import Dialer
from hostside.worker.egress.run_authority import RunAuthority
from hostside.worker.egress.streams import Ahead
from hostside.worker.egress.tunnel import Tunnel
from hostside.worker.egress.upstream import Upstream
from hostside.worker.model_headers import HOP_BY_HOP, response_headers

READING = frozenset({"GET", "HEAD"})
#: The presets whose clients print the `error` of a JSON body.
_JSON_READERS = frozenset({"npm"})
#: What only came to light after the policy had allowed the name, and undoes that.
_FORBIDDEN_AFTER_ALL = frozenset({"private_address", "redirect_refused"})


@dataclass(frozen=True, slots=True)
class Door:
    """A registry's endpoint whose TLS the proxy has ended: requests on it are for that endpoint alone."""

    endpoint: Endpoint


class RequestHandler:
    """Serves requests of one policy, one connection at a time in each task."""

    def __init__(
        self,
        *,
        policy: EgressPolicy,
        registries: Registries,
        registry_proxy: RegistryProxy,
        upstream: Upstream,
        dialer: Dialer,
        recorder: Recorder,
        limits: EgressLimits,
        authority: RunAuthority | None,
        address: tuple[str, int],
    ) -> None:
        self._policy = policy
        self._registries = registries
        self._registry_proxy = registry_proxy
        self._upstream = upstream
        self._dialer = dialer
        self._recorder = recorder
        self._limits = limits
        self._authority = authority
        self._own = {Endpoint(address[0], address[1]), Endpoint("localhost", address[1])}

    async def serve_one(self, connection: ClientConnection, *, first: bool, door: Door | None = None) -> bool:
        """Serve the next request of a connection. Return whether another one may follow. Raises ClientGone."""
        hops = Hops(self._recorder, self._recorder.open())
        asked = True
        try:
            request = await connection.next_request(first=first)
            if request is None:
                asked = False
                return False
            _describe(hops.case, request)
            with anyio.fail_after(None if request.method == "CONNECT" else self._limits.total_seconds):
                return await self._serve(connection, request, hops, door)
        except TimeoutError:
            hops.case.reason = "too_long"
            raise ClientGone from None
        except ClientGone:
            _cut_short(hops.case, "client_gone")
            raise
        except anyio.get_cancelled_exc_class():
            _cut_short(hops.case, "run_ended")
            raise
        except EgressRefused as refused:
            await self._refuse(connection, hops.case, refused)
            return False
        finally:
            if asked:
                hops.case.status = hops.case.status or connection.status
                self._recorder.closed(hops.case)

    async def _refuse(self, connection: ClientConnection, case: Case, refused: EgressRefused) -> None:
        case.reason = refused.code
        case.address = refused.address or case.address
        case.allowed = case.allowed and refused.code not in _FORBIDDEN_AFTER_ALL
        await connection.refuse(refused, self._policy.name, as_json=case.preset in _JSON_READERS)

    async def _serve(self, connection: ClientConnection, request: ClientRequest, hops: Hops, door: Door | None) -> bool:
        if request.method == "CONNECT":
            await self._connect(connection, request, hops.case, door)
            return False
        # One with a body is refused by whoever answers it; what it sends is not read.
        if not request.has_body:
            await connection.end_of_request()
        if door is not None:
            await self._through(connection, request, hops, door)
        elif request.target.startswith("/"):
            await self._own_path(connection, request, hops)
        else:
            await self._absolute(connection, request, hops)
        return await connection.finish_request()

    async def _own_path(self, connection: ClientConnection, request: ClientRequest, hops: Hops) -> None:
        case = hops.case
        case.way, case.preset = Way.REGISTRY, named_preset(request.target)
        if case.preset is None:
            raise EgressRefused(404, "not_served", "hostside: this is the network proxy of a run; it has no pages")
        if case.preset not in self._policy.presets:
            raise EgressRefused(403, "preset_not_listed", self._policy.not_listed(case.preset))
        _only_reading(request, f"the registry {case.preset}")
        try:
            wanted = by_path(request.target, self._registries)
        except BadPath as error:
            raise EgressRefused(404, "not_served", f"hostside: {error}") from None
        await self._registry(connection, request, wanted, hops)

    async def _through(self, connection: ClientConnection, request: ClientRequest, hops: Hops, door: Door) -> None:
        endpoint = door.endpoint
        hops.case.way, hops.case.endpoint = Way.REGISTRY, endpoint
        try:
            hosts = {parse_endpoint(host.decode("latin-1"), default_port=443) for host in request.values(b"host")}
            address = Address.parse(f"https://{endpoint.authority('https')}{request.target}")
        except ValueError as error:
            raise EgressRefused(400, "malformed", f"hostside: {error}") from None
        if hosts != {endpoint} or not request.target.startswith("/"):
            raise EgressRefused(421, "malformed", f"hostside: this connection is for {endpoint} alone")
        await self._by_address(connection, request, address, hops)

    async def _absolute(self, connection: ClientConnection, request: ClientRequest, hops: Hops) -> None:
        case = hops.case
        case.way = Way.HTTP
        try:
            address = Address.parse(request.target)
        except ValueError as error:
            raise EgressRefused(400, "malformed", f"hostside: {error}") from None
        case.endpoint, case.path = address.endpoint, address.target
        if address.scheme != "http":
            raise EgressRefused(400, "malformed", "hostside: an https address is asked for by CONNECT")
        if address.endpoint in self._own:
            own = ClientRequest(method=request.method, target=address.target, headers=request.headers)
            await self._own_path(connection, own, hops)
        elif self._policy.allows(address.endpoint):
            _only_reading(request, f"{address.endpoint} in plain HTTP")
            await self._plain(connection, request, address, case)
        else:
            await self._by_address(connection, request, address, hops)

    async def _by_address(
        self, connection: ClientConnection, request: ClientRequest, address: Address, hops: Hops
    ) -> None:
        case = hops.case
        preset = self._registries.owner(address, self._policy.presets)
        if preset is None:
            raise EgressRefused(403, "not_listed", self._not_listed(address.endpoint))
        case.way, case.preset = Way.REGISTRY, preset
        _only_reading(request, f"the registry {preset}")
        try:
            wanted = by_address(preset, address, self._registries)
        except BadPath as error:
            raise EgressRefused(404, "not_served", f"hostside: {error}") from None
        await self._registry(connection, request, wanted, hops)

    async def _registry(self, connection: ClientConnection, request: ClientRequest, wanted: Wanted, hops: Hops) -> None:
        async def work() -> None:
            await self._registry_proxy.serve(connection, request, wanted, hops)

        await connection.while_connected(work)

    async def _plain(self, connection: ClientConnection, request: ClientRequest, address: Address, case: Case) -> None:
        case.allowed, case.reason = True, "listed"
        named = {word.strip().lower() for value in request.values(b"connection") for word in value.split(b",")}
        headers = [pair for pair in request.headers if pair[0] not in HOP_BY_HOP and pair[0] not in named]

        async def work() -> None:
            async with self._upstream.get(request.method, address, headers, case) as answer:
                answer.check_length()
                await connection.start(answer.status, list(response_headers(answer.headers, None)))
                async for chunk in answer.chunks():
                    await connection.body(chunk)
                await connection.end()

        await connection.while_connected(work)

    async def _connect(
        self, connection: ClientConnection, request: ClientRequest, case: Case, door: Door | None
    ) -> None:
        case.way = Way.CONNECT
        try:
            endpoint = parse_endpoint(request.target)
        except ValueError as error:
            raise EgressRefused(400, "malformed", f"hostside: {error}") from None
        case.endpoint, case.path = endpoint, ""
        if request.has_body or door is not None:
            raise EgressRefused(400, "malformed", "hostside: CONNECT has no body and stands alone")
        if self._policy.allows(endpoint):
            await self._tunnel(connection, endpoint, case)
        elif self._authority is not None and endpoint in self._registries.endpoints(self._policy.presets):
            await self._end_tls(connection, endpoint, self._authority, case)
        else:
            raise EgressRefused(403, "not_listed", self._not_listed(endpoint))

    async def _tunnel(self, connection: ClientConnection, endpoint: Endpoint, case: Case) -> None:
        case.allowed, case.reason = True, "listed"
        dialed = await self._dialer.dial(endpoint)
        case.address = dialed.address
        async with dialed.stream:
            self._recorder.opened(case)
            client, ahead = await connection.switch()
            await Tunnel(client, ahead, dialed.stream, case, self._limits).run()

    async def _end_tls(
        self, connection: ClientConnection, endpoint: Endpoint, authority: RunAuthority, case: Case
    ) -> None:
        """Be the registry's server for the run, for reading: what is asked inside is decided request by request."""
        case.allowed, case.reason = True, "registry"
        client, ahead = await connection.switch()
        try:
            with anyio.fail_after(self._limits.head_seconds):
                secure = await TLSStream.wrap(
                    Ahead(client, ahead),
                    server_side=True,
                    ssl_context=authority.context(endpoint.host),
                    standard_compatible=False,
                )
        except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError):
            # Most often a client that does not know the run's authority.
            case.reason = "tls_failed"
            raise ClientGone from None
        inner, first, door = ClientConnection(secure, self._limits), True, Door(endpoint)
        while await self.serve_one(inner, first=first, door=door):
            first = False

    def _not_listed(self, endpoint: Endpoint) -> str:
        preset = next((one for one in self._registries.upstreams if self._is_of(one, endpoint)), None)
        if preset is None or preset in self._policy.presets:
            return self._policy.not_listed(str(endpoint))
        text = f"hostside: {endpoint} is a host of the registry {preset}, which is not in {self._policy.name}."
        return f"{text} {self._policy.line(preset)}"

    def _is_of(self, preset: str, endpoint: Endpoint) -> bool:
        return endpoint in self._registries.endpoints([preset])


def _describe(case: Case, request: ClientRequest) -> None:
    case.method, case.path = request.method, request.target
    case.headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers)


def _cut_short(case: Case, reason: str) -> None:
    # Another reason is the one why it ended.
    if case.reason in ("listed", "registry"):
        case.reason = reason


def _only_reading(request: ClientRequest, what: str) -> None:
    if request.method not in READING:
        text = f"hostside: {request.method} is not passed on to {what}: a run only reads it (GET and HEAD)"
        raise EgressRefused(405, "method_refused", text)
    if request.has_body:
        raise EgressRefused(400, "body_refused", "hostside: a request's body is not passed on")
