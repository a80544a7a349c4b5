"""The two APIs that a run's agent speaks to its model, as far as the host has to know them: what is served, how a key is
sent, how a usage is told and a refusal said. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hostside.worker.model_usage import Reading, ReadUsage, Tokens

_BEARER = "Bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path that is served inside the run, and the path behind the upstream's base that it stands for.

    `asks`: the model produces something, and the answer tells what it cost.
    """

    method: str
    upstream: str
    asks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProvider:
    """One API. `base_path` ends the base URL that the agent is told; `routes` are all that it can reach, by exact path."""

    name: str
    default_upstream: str
    base_path: str
    routes: Mapping[str, Route]
    read_usage: ReadUsage
    refusal: Callable[[int, str, str], bytes]

    def credential(self, key: str, *, login: bool) -> tuple[bytes, bytes]:
        """Return the header that carries a key: `login` is a token of the agent's own login in place of an API key."""
        if self.name == "anthropic" and not login:
            return b"x-api-key", key.encode("ascii")
        return b"authorization", (_BEARER + key).encode("ascii")


def presented_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the one token that a request presents, as `x-api-key` or `Authorization: Bearer`; None for none, for two
    that differ, and for any other kind of authorization."""
    found = set()
    for name, value in headers:
        text = value.decode("latin-1").strip()
        if name == b"x-api-key":
            found.add(text)
        elif name == b"authorization":
            is_bearer = text[: len(_BEARER)].lower() == _BEARER.lower()
            found.add(text[len(_BEARER) :].strip() if is_bearer else "")
    token = found.pop() if len(found) == 1 else ""
    return token or None


def _anthropic_usage(event: Mapping[str, Any], known: Tokens) -> Reading | None:
    kind = event.get("type")
    part = _part(event, "message") if kind == "message_start" else event
    usage = part.get("usage")
    if kind not in ("message_start", "message_delta", "message") or not isinstance(usage, dict):
        return None
    # The last event repeats what it knows better, and leaves out what has not changed.
    cached = _count(usage, "cache_read_input_tokens", known.cached)
    cache_written = _count(usage, "cache_creation_input_tokens", known.cache_written)
    plain = _count(usage, "input_tokens", known.read - known.cached - known.cache_written)
    tokens = Tokens(
        read=plain + cached + cache_written,
        cached=cached,
        cache_written=cache_written,
        written=_count(usage, "output_tokens", known.written),
    )
    return Reading(tokens=tokens, final=kind != "message_start")


def _openai_usage(event: Mapping[str, Any], known: Tokens) -> Reading | None:
    kind = event.get("type")
    response = _part(event, "response") if isinstance(kind, str) and kind.startswith("response.") else event
    usage = response.get("usage")
    if isinstance(usage, dict):
        details = _part(usage, "input_tokens_details")
        tokens = Tokens(
            read=_count(usage, "input_tokens", 0),
            cached=_count(details, "cached_tokens", 0),
            cache_written=_count(details, "cache_write_tokens", 0),
            written=_count(usage, "output_tokens", 0),
        )
        return Reading(tokens=tokens, final=True)
    # Produced after this answer, and fetched on a path that is not served.
    if response.get("background") is True:
        return Reading(tokens=known, final=False, unknowable=True)
    return None


def _anthropic_refusal(status: int, code: str, message: str) -> bytes:
    kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
    kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": message, "code": code}}).encode()


def _openai_refusal(status: int, code: str, message: str) -> bytes:
    kinds = {401: "authentication_error", 429: "insufficient_quota"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}


def _count(usage: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


ANTHROPIC = ModelProvider(
    name="anthropic",
    default_upstream="https://api.anthropic.com",
    base_path="",
    routes={
        "/v1/messages": Route(method="POST", upstream="/v1/messages", asks=True),
        "/v1/messages/count_tokens": Route(method="POST", upstream="/v1/messages/count_tokens", asks=False),
        "/v1/models": Route(method="GET", upstream="/v1/models", asks=False),
    },
    read_usage=_anthropic_usage,
    refusal=_anthropic_refusal,
)
OPENAI = ModelProvider(
    name="openai",
    default_upstream="https://api.openai.com/v1",
    base_path="/v1",
    routes={
        "/v1/responses": Route(method="POST", upstream="/responses", asks=True),
        "/v1/models": Route(method="GET", upstream="/models", asks=False),
    },
    read_usage=_openai_usage,
    refusal=_openai_refusal,
)
