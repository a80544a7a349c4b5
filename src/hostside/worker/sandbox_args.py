"""The arguments of bwrap: what a run sees of the machine (D9).

Everything is absent unless it is named here: the user's home, host state, `/etc` as a whole, other processes, other
sockets, the network.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TRUSTED_PATH = "/usr/bin:/bin:/usr/local/bin:/run/wrappers/bin"
INNER_HOME = "/home/agent"
INNER_USER = "agent"
INNER_UID = 1000
INNER_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
LAUNCHER = "/opt/hostside/launcher.py"
_INNER_PYTHON = "/opt/hostside/python"
_SYSTEM_PYTHON = "/usr/bin/python3"

TMP_BYTES = 1 << 30
SHARED_MEMORY_BYTES = 1 << 29
RUN_BYTES = 1 << 24

# Left out on purpose: gitconfig (credential helpers, URLs with tokens), profile and environment (exports of the
# machine's own tokens), resolv.conf and hostname (nothing inside needs them), pki/tls/private.
ETC_SHOWN = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
)
ETC_DATA = {
    "/etc/passwd": f"{INNER_USER}:x:{INNER_UID}:{INNER_UID}:{INNER_USER}:{INNER_HOME}:/bin/bash\n"
    "root:x:0:0:root:/:/usr/sbin/nologin\n",
    "/etc/group": f"{INNER_USER}:x:{INNER_UID}:\nroot:x:0:\n",
    "/etc/hosts": "127.0.0.1 localhost agent\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files that exist inside only as data, so that they say nothing about the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """`source` on the host appears as `target` inside: a toolchain, an agent's binary, a repository's common folder."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxView:
    """The part of a sandbox that is the same for all processes of a run."""

    workspace: Path
    home: Path
    ro_binds: tuple[Bind, ...] = ()
    rw_binds: tuple[Bind, ...] = ()


def bwrap_arguments(
    view: SandboxView, *, cwd: str, data: Sequence[tuple[int, str]], binds: Sequence[Bind] = ()
) -> list[str]:
    """The arguments in the order bwrap must see them. `data`: descriptor and the read-only file it becomes inside."""
    arguments = [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net"),
        *("--die-with-parent", "--new-session", "--hostname", "agent"),
        *("--uid", str(INNER_UID), "--gid", str(INNER_UID), "--cap-drop", "ALL", "--disable-userns"),
        *_system(),
        *_processes(),
        *("--dev", "/dev"),
        *("--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--size", str(RUN_BYTES), "--tmpfs", "/run"),
        *("--dir", "/var", "--symlink", "../tmp", "/var/tmp"),
    ]
    for option, bind in _outer_first(view, binds):
        arguments += (option, str(bind.source), bind.target)
    for fd, target in data:
        arguments += ("--ro-bind-data", str(fd), target)
    # Last: nothing can be mounted after it.
    return [*arguments, "--chdir", cwd, "--remount-ro", "/"]


def bwrap_path() -> str | None:
    """Where bwrap is installed; the caller's own PATH is not asked."""
    return shutil.which("bwrap", path=_TRUSTED_PATH)


def interpreter() -> tuple[str, tuple[Bind, ...]]:
    """A Python that exists inside, and what must be bound for it.

    The system's own, else the one that runs this process: bound as a whole when it lives outside `/usr`.
    """
    if os.path.exists(_SYSTEM_PYTHON):
        return _SYSTEM_PYTHON, ()
    executable = Path(sys.executable).resolve()
    prefix = Path(sys.base_prefix).resolve()
    if executable.is_relative_to("/usr"):
        return str(executable), ()
    inside = f"{_INNER_PYTHON}/{executable.relative_to(prefix)}"
    return inside, (Bind(source=prefix, target=_INNER_PYTHON),)


def _outer_first(view: SandboxView, binds: Sequence[Bind]) -> list[tuple[str, Bind]]:
    # A folder must be mounted before what lies inside it, else it hides that.
    writable = (Bind(source=view.home, target=INNER_HOME), Bind(source=view.workspace, target=str(view.workspace)))
    mounts = [("--ro-bind", bind) for bind in (*view.ro_binds, *binds)]
    mounts += [("--bind", bind) for bind in (*writable, *view.rw_binds)]
    return sorted(mounts, key=lambda mount: len(Path(mount[1].target).parts))


def _processes() -> list[str]:
    arguments = ["--proc", "/proc"]
    # The kernel lists the keys of the outer user, whatever the namespace; kernels without keys have no such file.
    for path in ("/proc/keys", "/proc/key-users"):
        if os.path.exists(path):
            arguments += ("--ro-bind", "/dev/null", path)
    # A host that is root and does not switch user: the kernel lets that user write /proc/sys without any capability,
    # core_pattern included, which names a program that the machine's root runs.
    return [*arguments, "--remount-ro", "/proc"]


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ("--symlink", os.readlink(path), str(path))
        elif path.is_dir():
            arguments += ("--ro-bind", str(path), str(path))
    for name in ETC_SHOWN:
        arguments += ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    return arguments
