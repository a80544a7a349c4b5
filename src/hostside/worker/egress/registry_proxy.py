"""Reading registries for a run: GET and HEAD, as a stream, by the proxy's own paths or by the registry's address (D25)."""

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import urljoin

import anyio
import anyio.to_thread

from hostside.worker.egress.client_connection import ClientConnection, ClientRequest
from hostside.worker.egress.decisions import Hops, Recorder, Way
from hostside.worker.egress.index_documents import (
    CRATE_PATH,
    SIMPLE_TYPES,
    UnreadableDocument,
    crate_address,
    crates_config,
    simple_index,
)
from hostside.worker.egress.policy import EgressLimits, EgressPolicy
from hostside.worker.egress.presets import PREFIX, Address, Registries
from hostside.worker.egress.refusals import EgressRefused, Header
from hostside.worker.egress.registry_paths import Content, Wanted, file_path, project_of
from hostside.worker.egress.upstream import Upstream, UpstreamAnswer
from hostside.worker.model_headers import KeyMask, response_headers

# What a registry needs to know, and nothing that could carry more than that by accident.
_PASSED_ON = frozenset({b"accept", b"user-agent", b"cache-control"})
_PARTS = frozenset({b"range", b"if-range", b"if-none-match", b"if-modified-since"})
_KEPT_BACK = frozenset({b"www-authenticate", b"location", b"refresh", b"set-cookie2", b"proxy-authenticate"})
_INDEX_ACCEPT = b"application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_DOCUMENTS_AT_ONCE = 8


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
        recorder: Recorder,
    ) -> None:
        self._policy = policy
        self._registries = registries
        self._upstream = upstream
        self._limits = limits
        self._tokens = tokens
        self._base = f"http://{address[0]}:{address[1]}"
        self._documents = anyio.Semaphore(_DOCUMENTS_AT_ONCE)
        self._recorder = recorder
        self._template: str | None = None

    async def serve(self, connection: ClientConnection, request: ClientRequest, wanted: Wanted, hops: Hops) -> None:
        """Answer a GET or HEAD. Raises EgressRefused, ClientGone."""
        hops.case.preset = wanted.preset
        address, named = await self._address(wanted, hops)
        is_document = wanted.content in (Content.INDEX, Content.CRATES_CONFIG)
        token = self._tokens.get(wanted.preset)
        headers = list(_request_headers(request, is_document or token is not None, is_document))
        async with self._follow(request.method, address, headers, wanted.preset, hops, named=named) as answer:
            if is_document and request.method == "GET" and answer.status == 200:
                await self._document(connection, wanted, answer)
            else:
                await self._pass_on(connection, answer, token, keep_length=not is_document)

    async def _pass_on(
        self, connection: ClientConnection, answer: UpstreamAnswer, token: str | None, *, keep_length: bool
    ) -> None:
        answer.check_length()
        headers = _answer_headers(answer, token, keep_length=keep_length)
        await connection.start(answer.status, headers)
        mask = KeyMask(token)
        async for chunk in answer.chunks():
            await connection.body(mask.feed(chunk))
        await connection.body(mask.end())
        await connection.end()

    async def _document(self, connection: ClientConnection, wanted: Wanted, answer: UpstreamAnswer) -> None:
        token = self._tokens.get(wanted.preset)
        if wanted.content is Content.INDEX and _media_type(answer) not in SIMPLE_TYPES:
            await self._pass_on(connection, answer, token, keep_length=True)
            return
        async with self._documents:
            changed, _ = await self._changed(wanted, answer)
        mask = KeyMask(token)
        changed = mask.feed(changed) + mask.end()
        headers = _answer_headers(answer, token, keep_length=False)
        await connection.start(answer.status, [*headers, (b"content-length", str(len(changed)).encode())])
        await connection.body(changed)
        await connection.end()

    async def _changed(self, wanted: Wanted, answer: UpstreamAnswer) -> tuple[bytes, set[Address]]:
        """Read a document and learn from it. Return it as the client gets it, and the files that it names."""
        if (answer.value(b"content-encoding") or "identity").strip().lower() != "identity":
            raise _unreadable(answer.address)
        body = await answer.whole(self._limits.index_bytes)
        try:
            if wanted.content is Content.CRATES_CONFIG:
                changed, self._template = crates_config(body, f"{self._base}{PREFIX}crates/-/dl/{CRATE_PATH}")
                files = {crate_address(self._template, "crate", "1.0.0", "0" * 64)}
            else:
                point = partial(self._pointed, project_of(answer.address)) if wanted.by_path else None
                arguments = (body, _media_type(answer), answer.address, point)
                changed, files = await anyio.to_thread.run_sync(simple_index, *arguments)
        except UnreadableDocument:
            raise _unreadable(answer.address) from None
        self._registries.learn(wanted.preset, (file.endpoint for file in files))
        return (changed if wanted.by_path else body), files

    def _pointed(self, project: str, file: Address) -> str:
        return self._base + file_path(project, self._registries.mark(file), file)

    async def _address(self, wanted: Wanted, hops: Hops) -> tuple[Address, bool]:
        """Return where the wanted thing is, and whether a document of the registry says so."""
        if wanted.content is Content.CRATE:
            if self._template is None:
                await self._consult(Content.CRATES_CONFIG, "crates", "config.json")
            assert self._template is not None
            return crate_address(self._template, *wanted.crate), True
        address = wanted.address
        assert address is not None
        hops.case.endpoint = address.endpoint
        if wanted.content is not Content.FILE:
            return address, False
        # Beside a file stands its metadata, which no index names.
        plain = replace(address, path=address.path.removesuffix(".metadata"))
        marks = {self._registries.mark(one) for one in (address, plain)}
        if wanted.mark not in marks:
            # The link comes from a cache that is older than this run.
            files = await self._consult(Content.INDEX, "pypi", f"{wanted.project}/")
            if {file.decoded for file in files}.isdisjoint({address.decoded, plain.decoded}):
                text = f"hostside: the registry pypi names no such file of {wanted.project}"
                raise EgressRefused(403, "file_not_named", text)
        return address, True

    async def _consult(self, content: Content, preset: str, below: str) -> set[Address]:
        """Read a document for what it says about files. Whatever goes wrong with it is the request's refusal."""
        root = self._registries.upstream(preset).root
        page = replace(root, path=root.path + below)
        accept = [(b"accept", _INDEX_ACCEPT), (b"accept-encoding", b"identity")]
        case = self._recorder.open()
        case.way, case.method, case.path, case.preset = Way.REGISTRY, "GET", page.target, preset
        hops = Hops(self._recorder, case)
        wanted = Wanted(preset=preset, content=content, by_path=True, address=page)
        try:
            async with self._documents, self._follow("GET", page, accept, preset, hops, named=False) as answer:
                if answer.status != 200:
                    text = f"hostside: the registry {preset} does not say where its files are"
                    raise EgressRefused(502, "upstream_failed", text)
                _, files = await self._changed(wanted, answer)
                return files
        except EgressRefused as refused:
            hops.case.reason = refused.code
            raise
        finally:
            self._recorder.closed(hops.case)

    @contextlib.asynccontextmanager
    async def _follow(
        self, method: str, address: Address, headers: list[Header], preset: str, hops: Hops, *, named: bool
    ) -> AsyncIterator[UpstreamAnswer]:
        """Ask, and follow redirects to hosts of the registry or of the policy, each checked like the first."""
        for _ in range(self._limits.redirects + 1):
            hops.case.endpoint, hops.case.allowed, hops.case.reason = address.endpoint, True, "registry"
            own = [*headers, *self._credential(preset, address, named)]
            async with self._upstream.get(method, address, own, hops.case) as answer:
                if answer.redirect is None:
                    hops.case.status = answer.status
                    yield answer
                    return
                following = _absolute(answer)
                hops.redirected(answer.status, following.endpoint, following.target)
            self._check_redirect(preset, address, following)
            address, named = following, False
        raise EgressRefused(502, "too_many_redirects", f"hostside: {address.endpoint} redirects again and again")

    def _check_redirect(self, preset: str, address: Address, following: Address) -> None:
        to = following.endpoint
        if following.scheme == "http" and address.scheme == "https":
            text = f"hostside: {address.endpoint} redirects to {to} without TLS, which is not followed"
            raise EgressRefused(403, "redirect_refused", text)
        upstream = self._registries.upstream(preset)
        known = upstream.is_own(following) or self._registries.has_files_on(preset, to)
        if not known and not self._policy.allows(to):
            text = f"hostside: {preset} redirects to {to}, which is not in {self._policy.name}."
            raise EgressRefused(403, "redirect_refused", f"{text} {self._policy.line(str(to))}")

    def _credential(self, preset: str, address: Address, named: bool) -> Iterator[Header]:
        """The token goes to the registry's own hosts alone, and there to what belongs to the registry."""
        token, upstream = self._tokens.get(preset), self._registries.upstream(preset)
        if token is None or not upstream.is_own(address) or not (named or upstream.is_below_root(address)):
            return
        if ":" in token:
            yield b"authorization", b"Basic " + base64.b64encode(token.encode())
        else:
            yield b"authorization", token.encode() if preset == "crates" else b"Bearer " + token.encode()


def _request_headers(request: ClientRequest, identity: bool, is_document: bool) -> Iterator[Header]:
    # A document that is read for its addresses must come whole: "not changed" or a part would not name them.
    passed = _PASSED_ON if is_document else _PASSED_ON | _PARTS
    yield from ((name, value) for name, value in request.headers if name in passed)
    encodings = b", ".join(request.values(b"accept-encoding"))
    yield b"accept-encoding", b"identity" if identity or not encodings else encodings


def _answer_headers(answer: UpstreamAnswer, token: str | None, *, keep_length: bool) -> list[Header]:
    without = _KEPT_BACK if keep_length else _KEPT_BACK | {b"content-length"}
    return [(name, value) for name, value in response_headers(answer.headers, token) if name not in without]


def _media_type(answer: UpstreamAnswer) -> str:
    return (answer.value(b"content-type") or "").partition(";")[0].strip().lower()


def _absolute(answer: UpstreamAnswer) -> Address:
    try:
        return Address.parse(urljoin(str(answer.address), answer.redirect or "").partition("#")[0])
    except ValueError:
        text = f"hostside: {answer.address.endpoint} redirects to what is no address"
        raise EgressRefused(502, "upstream_failed", text) from None


def _unreadable(address: Address) -> EgressRefused:
    return EgressRefused(502, "upstream_unreadable", f"hostside: {address.endpoint} gave no document of a registry")
