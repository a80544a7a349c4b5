"""What passes between a run's agent and its model's provider beside the bodies, and the mask over the provider's key. Pure."""

from collections.abc import Iterable, Iterator

Header = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    b"host expect".split()
)
# The host's own word in all of these: who asks, for whose account, and in which encoding the answer comes.
_HOSTS_OWN = frozenset(
    b"authorization x-api-key api-key x-goog-api-key cookie accept-encoding openai-organization openai-project forwarded "
    b"x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip via x-http-method-override".split()
)
_NOT_FOR_THE_RUN = frozenset({b"set-cookie", b"alt-svc", b"strict-transport-security"})
_SHORTEST_KEY = 6


def request_headers(headers: Iterable[Header]) -> Iterator[Header]:
    """Yield what passes on of a request's headers; names in lower case."""
    return (pair for pair in _end_to_end(headers) if pair[0] not in _HOSTS_OWN)


def response_headers(headers: Iterable[Header], key: str | None) -> Iterator[Header]:
    """Yield what passes on of a response's headers, with `key` masked; names in lower case."""
    for name, value in _end_to_end(headers):
        if name not in _NOT_FOR_THE_RUN:
            mask = KeyMask(key)
            yield name, mask.feed(value) + mask.end()


class KeyMask:
    """Overwrites a key in a stream of bytes with as many stars, so that no length that was announced changes.

    Only bytes that may be the beginning of the key wait for what follows them. A key shorter than 6 is not looked for.
    """

    def __init__(self, key: str | None) -> None:
        self._key = b"" if key is None or len(key) < _SHORTEST_KEY else key.encode()
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what of the stream may go on now."""
        if not self._key:
            return chunk
        data = (self._held + chunk).replace(self._key, b"*" * len(self._key))
        longest = min(len(data), len(self._key) - 1)
        held = next((size for size in range(longest, 0, -1) if self._key.startswith(data[-size:])), 0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def end(self) -> bytes:
        """Return what waited."""
        held, self._held = self._held, b""
        return held


def _end_to_end(headers: Iterable[Header]) -> Iterator[Header]:
    pairs = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in pairs if name == b"connection" for word in value.split(b",")}
    return ((name, value) for name, value in pairs if name not in HOP_BY_HOP and name not in named)
