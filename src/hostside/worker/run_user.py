"""The operating system user of a root host's runs: who may be one, and what this machine gives it (D9).

Switched to before anything else happens, at `bwrap` and at `user` alike: inside a sandbox of root, files of root that are
shown would be readable whatever their mode.
"""

import dataclasses
import grp
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hostside.errors import ConfigError
from hostside.worker.isolation_level import IsolationLevel, IsolationReport, LevelStatus
from hostside.worker.process import RunUser

USERADD = (
    "Run: useradd --system --user-group --no-create-home --shell /usr/sbin/nologin hostside-agent; "
    'then set user = "hostside-agent" under [run] in hostside.toml.'
)
PRIVILEGED_GROUPS = frozenset(
    {"adm", "admin", "disk", "docker", "incus", "incus-admin", "kmem", "libvirt", "lxd", "root", "shadow", "sudo"}
) | {"systemd-journal", "wheel"}
"""Members become root, or read what is root's. The groups of a run's processes are emptied, but `sg` and `sudo` ask the
machine's list, so that membership alone is enough."""

_LARGEST_UID = 2**32 - 2
_SECONDS = 20.0
_HARD_LINKS = Path("/proc/sys/fs/protected_hardlinks")
_OF_THE_HOST = frozenset({"USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP"})
_REACHES = (
    'for path; do if [ -d "$path" ]; then [ -r "$path" ] && [ -x "$path" ]; else [ -r "$path" ] || [ -x "$path" ]; fi'
    ' || { printf %s "$path"; exit 1; }; done'
)


def resolve_run_user(wanted: str) -> RunUser:
    """Return who `run.user` names. A number needs no entry in the machine's list of users; its group is then the same.

    Raises ConfigError (`invalid_configuration`) with the remedy: the host is not root, there is no such user, it is root,
    or it is in one of `PRIVILEGED_GROUPS`.
    """
    if os.geteuid() != 0:
        raise _refused(
            "only a host that runs as root can start runs as another user",
            remedy="Take run.user out of hostside.toml, or start hostside as root.",
        )
    entry = _entry(wanted)
    user = RunUser(uid=int(wanted), gid=int(wanted)) if entry is None else RunUser(uid=entry.pw_uid, gid=entry.pw_gid)
    if user.uid == 0:
        raise _refused(f"{wanted} is root, the host's own user", remedy=USERADD)
    if not 0 < user.uid <= _LARGEST_UID:
        raise _refused(f"{wanted} is no user's number", remedy=USERADD)
    groups = [user.gid] if entry is None else os.getgrouplist(entry.pw_name, entry.pw_gid)
    if privileged := sorted({_group(gid) for gid in groups} & PRIVILEGED_GROUPS):
        raise _refused(
            f"{wanted} is in the group{'s' if len(privileged) > 1 else ''} {', '.join(privileged)}, whose members can act "
            "as root or read what is root's",
            remedy=f"Take it out of {'them' if len(privileged) > 1 else 'it'}, or name a user made for this. {USERADD}",
        )
    return user


def refuse_at_home(user: RunUser | None) -> None:
    """Raise ConfigError where there is a user: level `home` has the host's own, and asking for both is a contradiction."""
    if user is not None:
        raise ConfigError(
            "invalid_configuration",
            "isolation level home runs as the host's own user, and run.user names another one.",
            remedy="Use auto, bwrap or user, or take run.user out of hostside.toml.",
        )


def told(user: RunUser) -> str:
    """Return the user for a person: `name (number)`, or the number alone."""
    try:
        return f"{pwd.getpwuid(user.uid).pw_name} ({user.uid})"
    except KeyError:
        return str(user.uid)


def own_environment(environment: Mapping[str, str], user: RunUser | None, level: IsolationLevel) -> dict[str, str]:
    """Return the host's variables without those that speak of its own user, where a run of another user sees them."""
    if user is None or level is not IsolationLevel.USER:
        return dict(environment)
    try:
        name = pwd.getpwuid(user.uid).pw_name
    except KeyError:
        name = str(user.uid)
    kept = {key: value for key, value in environment.items() if key not in _OF_THE_HOST}
    return {**kept, "USER": name, "LOGNAME": name, "SHELL": "/bin/sh"}


def explained(report: IsolationReport, user: RunUser | None) -> IsolationReport:
    """Return the report with what only a configured user decides: whether level `user` works, found by starting a process
    of it, and how to get one. `report`: `probe_levels(user)`."""
    levels = {status.level: status for status in report.levels}
    bwrap, by_user = levels[IsolationLevel.BWRAP], levels[IsolationLevel.USER]
    if user is not None:
        problem = _problem(user) if by_user.available else None
        if problem is not None:
            reason, remedy = problem
            by_user = LevelStatus(level=IsolationLevel.USER, available=False, reason=reason, remedy=remedy)
    elif os.geteuid() == 0:
        by_user = dataclasses.replace(by_user, remedy=USERADD)
        if bwrap.available and bwrap.reason:
            bwrap = dataclasses.replace(bwrap, remedy=f"{USERADD} Or start hostside as an ordinary user.")
    return IsolationReport(levels=(bwrap, by_user, levels[IsolationLevel.HOME]))


def first_unreachable(user: RunUser, paths: Sequence[Path]) -> Path | None:
    """Return the first of `paths` that a process of `user` cannot read (or, a program, run); None when it can do so with
    all. Raises ConfigError when no process of it can be started."""
    done = run_as(user, ["/bin/sh", "-c", _REACHES, "sh", *map(str, paths)])
    return None if done.returncode == 0 else Path(os.fsdecode(done.stdout))


def run_as(user: RunUser, argv: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run one short command as `user`, with nothing of the host's; it has 20 seconds. Raises ConfigError when it cannot
    start."""
    try:
        return subprocess.run(
            argv,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            user=user.uid,
            group=user.gid,
            extra_groups=[],
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _refused(
            f"no process can be started as {told(user)} ({error})",
            remedy="In a container with user namespaces: map this number. Else name another user.",
        ) from None


def _problem(user: RunUser) -> tuple[str, str] | None:
    """Why level `user` does not work with this user, and the remedy."""
    try:
        done = run_as(user, ["/bin/sh", "-c", "id -u; id -g; id -G"])
    except ConfigError as error:
        return error.message, error.remedy
    if done.stdout.split() != [str(user.uid).encode(), *[str(user.gid).encode()] * 2]:
        return f"a process started as {told(user)} is somebody else", "Name another user as run.user."
    if not _says_one(_HARD_LINKS):
        # The host's own tools read a workspace as root: a link in it to root's file would be read for the agent.
        return (
            "fs.protected_hardlinks is off: an agent could link files of others into its workspace",
            "Run: sysctl -w fs.protected_hardlinks=1",
        )
    return None


def _entry(wanted: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(wanted)) if wanted.isdecimal() else pwd.getpwnam(wanted)
    except (KeyError, OverflowError):
        if wanted.isdecimal():
            return None
        raise _refused(f"there is no user {wanted} on this machine", remedy=USERADD) from None


def _group(gid: int) -> str:
    if gid == 0:
        return "root"
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _says_one(file: Path) -> bool:
    try:
        return file.read_text("ascii").strip() == "1"
    except OSError:
        return False


def _refused(why: str, *, remedy: str) -> ConfigError:
    return ConfigError("invalid_configuration", f"run.user: {why}.", remedy=remedy)
