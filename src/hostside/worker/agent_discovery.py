"""Finding an agent's native executable: a run starts that file, never a wrapper that would need Node inside (D9)."""

import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hostside.errors import ConfigError

#: Versions that the real-client tests run against.
KNOWN_VERSIONS = {"claude": "2.1.332", "codex": "0.171.0"}
_ELF = b"\x7fELF"
_MACHINE = {"x86_64": ("x64", "x86_64"), "aarch64": ("arm64", "aarch64")}.get(platform.machine(), ("x64", "x86_64"))
VERSION_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAgent:
    """`executable` is an ELF file; `version` what it says of itself, or None."""

    executable: Path
    version: str | None


def find_agent(kind: str, configured: str | None, environment: Mapping[str, str]) -> FoundAgent:
    """Return the agent's executable. `configured` is a path, else PATH is searched and npm's wrapper is seen through.

    Raises ConfigError with the command that installs it; for a kind that is not known, without one: a name that is
    mistyped must not become a package to install.
    """
    if kind not in KNOWN_VERSIONS:
        raise ConfigError(
            "invalid_configuration",
            f"there is no agent {kind}.",
            remedy=f"Use {', '.join(KNOWN_VERSIONS)} or scripted.",
        )
    if configured is not None:
        path = Path(configured).expanduser()
        if not _is_native(path):
            raise _missing(kind, f"{path} is not a native executable")
        return FoundAgent(executable=path.resolve(), version=_version(path))
    on_path = shutil.which(kind, path=environment.get("PATH", ""))
    if on_path is None:
        raise _missing(kind, "it is not on PATH")
    for candidate in (Path(on_path).resolve(), *_beside(kind, Path(on_path).resolve())):
        if _is_native(candidate):
            return FoundAgent(executable=candidate, version=_version(candidate))
    raise _missing(kind, f"{on_path} leads to no native executable")


def _beside(kind: str, wrapper: Path) -> Iterator[Path]:
    node, triple = _MACHINE
    inner = {
        "claude": Path("@anthropic-ai") / f"claude-code-linux-{node}" / "claude",
        "codex": Path("@openai") / f"codex-linux-{node}" / "vendor" / f"{triple}-unknown-linux-musl" / "bin" / "codex",
    }.get(kind)
    if inner is None:
        return
    for folder in wrapper.parents:
        if folder.name == "node_modules":
            yield folder / inner
        yield folder / "node_modules" / inner


def _is_native(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == _ELF
    except OSError:
        return False


def _version(path: Path) -> str | None:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False, env={"HOME": "/"}
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    words = [word for word in done.stdout.split() if word[:1].isdigit()]
    return words[0] if words else None


def _missing(kind: str, why: str) -> ConfigError:
    package = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex"}[kind]
    return ConfigError(
        "invalid_configuration",
        f"the agent {kind} was not found: {why}.",
        remedy=f"Run `npm install -g {package}@{KNOWN_VERSIONS[kind]}`, or set agent.executable.",
    )
