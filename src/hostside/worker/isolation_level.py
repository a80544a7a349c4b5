"""Which isolation this machine can give a run, found out by giving it (D9)."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from hostside.errors import ConfigError
from hostside.worker.process import RunUser
from hostside.worker.sandbox import data_descriptor
from hostside.worker.sandbox_args import ETC_DATA, SandboxView, bwrap_arguments, bwrap_path, interpreter

Requested = Literal["auto", "bwrap", "user", "home"]

_PROBE_SECONDS = 20.0

APPARMOR_PROFILE = """\
abi <abi/4.0>,
include <tunables/global>

profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
  include if exists <local/bwrap>
}
"""
"""Goes to /etc/apparmor.d/bwrap on hosts whose AppArmor keeps user namespaces from unprivileged programs."""


class IsolationLevel(StrEnum):
    """What a run is kept from, strongest first."""

    BWRAP = "bwrap"
    """Own mount, pid, ipc and network namespace: it sees its workspace, its home and the read-only system."""
    USER = "user"
    """Another operating system user: file modes protect the host's user; loopback is shared."""
    HOME = "home"
    """Only its environment: same user, same files, same network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStatus:
    """One level on this machine. `reason` and `remedy` are empty when it is available without a reservation."""

    level: IsolationLevel
    available: bool
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationReport:
    """All levels, strongest first."""

    levels: tuple[LevelStatus, ...]

    def status(self, level: IsolationLevel) -> LevelStatus:
        return next(status for status in self.levels if status.level is level)


def probe_levels(user: RunUser | None = None) -> IsolationReport:
    """Try each level, as `user` where one is given. Runs bwrap with the arguments of a real run (up to 20 seconds)."""
    home = LevelStatus(
        level=IsolationLevel.HOME,
        available=True,
        reason="the agent can read and write everything that this user can",
        remedy="Use it only without secrets, for a demonstration.",
    )
    return IsolationReport(levels=(_probe_bwrap(user), _probe_user(user), home))


def choose(
    requested: Requested,
    *,
    secrets_configured: bool,
    demo: bool,
    report: IsolationReport | None = None,
) -> IsolationLevel:
    """The level for a run. `auto`: the strongest available one, `home` only for the demonstration.

    Raises `ConfigError` (`invalid_configuration`) when the requested level is not available, and for `home` while any
    tracker, git or model secret is configured. `report`: an earlier `probe_levels`; None probes now.
    """
    if requested == "home":
        return _home(secrets_configured)
    report = report or probe_levels()
    if requested != "auto":
        status = report.status(IsolationLevel(requested))
        if not status.available:
            raise _unavailable(status)
        return status.level
    for level in (IsolationLevel.BWRAP, IsolationLevel.USER):
        if report.status(level).available:
            return level
    if demo:
        return _home(secrets_configured)
    raise _unavailable(report.status(IsolationLevel.BWRAP))


def _home(secrets_configured: bool) -> IsolationLevel:
    if secrets_configured:
        raise ConfigError(
            "invalid_configuration",
            "isolation level home is refused while secrets are configured: the agent could read them",
            remedy="Install bubblewrap and use --isolation bwrap, or remove every secret reference from hostside.toml.",
        )
    return IsolationLevel.HOME


def _unavailable(status: LevelStatus) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"isolation level {status.level} is not available: {status.reason}",
        remedy=status.remedy,
    )


def _probe_user(user: RunUser | None) -> LevelStatus:
    level = IsolationLevel.USER
    if os.geteuid() != 0:
        reason = "only root can start processes as another user"
        return LevelStatus(
            level=level, available=False, reason=reason, remedy="Install bubblewrap and use level bwrap."
        )
    if user is None or user.uid == 0:
        reason = "no separate operating system user is configured for runs"
        remedy = "Name an unprivileged user for runs, or install bubblewrap and use level bwrap."
        return LevelStatus(level=level, available=False, reason=reason, remedy=remedy)
    return LevelStatus(level=level, available=True)


def _probe_bwrap(user: RunUser | None) -> LevelStatus:
    level = IsolationLevel.BWRAP
    program = bwrap_path()
    if program is None:
        remedy = "Install the package bubblewrap (0.8 or newer)."
        return LevelStatus(level=level, available=False, reason="bwrap is not installed", remedy=remedy)
    problem = _try_bwrap(program, user)
    if problem is not None:
        reason, remedy = _explain(problem)
        return LevelStatus(level=level, available=False, reason=reason, remedy=remedy)
    if os.geteuid() == 0 and user is None:
        reason = "the host is root and names no user for runs: files that a run makes belong to root"
        return LevelStatus(level=level, available=True, reason=reason, remedy="Start hostside as an ordinary user.")
    return LevelStatus(level=level, available=True)


def _try_bwrap(program: str, user: RunUser | None) -> str | None:
    """What bwrap says against a sandbox like a run's; None when a program ran in it."""
    with tempfile.TemporaryDirectory(prefix="hostside-probe-") as folder:
        view = SandboxView(workspace=Path(folder, "workspace"), home=Path(folder, "home"))
        for path in (Path(folder), view.workspace, view.home):
            path.mkdir(mode=0o700, exist_ok=True)
            if user is not None:
                os.chown(path, user.uid, user.gid)
        fds: list[int] = []
        try:
            data = []
            for target, text in ETC_DATA.items():
                fds.append(data_descriptor(text.encode()))
                data.append((fds[-1], target))
            python, binds = interpreter()
            arguments = bwrap_arguments(view, cwd=str(view.workspace), data=data, binds=binds)
            fds.append(data_descriptor(b"".join(os.fsencode(argument) + b"\0" for argument in arguments)))
            # The interpreter is part of the probe: without one inside, no listener can be handed out.
            return _run([program, "--args", str(fds[-1]), "--", python, "-I", "-S", "-B", "-c", ""], fds, user)
        finally:
            for fd in fds:
                os.close(fd)


def _run(argv: list[str], fds: list[int], user: RunUser | None) -> str | None:
    try:
        done = subprocess.run(
            argv,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=fds,
            timeout=_PROBE_SECONDS,
            check=False,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip() or "no reason given"


def _kernel_says(name: str, value: str) -> bool:
    try:
        return Path("/proc/sys", name).read_text("ascii").strip() == value
    except OSError:
        return False


_EXPLANATIONS: tuple[tuple[Callable[[str], bool], str, str], ...] = (
    (
        lambda problem: "unknown option" in problem.lower(),
        "this bwrap is too old",
        "Install bubblewrap 0.8 or newer.",
    ),
    (
        lambda problem: _kernel_says("user/max_user_namespaces", "0"),
        "user namespaces are switched off (user.max_user_namespaces = 0)",
        "sudo sysctl -w user.max_user_namespaces=15000",
    ),
    (
        lambda problem: _kernel_says("kernel/unprivileged_userns_clone", "0"),
        "user namespaces are switched off for ordinary users (kernel.unprivileged_userns_clone = 0)",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        lambda problem: _kernel_says("kernel/apparmor_restrict_unprivileged_userns", "1"),
        "AppArmor keeps user namespaces from bwrap",
        "Write this to /etc/apparmor.d/bwrap and run `sudo apparmor_parser -r /etc/apparmor.d/bwrap`:\n"
        + APPARMOR_PROFILE,
    ),
    (
        lambda problem: "source path" in problem or "execvp" in problem,
        "the sandbox cannot reach the Python interpreter",
        "Install the system's python3 (/usr/bin/python3).",
    ),
    (
        lambda problem: "namespace" in problem.lower() or "permitted" in problem.lower() or "denied" in problem.lower(),
        "the kernel or a container refuses new namespaces",
        "In a container: allow user namespaces (for Docker --security-opt seccomp=unconfined), or run outside it.",
    ),
)


def _explain(problem: str) -> tuple[str, str]:
    for applies, reason, remedy in _EXPLANATIONS:
        if applies(problem):
            return f"{reason} ({problem})", remedy
    return problem, "Run `hostside doctor` after installing bubblewrap 0.8 or newer."
