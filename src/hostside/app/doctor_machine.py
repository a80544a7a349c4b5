"""What the doctor finds on the machine itself: Python, programs, isolation, agents, the port to listen on."""

import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hostside.app.doctor_findings import Finding, Status, failed, ok, warning
from hostside.app.server_records import ServerFolder, parse_address
from hostside.config.host import HostSettings
from hostside.config.paths import HostPaths
from hostside.errors import ConfigError
from hostside.worker.agent_discovery import KNOWN_VERSIONS, find_agent
from hostside.worker.isolation_level import IsolationLevel, IsolationReport, LevelStatus, choose, probe_levels
from hostside.worker.process import RunUser
from hostside.worker.run_places import DEFAULT_HOMES, DEFAULT_WORKSPACES, check_passage
from hostside.worker.run_user import explained, refuse_at_home, resolve_run_user, told
from hostside.worker.sandbox_args import bwrap_path

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_GIT = (2, 30)
OLDEST_BWRAP = (0, 8)
_SECONDS = 10.0


def machine() -> Iterator[Finding]:
    """Look at the interpreter and the system."""
    version = sys.version_info[:2]
    if version > NEWEST_PYTHON:
        yield warning(
            "python",
            f"{platform.python_version()} is newer than this version was tested with",
            f"Use Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} to {NEWEST_PYTHON[0]}.{NEWEST_PYTHON[1]}.",
        )
    else:
        yield ok("python", platform.python_version())
    if sys.platform == "linux":
        yield ok("platform", f"Linux {platform.release()} {platform.machine()}")
    else:
        yield failed("platform", f"{platform.system()} is not supported", "Use Linux; a virtual machine will do.")


def git(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look for git."""
    yield _program("git", shutil.which("git", path=environment.get("PATH")), OLDEST_GIT, "Install the package git.")


def bubblewrap() -> Iterator[Finding]:
    """Look for bwrap where a run takes it from."""
    yield _program("bubblewrap", bwrap_path(), OLDEST_BWRAP, "Install the package bubblewrap (0.8 or newer).")


def isolation(settings: HostSettings) -> Iterator[Finding]:
    """Try every level, and say what a run gets and why not more; each level apart where there is something to decide (D9)."""
    try:
        user = None if settings.run.user is None else resolve_run_user(settings.run.user)
        report = explained(probe_levels() if user is None else probe_levels(user), user)
        found = _chosen(settings, user, report)
    except ConfigError as error:
        yield failed("isolation", error.message, error.remedy)
        return
    yield found
    if user is not None or found.status is not Status.OK:
        yield from (_level(status, user) for status in report.levels if status.level is not IsolationLevel.HOME)


def _chosen(settings: HostSettings, user: RunUser | None, report: IsolationReport) -> Finding:
    missing = "; ".join(
        f"{status.level}: {status.reason}" for status in report.levels if not status.available and status.reason
    )
    if settings.run.isolation == "home":
        refuse_at_home(user)
    try:
        secrets = bool(settings.secret_references())
        level = choose(settings.run.isolation, secrets_configured=secrets, demo=False, report=report)
    except ConfigError as error:
        return failed("isolation", error.message, error.remedy)
    if user is not None:
        check_passage(DEFAULT_HOMES if settings.run.homes is None else Path(settings.run.homes).expanduser(), user)
        workspaces = settings.run.workspaces
        check_passage(DEFAULT_WORKSPACES if workspaces is None else Path(workspaces).expanduser(), user)
    status = report.status(level)
    if level is IsolationLevel.BWRAP and not status.reason:
        return ok("isolation", level.value if user is None else f"{level} · as {told(user)}")
    reasons = "; ".join(filter(None, (status.reason, missing if level is not IsolationLevel.BWRAP else "")))
    return warning("isolation", f"{level}, but {reasons}", status.remedy or report.levels[0].remedy)


def _level(status: LevelStatus, user: RunUser | None) -> Finding:
    name = f"isolation {status.level}"
    if status.available and not status.reason:
        return ok(name, "works" if user is None else f"works · as {told(user)}")
    return warning(name, status.reason, status.remedy)


def agents(settings: HostSettings, environment: Mapping[str, str], *, configured: bool) -> Iterator[Finding]:
    """Look for each agent. Only the one that a configuration file names has to be there."""
    for kind, known in KNOWN_VERSIONS.items():
        own = settings.agent.kind == kind
        try:
            found = find_agent(kind, settings.agent.executable if own else None, environment)
        except ConfigError as error:
            make = failed if own and configured else warning
            yield make(f"agent {kind}", error.message, error.remedy)
            continue
        if found.version == known:
            yield ok(f"agent {kind}", f"{known} · {found.executable}")
        else:
            yield warning(
                f"agent {kind}",
                f"{found.version or 'no version'} at {found.executable}; tested with {known}",
                f"Install {known}, or try this one: `hostside demo --agent {kind}`.",
            )


def port(paths: HostPaths, settings: HostSettings) -> Iterator[Finding]:
    """Look whether `serve --http` could listen where the configuration says. Raises ConfigError for a wrong address."""
    address = parse_address(settings.serve.listen)
    if any(server.address == str(address) for server in ServerFolder(paths).live()):
        yield ok("port", f"{address} · served by this host")
        return
    try:
        with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
        yield ok("port", f"{address} · free")
    except OSError as error:
        yield warning("port", f"{address}: {error.strerror}", "Give `serve --http` another port.")


def _program(name: str, path: str | None, oldest: tuple[int, int], remedy: str) -> Finding:
    make = failed if name == "git" else warning  # without bwrap it is the isolation that fails
    if path is None:
        return make(name, "not installed", remedy)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        return make(name, f"{path} does not run ({type(error).__name__})", remedy)
    version = re.search(r"(\d+)\.(\d+)[.\d]*", done.stdout)
    if version is None or (int(version[1]), int(version[2])) < oldest:
        return make(name, f"{done.stdout.strip()[:60]} is too old", f"It has to be {oldest[0]}.{oldest[1]} or newer.")
    return ok(name, f"{version[0]} · {path}")
