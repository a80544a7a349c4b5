"""Reading registries for a run: GET and HEAD, as a stream, by the proxy's own paths or by the registry's address (D25)."""

import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from urllib.parse import urljoin

import anyio.to_thread

from hostside.worker.egress.addresses import Endpoint
from hostside.worker.egress.client_connection import ClientConnection, ClientRequest
from hostside.worker.egress.decisions import Case, Way
from hostside.worker.egress.index_documents import (
    CRATE_PATH,
    SIMPLE_TYPES,
    UnreadableDocument,
    crate_address,
    crates_config,
    simple_index,
)
from hostside.worker.egress.policy import EgressLimits, EgressPolicy
from hostside.worker.egress.presets import Address, Registries
from hostside.worker.egress.refusals import EgressRefused, Header
from hostside.worker.egress.registry_paths import Content, Wanted, file_path, project_of
from hostside.worker.egress.upstream import Upstream, UpstreamAnswer
from hostside.worker.model_headers import KeyMask, response_headers

# What a registry needs to know, and nothing that could carry more than that by accident.
_PASSED_ON = frozenset({b"accept", b"user-agent", b"range", b"if-range", b"cache-control"})
_CONDITIONS = frozenset({b"if-none-match", b"if-modified-since"})
_KEPT_BACK = frozenset({b"www-authenticate", b"location", b"refresh", b"set-cookie2", b"proxy-authenticate"})
_INDEX_ACCEPT = b"application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_DOCUMENTS_AT_ONCE = 8


class Hops:
    """The cases of one request: its own, then one for each redirect. `case` is the one under way."""

    def __init__(self, case: Case, following: Callable[[Case], Case]) -> None:
        self.case = case
        self._following = following

    def redirected(self, status: int) -> None:
        self.case.reason, self.case.status = "redirected", status
        self.case = self._following(self.case)
        self.case.way = Way.REDIRECT


class RegistryProxy:
    """Serves the registries of one policy. `address` is where its clients find it, `tokens` go to a registry's own hosts."""

    def __init__(
        self,
        *,
        policy: EgressPolicy,
        registries: Registries,
        upstream: Upstream,
        limits: EgressLimits,
        tokens: Mapping[str, str],
        address: tuple[str, int],
    ) -> None:
        self._policy = policy
        self._registries = registries
        self._upstream = upstream
        self._limits = limits
        self._tokens = tokens
        self._base = f"http://{address[0]}:{address[1]}"
        self._documents = anyio.Semaphore(_DOCUMENTS_AT_ONCE)
        self._asked: set[str] = set()
        self._template: str | None = None

    async def serve(self, connection: ClientConnection, request: ClientRequest, wanted: Wanted, hops: Hops) -> None:
        """Answer a GET or HEAD. Raises EgressRefused, ClientGone."""
        hops.case.preset = wanted.preset
        address = await self._address(wanted, hops)
        is_document = wanted.content in (Content.INDEX, Content.CRATES_CONFIG)
        token = self._tokens.get(wanted.preset)
        headers = list(_request_headers(request, is_document or token is not None, is_document))
        async with self._follow(request.method, address, headers, wanted.preset, hops) as answer:
            if is_document and request.method == "GET" and answer.status == 200:
                await self._document(connection, wanted, answer)
            else:
                await self._pass_on(connection, answer, token, keep_length=not is_document)

    async def _pass_on(
        self, connection: ClientConnection, answer: UpstreamAnswer, token: str | None, *, keep_length: bool
    ) -> None:
        answer.check_length()
        headers = _answer_headers(answer, token, {b"content-length"} if not keep_length else set())
        await connection.start(answer.status, headers)
        mask = KeyMask(token)
        async for chunk in answer.chunks():
            await connection.body(mask.feed(chunk))
        await connection.body(mask.end())
        await connection.end()

    async def _document(self, connection: ClientConnection, wanted: Wanted, answer: UpstreamAnswer) -> None:
        media_type = (answer.value(b"content-type") or "").partition(";")[0].strip().lower()
        if wanted.content is Content.INDEX and media_type not in SIMPLE_TYPES:
            await self._pass_on(connection, answer, self._tokens.get(wanted.preset), keep_length=True)
            return
        async with self._documents:
            body = await self._read(answer)
            changed = await self._changed(body, media_type, wanted, answer.address)
        mask = KeyMask(self._tokens.get(wanted.preset))
        changed = mask.feed(changed) + mask.end()
        headers = _answer_headers(answer, None, {b"content-length"})
        await connection.start(answer.status, [*headers, (b"content-length", str(len(changed)).encode())])
        await connection.body(changed)
        await connection.end()

    async def _read(self, answer: UpstreamAnswer) -> bytes:
        if (answer.value(b"content-encoding") or "identity").strip().lower() != "identity":
            raise _unreadable(answer.address)
        return await answer.whole(self._limits.index_bytes)

    async def _changed(self, body: bytes, media_type: str, wanted: Wanted, source: Address) -> bytes:
        try:
            if wanted.content is Content.CRATES_CONFIG:
                download = f"{self._base}/registry/crates/-/dl/{CRATE_PATH}"
                changed, self._template = crates_config(body, download)
                self._learn("crates", {crate_address(self._template, "crate", "1.0.0", "0" * 64).endpoint})
                return changed if wanted.by_path else body
            project = project_of(source)
            point = (lambda file: self._base + file_path(project, file)) if wanted.by_path else None
            changed, hosts = await anyio.to_thread.run_sync(simple_index, body, media_type, source, point)
        except UnreadableDocument:
            raise _unreadable(source) from None
        self._learn("pypi", hosts)
        return changed

    def _learn(self, preset: str, hosts: set[Endpoint]) -> None:
        self._registries.learn(preset, hosts)

    async def _address(self, wanted: Wanted, hops: Hops) -> Address:
        """Where the wanted thing is: written in the request, or said by a document that is read for it."""
        if wanted.content is Content.CRATE:
            if self._template is None:
                root = self._registries.upstream("crates").root
                config = Address(scheme=root.scheme, endpoint=root.endpoint, path=root.path + "config.json")
                await self._consult(Wanted(preset="crates", content=Content.CRATES_CONFIG, by_path=True, address=config))
            assert self._template is not None
            address = crate_address(self._template, *wanted.crate)
        else:
            assert wanted.address is not None
            address = wanted.address
        hops.case.endpoint = address.endpoint
        if wanted.content is Content.FILE and not self._is_of(address, "pypi"):
            if wanted.project not in self._asked:
                root = self._registries.upstream("pypi").root
                page = Address(scheme=root.scheme, endpoint=root.endpoint, path=f"{root.path}{wanted.project}/")
                await self._consult(Wanted(preset="pypi", content=Content.INDEX, by_path=False, address=page))
                self._asked.add(wanted.project)
            if not self._is_of(address, "pypi"):
                raise self._elsewhere("pypi", address, "is no host of the registry's files")
        return address

    async def _consult(self, wanted: Wanted) -> None:
        """Read a document for what it says about files; whatever goes wrong with it is the request's refusal."""
        assert wanted.address is not None
        accept = [(b"accept", _INDEX_ACCEPT), (b"accept-encoding", b"identity")]
        hops = Hops(Case(began=0.0, at=_NEVER), lambda case: case)
        async with self._documents, self._follow("GET", wanted.address, accept, wanted.preset, hops) as answer:
            if answer.status != 200:
                raise EgressRefused(502, "upstream_failed", f"hostside: {wanted.preset} did not say where its files are")
            media_type = (answer.value(b"content-type") or "").partition(";")[0].strip().lower()
            await self._changed(await self._read(answer), media_type, wanted, answer.address)

    @contextlib.asynccontextmanager
    async def _follow(
        self, method: str, address: Address, headers: list[Header], preset: str, hops: Hops
    ) -> AsyncIterator[UpstreamAnswer]:
        """Ask, and follow redirects to hosts of the registry or of the policy, each checked like the first."""
        for _ in range(self._limits.redirects + 1):
            hops.case.endpoint, hops.case.allowed, hops.case.reason = address.endpoint, True, "registry"
            own = [*headers, *self._credential(preset, address)]
            async with self._upstream.get(method, address, own, hops.case) as answer:
                if answer.redirect is None:
                    hops.case.status = answer.status
                    yield answer
                    return
                following = _absolute(answer)
                status = answer.status
            hops.redirected(status)
            hops.case.endpoint, hops.case.path = following.endpoint, following.target
            if following.scheme == "http" and address.scheme == "https":
                raise self._elsewhere(preset, following, "would be read without TLS")
            if not self._is_of(following, preset) and not self._policy.allows(following.endpoint):
                raise self._elsewhere(preset, following, f"is where {preset} redirects to, and")
            address = following
        raise EgressRefused(502, "too_many_redirects", f"hostside: {address.endpoint} redirects again and again")

    def _is_of(self, address: Address, preset: str) -> bool:
        upstream = self._registries.upstream(preset)
        return upstream.is_own(address) or self._registries.has_files_on(preset, address.endpoint)

    def _elsewhere(self, preset: str, address: Address, why: str) -> EgressRefused:
        endpoint = address.endpoint
        if why.endswith("and"):
            why = f"{why} is not in {self._policy.name}"
        return EgressRefused(403, "redirect_refused", f"hostside: {endpoint} {why}. {self._policy.line(str(endpoint))}")

    def _credential(self, preset: str, address: Address) -> Iterator[Header]:
        token = self._tokens.get(preset)
        if token is None or not self._registries.upstream(preset).is_own(address):
            return
        if ":" in token:
            yield b"authorization", b"Basic " + base64.b64encode(token.encode())
        else:
            yield b"authorization", token.encode() if preset == "crates" else b"Bearer " + token.encode()


def _request_headers(request: ClientRequest, identity: bool, is_document: bool) -> Iterator[Header]:
    for name, value in request.headers:
        # A document that is read for its addresses must come whole: "not changed" would not name them.
        if name in _PASSED_ON or (name in _CONDITIONS and not is_document):
            if not (is_document and name in (b"range", b"if-range")):
                yield name, value
    encodings = b", ".join(request.values(b"accept-encoding"))
    yield b"accept-encoding", b"identity" if identity or not encodings else encodings


def _answer_headers(answer: UpstreamAnswer, token: str | None, without: set[bytes]) -> list[Header]:
    kept = response_headers(answer.headers, token)
    return [(name, value) for name, value in kept if name not in _KEPT_BACK and name not in without]


def _absolute(answer: UpstreamAnswer) -> Address:
    try:
        return Address.parse(urljoin(str(answer.address), answer.redirect or "").partition("#")[0])
    except ValueError:
        text = f"hostside: {answer.address.endpoint} redirects to what is no address"
        raise EgressRefused(502, "upstream_failed", text) from None


def _unreadable(address: Address) -> EgressRefused:
    return EgressRefused(502, "upstream_unreadable", f"hostside: {address.endpoint} gave no document of a registry")
