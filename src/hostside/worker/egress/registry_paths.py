"""What a request to a registry asks for, by its path alone. Pure.

    /registry/npm/<path>      /registry/go/<path>       /registry/maven/<path>      /registry/debian/<archive>/<path>
    /registry/pypi/simple/<project>/
    /registry/pypi/-/files/<project>/<mark>/<scheme>/<host:port>/<path>
    /registry/crates/<path>                             /registry/crates/-/dl/<crate>/<version>/<checksum>

npm's client puts the path of a package's file directly behind the proxy's address, so `/<path>/-/<file>` is npm's too.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from hostside.worker.egress.addresses import parse_endpoint
from hostside.worker.egress.presets import PREFIX, PRESETS, Address, Registries

_PROJECT = re.compile(r"[A-Za-z0-9._-]{1,200}")
_CRATE = re.compile(r"[A-Za-z0-9_-]{1,100}")
_VERSION = re.compile(r"[A-Za-z0-9.+_-]{1,200}")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_NPM_FILE = re.compile(r"/(?:[^/]+/)+-/[^/]+")


class Content(StrEnum):
    """How an answer is treated."""

    PLAIN = "plain"
    """Passed on as it comes."""
    INDEX = "index"
    """May name hosts of files, which are learned, and changed when the client asked by the proxy's own path."""
    CRATES_CONFIG = "crates_config"
    CRATE = "crate"
    """A crate's file, whose address the registry's configuration says."""
    FILE = "file"
    """A file that the index of `project` must name. `mark` shows that it did."""


class BadPath(Exception):
    """No path of a registry; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`address` is None for a crate alone. `by_path`: asked by the proxy's own path, not by the registry's address."""

    preset: str
    content: Content
    by_path: bool
    address: Address | None = None
    project: str = ""
    mark: str = ""
    crate: tuple[str, str, str] = ("", "", "")


def named_preset(target: str) -> str | None:
    """Return the preset that the path of a request names, listed or not."""
    path = target.partition("?")[0]
    if path.startswith(PREFIX):
        name = path.removeprefix(PREFIX).partition("/")[0]
        return name if name in PRESETS else None
    return "npm" if _NPM_FILE.fullmatch(path) else None


def by_path(target: str, registries: Registries) -> Wanted:
    """Return what an origin-form target of a registry asks for. Raises BadPath, and ConfigError for an unknown registry."""
    path, _, query = target.partition("?")
    _check(path)
    preset = named_preset(target)
    if preset is None:
        raise BadPath(f"a registry's path begins with {PREFIX} and one of {', '.join(PRESETS)}")
    if not path.startswith(PREFIX):
        root = registries.upstream(preset).root
        address = Address(scheme=root.scheme, endpoint=root.endpoint, path=path, query=query)
        if not address.is_below(root):
            raise BadPath("this is no path of the registry npm")
        return Wanted(preset=preset, content=Content.PLAIN, by_path=True, address=address)
    rest = path.removeprefix(f"{PREFIX}{preset}").removeprefix("/")
    if preset == "pypi":
        return _pypi(rest, query, registries)
    if preset == "crates":
        return _crates(rest, query, registries)
    if preset == "debian":
        archive, _, below = rest.partition("/")
        return _plain(preset, archive, below, query, registries)
    return _plain(preset, "", rest, query, registries)


def by_address(preset: str, address: Address, registries: Registries) -> Wanted:
    """Return what a request for a registry's own address asks for. Raises BadPath."""
    _check(address.path)
    upstream = registries.upstream(preset)
    content = Content.PLAIN
    if upstream.is_below_root(address):
        if preset == "pypi":
            content = Content.INDEX
        elif preset == "crates" and address.path == upstream.root.path + "config.json":
            content = Content.CRATES_CONFIG
    return Wanted(preset=preset, content=content, by_path=False, address=address)


def file_path(project: str, mark: str, address: Address) -> str:
    """Return the path under which the proxy gives a file of a Python project."""
    return f"{PREFIX}pypi/-/files/{project}/{mark}/{address.scheme}/{address.endpoint}{address.target}"


def project_of(address: Address) -> str:
    """Return the project that an index page is of; `-` for what is no project's."""
    name = address.path.rstrip("/").rpartition("/")[2]
    return name if _PROJECT.fullmatch(name) else "-"


def _pypi(rest: str, query: str, registries: Registries) -> Wanted:
    first, _, below = rest.partition("/")
    if first == "simple":
        wanted = _plain("pypi", "", below, query, registries)
        return Wanted(preset="pypi", content=Content.INDEX, by_path=True, address=wanted.address)
    parts = below.split("/", 5)
    if first != "-" or len(parts) != 6 or parts[0] != "files" or not _PROJECT.fullmatch(parts[1]):
        raise BadPath("the paths of pypi begin with /registry/pypi/simple/")
    _, project, mark, scheme, host, path = parts
    try:
        endpoint = parse_endpoint(unquote(host))
    except ValueError as error:
        raise BadPath(str(error)) from None
    if scheme not in ("http", "https"):
        raise BadPath("the scheme of a file is https or http")
    address = Address(scheme=scheme, endpoint=endpoint, path=f"/{path}", query=query)
    return Wanted(preset="pypi", content=Content.FILE, by_path=True, address=address, project=project, mark=mark)


def _crates(rest: str, query: str, registries: Registries) -> Wanted:
    if rest == "config.json":
        wanted = _plain("crates", "", rest, "", registries)
        return Wanted(preset="crates", content=Content.CRATES_CONFIG, by_path=True, address=wanted.address)
    if not rest.startswith("-/"):
        return _plain("crates", "", rest, query, registries)
    parts = tuple(unquote(part) for part in rest.split("/"))
    if len(parts) != 5 or parts[1] != "dl" or not _CRATE.fullmatch(parts[2]):
        raise BadPath("a crate's file is at /registry/crates/-/dl/<crate>/<version>/<checksum>")
    if not _VERSION.fullmatch(parts[3]) or not _CHECKSUM.fullmatch(parts[4]):
        raise BadPath("a crate's file has a version and a checksum")
    crate = (parts[2], parts[3], parts[4])
    return Wanted(preset="crates", content=Content.CRATE, by_path=True, crate=crate)


def _plain(preset: str, root: str, rest: str, query: str, registries: Registries) -> Wanted:
    roots = registries.upstream(preset).roots
    if root not in roots:
        raise BadPath(f"{preset} has the archives {', '.join(roots)}")
    base = roots[root]
    address = Address(scheme=base.scheme, endpoint=base.endpoint, path=base.path + rest, query=query)
    return Wanted(preset=preset, content=Content.PLAIN, by_path=True, address=address)


def _check(path: str) -> None:
    # A server may decode before it splits: what is a step upwards in either order is refused.
    decoded = unquote(path)
    if any(segment in (".", "..") for text in (path, decoded, unquote(decoded)) for segment in text.split("/")):
        raise BadPath("a path has no . or .. in it")
    if not path.isascii() or not path.isprintable() or "\\" in decoded or not decoded.isprintable():
        raise BadPath("a path has only printable characters")
