"""Registries' documents that name where their files are: read for those hosts, and pointed at the proxy. Pure.

Only addresses change. Names, versions, sizes, hashes and the fragments of links stay as the registry wrote them, so what
a client checks it checks against the registry's own word.
"""

import html
import json
import re
from collections.abc import Callable
from urllib.parse import urljoin

from hostside.worker.egress.presets import Address

SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
SIMPLE_TYPES = frozenset({"text/html", "application/vnd.pypi.simple.v1+html", SIMPLE_JSON})
_LINK = re.compile(r"""(<a\b[^>]{0,4000}?\bhref\s*=\s*)("[^"]*"|'[^']*')""", re.IGNORECASE)
#: How the proxy's own download address carries what the registry's is made of; the prefixes follow from the name.
CRATE_PATH = "{crate}/{version}/{sha256-checksum}"
_MARKER = re.compile(r"\{(?:crate|version|prefix|lowerprefix|sha256-checksum)\}")

Point = Callable[[Address], str]
"""Gives the address that stands in a document instead."""


class UnreadableDocument(Exception):
    """It is not what its type says."""


def simple_index(body: bytes, media_type: str, source: Address, point: Point | None) -> tuple[bytes, set[Address]]:
    """Return the document with its files' addresses pointed elsewhere, and those addresses, without their fragments.

    `source`: where it came from, for relative links. `point` None: the document stays as it is. Links that are no plain
    http or https address stay in any case. Raises UnreadableDocument.
    """
    files: set[Address] = set()

    def changed(link: str) -> str:
        address, fragment = _resolved(link, source)
        if address is None:
            return link
        files.add(address)
        return link if point is None else point(address) + fragment

    document = _json_index(body, changed) if media_type == SIMPLE_JSON else _html_index(body, changed)
    return (body if point is None else document), files


def _json_index(body: bytes, changed: Callable[[str], str]) -> bytes:
    document = _object(body)
    files = document.get("files", [])
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict) and isinstance(file.get("url"), str):
            file["url"] = changed(file["url"])
    return json.dumps(document, separators=(",", ":")).encode()


def _html_index(body: bytes, changed: Callable[[str], str]) -> bytes:
    def link(match: re.Match[str]) -> str:
        quoted = match.group(2)
        return f'{match.group(1)}"{html.escape(changed(html.unescape(quoted[1:-1])), quote=True)}"'

    return _LINK.sub(link, body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _resolved(link: str, source: Address) -> tuple[Address | None, str]:
    plain, mark, fragment = link.strip().partition("#")
    try:
        return Address.parse(urljoin(str(source), plain)), mark + fragment
    except ValueError:
        return None, ""


def crates_config(body: bytes, download: str) -> tuple[bytes, str]:
    """Return a sparse index's `config.json` with `download` as its address of files, and the registry's own one.

    What a run has no use for (publishing, a login) is left out. Raises UnreadableDocument.
    """
    template = _object(body).get("dl")
    if not isinstance(template, str):
        raise UnreadableDocument
    return json.dumps({"dl": download}).encode(), template


def crate_address(template: str, crate: str, version: str, checksum: str) -> Address:
    """Return where a crate's file is. Raises UnreadableDocument when the registry's template gives no address."""
    values = {
        "{crate}": crate,
        "{version}": version,
        "{prefix}": _prefix(crate),
        "{lowerprefix}": _prefix(crate.lower()),
        "{sha256-checksum}": checksum,
    }
    if _MARKER.search(template) is None:
        template = template.rstrip("/") + "/{crate}/{version}/download"
    try:
        return Address.parse(_MARKER.sub(lambda match: values[match.group()], template))
    except ValueError:
        raise UnreadableDocument from None


def _prefix(crate: str) -> str:
    if len(crate) <= 2:
        return str(len(crate))
    return f"3/{crate[0]}" if len(crate) == 3 else f"{crate[:2]}/{crate[2:4]}"


def _object(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise UnreadableDocument from None
    if not isinstance(document, dict):
        raise UnreadableDocument
    return document
