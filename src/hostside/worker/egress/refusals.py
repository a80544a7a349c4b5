"""The one way in which the proxy says no: at once, by name, with the line that would allow it (D25)."""

import json

Header = tuple[bytes, bytes]
_REASON_BYTES = 300


class EgressRefused(Exception):
    """The request ends here. `status`: of the answer; `code`: a stable word; `message`: for whoever reads the client.

    `address`: for the record alone, what was refused or did not answer.
    """

    def __init__(self, status: int, code: str, message: str, *, address: str | None = None) -> None:
        super().__init__(message)
        self.address = address
        self.status = status
        self.code = code
        self.message = message


def answer(refused: EgressRefused, policy: str, *, as_json: bool) -> tuple[bytes, list[Header], bytes]:
    """Return reason phrase, headers and body of a refusal.

    The phrase says it too: most clients show nothing else of a proxy's answer. `as_json`: for clients that print the
    `error` of a JSON body and no other one.
    """
    text = _line(refused.message)
    body = json.dumps({"error": refused.message, "code": refused.code}) if as_json else refused.message + "\n"
    encoded = body.encode()
    headers = [
        (b"Content-Type", b"application/json" if as_json else b"text/plain; charset=utf-8"),
        (b"Content-Length", str(len(encoded)).encode()),
        (b"X-Hostside-Reason", text),
        (b"X-Hostside-Code", refused.code.encode()),
        (b"X-Hostside-Policy", policy.encode()),
        (b"Cache-Control", b"no-store"),
        (b"Connection", b"close"),
    ]
    return text, headers, encoded


def _line(message: str) -> bytes:
    # What the client sent may stand in the message: one line of printable ASCII, whatever it was.
    kept = "".join(letter if " " <= letter <= "~" else "?" for letter in message)
    return kept.encode("ascii")[:_REASON_BYTES]
