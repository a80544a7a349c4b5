"""Lines of the Codex app-server, and what each one is. Pure.

Requests are read strictly, because a tool call must mean one thing only (D1); what Codex says of its own thread is read
leniently, because losing an end of turn to a strange byte would hang a run. Whatever a request's line looks like, its
id is recovered where there is one, so that the request is answered (R-190).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from hostside.core.canonical import JsonObject, JsonRejected, parse

MAX_LINE_BYTES = 16 * 1024 * 1024
_HEAD_BYTES = 65_536

RequestId = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Must be answered on `id`. `refused` says why its params were not accepted; they are None then."""

    id: RequestId
    method: str
    params: object = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Something happened. `params` is empty where they were no object."""

    method: str
    params: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer to a request of ours. `error` is None for success."""

    id: RequestId
    result: JsonObject
    error: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A line that is no frame and names nobody to answer."""

    reason: str


Frame = Request | Notification | Response | Unreadable


class LineSplitter:
    r"""Cuts a byte stream at `\n` alone, in memory bounded by the limit. A longer line costs only itself."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._cut = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that `chunk` completes. Blank lines are nothing."""
        *ends, rest = chunk.split(b"\n")
        for piece in ends:
            self._add(piece)
            yield from self.finish()
        self._add(rest)

    def finish(self) -> Iterator[Frame]:
        """Yield the frame of what is left, at the end of a line or of the stream."""
        line, cut = b"".join(self._parts), self._cut
        self._parts, self._size, self._cut = [], 0, False
        if cut:
            yield _salvaged(line, f"a line of more than {self._limit} bytes")
        elif line.strip():
            yield read_frame(line)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._parts.append(piece)
        elif not self._cut:
            # Its beginning is kept: it names the request that waits for an answer.
            self._parts, self._cut = [b"".join([*self._parts, piece])[:_HEAD_BYTES]], True


def read_frame(line: bytes) -> Frame:
    """Return what one line says. Never raises."""
    try:
        message = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return _salvaged(line, "not UTF-8")
    except RecursionError:
        return _salvaged(line, "nested too deeply")
    except ValueError:
        return _salvaged(line, "not JSON")
    if not isinstance(message, dict):
        return Unreadable(reason="not an object")
    method, number = message.get("method"), message.get("id")
    if isinstance(method, str):
        return _request(line, number, method) if _is_id(number) else _notification(method, message)
    if _is_id(number):
        return _response(number, message)
    return Unreadable(reason="neither a request nor an answer")


def _request(line: bytes, number: RequestId, method: str) -> Request:
    try:
        strict = parse(line)
    except JsonRejected as rejected:
        return Request(id=number, method=method, refused=rejected.reason)
    return Request(id=number, method=method, params=strict.get("params") if isinstance(strict, dict) else None)


def _notification(method: str, message: dict[str, Any]) -> Notification:
    params = message.get("params")
    return Notification(method=method, params=params if isinstance(params, dict) else {})


def _response(number: RequestId, message: dict[str, Any]) -> Response:
    error, result = message.get("error"), message.get("result")
    if error is not None:
        return Response(id=number, result={}, error=error if isinstance(error, dict) else {"message": str(error)})
    return Response(id=number, result=result if isinstance(result, dict) else {})


def _is_id(value: object) -> TypeGuard[RequestId]:
    return isinstance(value, int | str) and not isinstance(value, bool)


# A string ends at its quote or at the end of what is there; no alternative can match the same text twice.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


def _salvaged(line: bytes, reason: str) -> Frame:
    """What a broken line was meant to be, from its outermost `id` and `method`, without going into its values."""
    names = _outermost(line.decode("utf-8", "replace"))
    number, method = names.get("id"), names.get("method")
    if not _is_id(number):
        return Unreadable(reason=reason)
    if isinstance(method, str):
        return Request(id=number, method=method, refused=reason)
    return Response(id=number, result={}, error={"message": f"the answer could not be read: {reason}"})


def _outermost(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    depth, previous, key = 0, "", None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "[{":
            depth, key = depth + 1, None
        elif token in "]}":
            depth -= 1
        elif depth == 1 and token == ":":
            key = previous
        elif depth == 1:
            if key in ('"id"', '"method"') and token != ",":
                found.setdefault(key.strip('"'), _scalar(token))
            previous, key = token, None
    return found


def _scalar(token: str) -> object:
    try:
        return json.loads(token)
    except ValueError:
        return None
