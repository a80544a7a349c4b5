"""Frames of the JSON-RPC edges: cut from bytes at 0x0A alone, parsed strictly, and checked before any library sees them.

A frame that two readers could understand differently never goes further (D1, C-05). The raw `arguments` of a tool call
are taken out here, because a protocol library may turn null into "absent" or answer a list before the boundary could
record it. One rule for `arguments`: missing means `{}`; everything else, null too, goes to the boundary as it came.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hostside.core.canonical import JsonObject, JsonRejected, JsonValue, compact, parse

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
MAX_FRAME_BYTES = 10 * 1024 * 1024
MAX_ID_CHARACTERS = 256
_MAX_ID_NUMBER = 2**63


class FrameRejected(Exception):
    """The bytes are no frame that this product accepts. `request_id` is None where it cannot be known for certain."""

    def __init__(self, code: int, message: str, request_id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id

    def as_object(self) -> JsonObject:
        """Return the JSON-RPC error response; its `id` is null where it is not known."""
        error: JsonObject = {"code": self.code, "message": self.message}
        return {"jsonrpc": "2.0", "id": self.request_id, "error": error}

    def as_bytes(self) -> bytes:
        """Return the JSON-RPC error response as compact JSON, without a line end."""
        return compact(self.as_object()).encode()


class FrameKind(StrEnum):
    """What a JSON-RPC message is."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message that passed every check of its shape.

    `message` is what a protocol library may see: in a tool call whose `arguments` are not an object they are replaced by
    `{}` there, and `altered` says so. `arguments` is what the caller sent (`{}` where it sent none).
    """

    kind: FrameKind
    message: JsonObject
    method: str | None
    request_id: str | int | None
    arguments: JsonValue
    altered: bool

    @property
    def params(self) -> JsonObject:
        """The parameters; empty where there are none."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}


def read_frame(data: bytes) -> Frame:
    """Return the one message in `data`. Raises FrameRejected for text that is not strict JSON or not one message."""
    try:
        value = parse(data)
    except JsonRejected as exc:
        raise FrameRejected(PARSE_ERROR, f"Parse error: {exc}") from None
    if not isinstance(value, dict):
        raise FrameRejected(
            INVALID_REQUEST, "Invalid request: a frame is one JSON-RPC object; batches are not accepted"
        )
    request_id = _request_id(value)
    if value.get("jsonrpc") != "2.0":
        raise FrameRejected(INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"', request_id)
    if "method" in value:
        return _call(value, request_id)
    return _response(value, request_id)


def wire_bytes(message: JsonObject) -> bytes:
    """Return a message as compact JSON, hidden characters escaped (D22), without a line end."""
    return compact(message).encode()


class FrameSplitter:
    """Cuts a byte stream into frames. Only 0x0A ends one; a 0x0D before it is dropped (C-17).

    Holds at most `limit` bytes of an unfinished frame: the rest of a longer one is read and forgotten.
    """

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._length = 0
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield each frame that `data` completes, without its line end; None stands for one that was too long."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._keep(piece)
            yield self._take()
        self._keep(rest)

    @property
    def unfinished(self) -> bool:
        """True while bytes wait for their line end."""
        return self._length > 0 or self._too_long

    def _keep(self, piece: bytes) -> None:
        # One byte more than the limit may be a 0x0D that does not count.
        if self._too_long or self._length + len(piece) > self._limit + 1:
            self._too_long = True
            self._parts.clear()
            self._length = 0
        elif piece:
            self._parts.append(piece)
            self._length += len(piece)

    def _take(self) -> bytes | None:
        too_long = self._too_long
        frame = b"".join(self._parts)
        self._parts, self._length, self._too_long = [], 0, False
        if frame.endswith(b"\r"):
            frame = frame[:-1]
        return None if too_long or len(frame) > self._limit else frame


def _request_id(message: JsonObject) -> str | int | None:
    if "id" not in message:
        return None
    value = message["id"]
    if isinstance(value, str) and len(value) <= MAX_ID_CHARACTERS:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_ID_NUMBER:
        return value
    if value is None and "method" not in message:
        return None  # an error response to a frame whose id was not known
    raise FrameRejected(
        INVALID_REQUEST,
        f'Invalid request: "id" must be an integer or text of at most {MAX_ID_CHARACTERS} characters',
    )


def _call(message: JsonObject, request_id: str | int | None) -> Frame:
    method, params = message["method"], message.get("params")
    if not isinstance(method, str) or "result" in message or "error" in message:
        raise FrameRejected(INVALID_REQUEST, 'Invalid request: "method" must be text, alone in its frame', request_id)
    if params is not None and not isinstance(params, dict):
        raise FrameRejected(INVALID_REQUEST, 'Invalid request: "params" must be an object', request_id)
    arguments: JsonValue = {}
    altered = False
    if method == "tools/call" and isinstance(params, dict) and "arguments" in params:
        arguments = params["arguments"]
        altered = not isinstance(arguments, dict)
    return Frame(
        kind=FrameKind.NOTIFICATION if request_id is None else FrameKind.REQUEST,
        message={**message, "params": {**(params or {}), "arguments": {}}} if altered else message,
        method=method,
        request_id=request_id,
        arguments=arguments,
        altered=altered,
    )


def _response(message: JsonObject, request_id: str | int | None) -> Frame:
    answered = isinstance(message.get("result"), dict) and "error" not in message and request_id is not None
    failed = isinstance(message.get("error"), dict) and "result" not in message and "id" in message
    if not answered and not failed:
        raise FrameRejected(
            INVALID_REQUEST, "Invalid request: neither a request, a notification nor a response", request_id
        )
    return Frame(
        kind=FrameKind.RESPONSE, message=message, method=None, request_id=request_id, arguments={}, altered=False
    )
