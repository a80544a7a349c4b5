"""Where the operator's own clients find their registries: asked of the clients, read from their files (D25).

A run then reads the same registries as its operator, mirrors of a company included, and the product names none. Blocking:
call it in a thread.
"""

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from hostside.worker.egress.presets import Registries, RegistryUpstream, unknown_registry, upstream

CLIENT_SECONDS = 20.0
_MAX_FILE_BYTES = 4_000_000
_MAX_PROGRAM_BYTES = 200_000_000
_PIP_SETTING = re.compile(r"^(:env:|install|global)\.index-url='([^'\s]+)'$", re.MULTILINE)
_PIP_HELP = re.compile(r"default\s+(https?://[^\s)>]+)")
_PIP_PROGRAM = (
    "import json; from pip._internal.models.index import PyPI; "
    "print(json.dumps([PyPI.simple_url, PyPI.file_storage_domain]))"
)
_SPARSE = re.compile(rb"sparse\+(https://[a-z0-9.-]+/)")
_APT_URI = re.compile(r"^URIs:\s*(.+)$", re.MULTILINE)
_APT_LINE = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(https?://\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The host's clients. `environment` is what they are started with, `home` the operator's own, `apt` apt's folder."""

    environment: Mapping[str, str] = field(repr=False)
    home: Path
    apt: Path = Path("/etc/apt")

    def find(self, name: str) -> str | None:
        return shutil.which(name, path=self.environment.get("PATH", ""))

    def ask(self, name: str, *arguments: str) -> str:
        """Return what the program prints; empty when it is not installed, fails or does not answer."""
        program = self.find(name)
        if program is None:
            return ""
        try:
            # In the root folder no project's own settings are read.
            done = subprocess.run(
                [program, *arguments],
                env=dict(self.environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CLIENT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def discover(presets: Iterable[str], configured: Mapping[str, RegistryUpstream], clients: Clients) -> Registries:
    """Return the registries of `presets`: the configured one, else the one that the client of this machine uses.

    Raises ConfigError (`invalid_configuration`) that names the preset and the line to set, when neither says it or when
    the client's registry has an address that cannot be used (one with a user in it, for example).
    """
    found = dict(configured)
    for preset in sorted(set(presets) - set(configured)):
        registry = _FINDERS[preset](clients)
        if registry is None:
            raise unknown_registry(preset)
        found[preset] = registry
    return Registries(upstreams=found)


def _npm(clients: Clients) -> RegistryUpstream | None:
    url = clients.ask("npm", "config", "get", "registry").strip()
    return upstream("npm", url) if url.startswith("http") else None


def _pypi(clients: Clients) -> RegistryUpstream | None:
    python = next((name for name in ("python3", "python") if clients.ask(name, "-m", "pip", "--version")), "python3")
    settings = dict(_PIP_SETTING.findall(clients.ask(python, "-m", "pip", "config", "list")))
    chosen = next((settings[section] for section in (":env:", "install", "global") if section in settings), None)
    default, files = _pip_default(clients.ask(python, "-I", "-c", _PIP_PROGRAM))
    if chosen is None:
        shown = clients.ask(python, "-m", "pip", "help", "install") or clients.ask("uv", "pip", "install", "--help")
        match = _PIP_HELP.search(shown.replace("default: <", "default "))
        chosen = match.group(1).rstrip(".") if match else default
    if chosen is None:
        return None
    same = default is not None and default.rstrip("/") == chosen.rstrip("/")
    return upstream("pypi", chosen, files=[f"{files}:443"] if same and files else [])


def _pip_default(printed: str) -> tuple[str | None, str | None]:
    try:
        url, files = json.loads(printed)
    except ValueError:
        return None, None
    return str(url), str(files)


def _crates(clients: Clients) -> RegistryUpstream | None:
    for name in ("config.toml", "config"):
        if (url := _replaced_source(clients.home / ".cargo" / name)) is not None:
            return upstream("crates", url)
    program = clients.ask("rustup", "which", "cargo").strip() or clients.find("cargo")
    if program is None:
        return None
    # Cargo has no command that says it: the program holds the address of its sparse index, and of no other.
    named = set(_SPARSE.findall(_bytes_of(Path(program), _MAX_PROGRAM_BYTES)))
    return upstream("crates", named.pop().decode()) if len(named) == 1 else None


def _replaced_source(path: Path) -> str | None:
    try:
        source = tomllib.loads(_text_of(path)).get("source", {})
        url = source[source["crates-io"]["replace-with"]]["registry"]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError):
        return None
    # An index in git cannot be read over the registry's own protocol.
    return url.removeprefix("sparse+") if isinstance(url, str) and url.startswith("sparse+") else None


def _go(clients: Clients) -> RegistryUpstream | None:
    proxies = re.split(r"[,|]", clients.ask("go", "env", "GOPROXY").strip())
    return upstream("go", proxies[0]) if proxies[0].startswith("http") else None


def _maven(clients: Clients) -> RegistryUpstream | None:
    if (mirror := _maven_mirror(clients.home / ".m2" / "settings.xml")) is not None:
        return upstream("maven", mirror)
    match = re.search(r"^(?:\x1b\[[0-9;]*m)*Maven home: (.+)$", clients.ask("mvn", "--version"), re.MULTILINE)
    if match is None:
        return None
    for jar in sorted(Path(match.group(1).strip(), "lib").glob("maven-model-builder*.jar")):
        if (url := _central(jar)) is not None:
            return upstream("maven", url)
    return None


def _maven_mirror(settings: Path) -> str | None:
    for mirror in _elements(_text_of(settings), "mirror"):
        values = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in mirror}
        if values.get("mirrorOf") in ("central", "*", "external:*"):
            return values.get("url")
    return None


def _central(jar: Path) -> str | None:
    """The repository of the model that every project inherits from."""
    try:
        with zipfile.ZipFile(jar) as archive:
            model = archive.read("org/apache/maven/model/pom-4.0.0.xml").decode()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    for repository in _elements(model, "repository"):
        for child in repository:
            if child.tag.rpartition("}")[2] == "url" and child.text:
                return child.text.strip()
    return None


def _elements(text: str, tag: str) -> list[ElementTree.Element]:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return []
    return [element for element in root.iter() if element.tag.rpartition("}")[2] == tag]


def _debian(clients: Clients) -> RegistryUpstream | None:
    urls: list[str] = []
    for path in sorted((clients.apt / "sources.list.d").glob("*.sources")):
        urls += [url for line in _APT_URI.findall(_text_of(path)) for url in line.split()]
    for path in (clients.apt / "sources.list", *sorted((clients.apt / "sources.list.d").glob("*.list"))):
        urls += _APT_LINE.findall(_text_of(path))
    roots: dict[str, str] = {}
    for url in dict.fromkeys(url.rstrip("/") for url in urls if url.startswith("http")):
        name = re.sub(r"[^A-Za-z0-9._-]", "-", url.rpartition("/")[2])
        roots[name if name not in roots else f"{name}-{len(roots)}"] = url
    return upstream("debian", roots) if roots else None


def apt_sources(clients: Clients) -> dict[str, bytes]:
    """Return the files of apt's sources by name, for a run; none that has a user or a password in it."""
    folder = clients.apt / "sources.list.d"
    paths = [clients.apt / "sources.list", *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    found = {path.name: _bytes_of(path, _MAX_FILE_BYTES) for path in paths}
    return {
        name if name != "sources.list" else "main.list": content
        for name, content in found.items()
        if content and b"@" not in content
    }


def _text_of(path: Path) -> str:
    return _bytes_of(path, _MAX_FILE_BYTES).decode("utf-8", "replace")


def _bytes_of(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError:
        return b""


_FINDERS: Mapping[str, Callable[[Clients], RegistryUpstream | None]] = {
    "npm": _npm,
    "pypi": _pypi,
    "crates": _crates,
    "go": _go,
    "maven": _maven,
    "debian": _debian,
}
