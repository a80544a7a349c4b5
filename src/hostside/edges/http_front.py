"""The front door of an HTTP edge: every check that comes before a protocol library sees a request (R-174..R-178, C-14).

Pure decisions on an ASGI scope, a bounded read of the body, and the form in which answers leave. No check looks at the
query, so that a token there counts for nothing and shows up nowhere.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import anyio
from starlette.types import Message, Receive, Scope, Send

from hostside.core.canonical import compact, escape_hidden

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_TOKEN_CHARACTERS = 512
BODY_SECONDS = 30.0

Headers = tuple[tuple[bytes, bytes], ...]
_BEARER = re.compile(rb"bearer +([A-Za-z0-9._~+/=-]{1,%d})" % MAX_TOKEN_CHARACTERS, re.IGNORECASE)
_JSON = re.compile(rb'application/json(?: *; *charset="?utf-8"?)?', re.IGNORECASE)


class Refused(Exception):
    """The request ends here, with this status and body. Nothing behind the front door has seen it."""

    def __init__(
        self, status: int, message: str, *, headers: Iterable[tuple[bytes, bytes]] = (), body: bytes | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers: Headers = tuple(headers)
        self.body = compact({"error": message}).encode() if body is None else body


class Disconnected(Exception):
    """The client went away before its request was complete: there is nobody to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDoor:
    """What one endpoint accepts. `allowed_hosts` are exact `host:port` values of the Host header, in lower case."""

    path: str
    methods: frozenset[str]
    allowed_hosts: Collection[str]
    allowed_origins: Collection[str]
    max_body_bytes: int

    def admit(self, scope: Scope) -> str:
        """Return the bearer token of a request to this endpoint, or raise Refused.

        In this order: path (404), method (405), Host (421), Origin (403), Authorization (401). The token is not yet
        known to be good.
        """
        if scope["path"] != self.path:
            raise Refused(404, "not found")
        if scope["method"] not in self.methods:
            raise Refused(405, "method not allowed", headers=[(b"allow", ", ".join(sorted(self.methods)).encode())])
        hosts, origins = values(scope, b"host"), values(scope, b"origin")
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self.allowed_hosts:
            raise Refused(421, "this host name is not served here")
        if origins and (len(origins) > 1 or origins[0].decode("latin-1") not in self.allowed_origins):
            raise Refused(403, "this origin is not allowed")
        return bearer_token(scope)

    def check_body_headers(self, scope: Scope) -> None:
        """Raise Refused for a body that is not JSON (415) or says that it is too long (413)."""
        kinds = values(scope, b"content-type")
        if len(kinds) != 1 or _JSON.fullmatch(kinds[0]) is None or values(scope, b"content-encoding"):
            raise Refused(415, "the body must be application/json")
        for length in values(scope, b"content-length"):
            if not length.isdigit() or int(length[:20]) > self.max_body_bytes:
                raise self._too_long()

    async def read_body(self, receive: Receive) -> bytes:
        """Return the whole body. Raises Refused (413, 408) and Disconnected; never holds more than the limit and a chunk."""
        body = bytearray()
        with anyio.move_on_after(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                body += message.get("body", b"")
                if len(body) > self.max_body_bytes:
                    raise self._too_long()
                if not message.get("more_body", False):
                    return bytes(body)
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:g} seconds")

    def _too_long(self) -> Refused:
        return Refused(413, f"the body is over {self.max_body_bytes} bytes")


def unauthorized() -> Refused:
    """Return the refusal of a token that is missing, malformed, unknown or no longer good. They all look the same.

    It names no authorization server: a client that went looking for one would find nothing (facts on MCP, §1).
    """
    return Refused(401, "a valid bearer token is required", headers=[(b"www-authenticate", b"Bearer")])


def bearer_token(scope: Scope) -> str:
    """Return the token of the one Authorization header. Raises Refused(401)."""
    found = values(scope, b"authorization")
    match = _BEARER.fullmatch(found[0]) if len(found) == 1 else None
    if match is None:
        raise unauthorized()
    return match.group(1).decode("ascii")


def values(scope: Scope, name: bytes) -> list[bytes]:
    """Return every value that the request has for one header; `name` is in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def one_value(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header that may come once, or None. Raises Refused(400) where it comes twice."""
    found = values(scope, name)
    if len(found) > 1:
        raise Refused(400, f"the header {name.decode()} comes twice")
    return found[0].decode("latin-1") if found else None


def without_blanks(scope: Scope) -> Scope:
    """Return the scope with blanks around header values removed: not every HTTP parser does it, and HTTP says to."""
    return {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}


def body_first(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that hands over `body` as one message, and then whatever the client does next."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class Answer:
    """The way out. Escapes hidden characters (D22), and can always bring the response to a clean end.

    JSON of one piece waits for its last byte, so that its length can be corrected; a stream passes event by event.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.streaming = False
        self._ended = False

    async def send(self, message: Message) -> None:
        """Take one ASGI message of the response."""
        if self._ended:
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._continue(message)

    async def refuse(self, refused: Refused) -> None:
        """Answer with a refusal where nothing was sent yet; otherwise just end."""
        if self.streaming or self._ended:
            await self.end()
            return
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *refused.headers]
        self._start, self._body = None, b""
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": refused.body})

    async def end(self) -> None:
        """End a stream that was begun. Does nothing after the end."""
        if self.streaming and not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, message: Message) -> None:
        self.status = message["status"]
        self.headers = {name.lower(): value for name, value in message.get("headers", ())}
        self.streaming = self.headers.get(b"content-type", b"").startswith(b"text/event-stream")
        if self.streaming:
            await self._send(message)
        else:
            self._start = message

    async def _continue(self, message: Message) -> None:
        more = message.get("more_body", False)
        if self.streaming:
            self._ended = not more
            await self._send({**message, "body": _escaped(message.get("body", b""))})
            return
        self._body += message.get("body", b"")
        if more or self._start is None:
            return
        body, start = _escaped(self._body), self._start
        kept = [(name, value) for name, value in start.get("headers", ()) if name.lower() != b"content-length"]
        self._ended = True
        await self._send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _escaped(body: bytes) -> bytes:
    # Everything that leaves is JSON, alone or in the data of an event, where an escape means the same (D22).
    return body if body.isascii() and b"\x7f" not in body else escape_hidden(body.decode()).encode()
