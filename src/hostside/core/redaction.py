"""Taking secrets out of everything that leaves the host (R-133, C-21).

Known secrets are removed in every form in which they travel; the rest is removed by shape, as a second net.
"""

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from hostside.core.canonical import JsonObject, JsonValue

MASK = "[redacted]"
_MINIMUM = 6
_SHAPES = re.compile(
    r"""
    (?P<keep>//)[^\s/@:"']{0,200}:[^\s/@"']{1,400}(?=@)                     # user:password@ in a URL
    | (?P<scheme>(?:authorization["']?\s*[:=]\s*["']?)?(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}
    | \bhst_[A-Za-z0-9_-]{20,}
    | \bgh[pousr]_[A-Za-z0-9]{20,}
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \blin_(?:api|oauth)_[A-Za-z0-9]{16,}
    | \bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{16,}
    | \bxox[abprs]-[A-Za-z0-9-]{10,}
    | \bAKIA[0-9A-Z]{16}\b
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


class Redactor:
    """Removes a fixed set of secret values, in their plain, base64 and URL-encoded forms, and anything secret-shaped."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= _MINIMUM for form in _forms(secret)}
        # Longest first, so that a form that contains another is masked whole.
        ordered = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, value: str) -> str:
        """Return `value` without secrets. Text without any is returned as it is."""
        if self._known is not None:
            value = self._known.sub(MASK, value)
        return _SHAPES.sub(_mask, value)

    def value(self, value: JsonValue) -> JsonValue:
        """Return a copy of a JSON value with every text in it redacted, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return self.object(value)
        return value

    def object(self, value: JsonObject) -> JsonObject:
        """Return a redacted copy of an object."""
        return {self.text(key): self.value(item) for key, item in value.items()}

    def known_text(self, value: str) -> str:
        """Return `value` without the known secrets only: for contents that must stay exact otherwise (D22)."""
        return value if self._known is None else self._known.sub(MASK, value)

    def known_value(self, value: JsonValue) -> JsonValue:
        """Return a copy of a JSON value without the known secrets; shapes are left alone."""
        if self._known is None:
            return value
        if isinstance(value, str):
            return self.known_text(value)
        if isinstance(value, list):
            return [self.known_value(item) for item in value]
        if isinstance(value, dict):
            return {self.known_text(key): self.known_value(item) for key, item in value.items()}
        return value


def _forms(secret: str) -> set[str]:
    raw = secret.encode()
    forms = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    # In Basic credentials the secret follows `user:`, so it can start at any of three offsets of the encoding.
    for lead in range(3):
        encoded = base64.b64encode(b"\0" * lead + raw).decode().rstrip("=")
        inner = encoded[(0, 2, 3)[lead] :]
        tail = (len(raw) + lead) % 3
        inner = inner[:-1] if tail else inner
        if len(inner) >= _MINIMUM:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms


def _mask(match: re.Match[str]) -> str:
    return (match.group("keep") or match.group("scheme") or "") + MASK
