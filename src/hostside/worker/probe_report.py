"""What the probe's findings mean: how bad each kind is, and which of them a level is known to leave open (D9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hostside.core.canonical import JsonRejected, parse
from hostside.errors import HostsideError
from hostside.worker.isolation_level import IsolationLevel


class Severity(StrEnum):
    """How much an agent gains."""

    LOW = "low"
    """It learns something about the machine."""
    MEDIUM = "medium"
    """It reaches a service or shares a place with others."""
    HIGH = "high"
    """It reads what belongs to the host's user."""
    CRITICAL = "critical"
    """It acts as the host, another run, or root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of thing beyond the run's own surface that the probe reached. `where`: examples, and how many in all."""

    kind: str
    where: str
    what_it_can_do: str
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What a level is known to leave open. `depends_on` is empty where every machine has it."""

    kind: str
    what_it_can_do: str
    depends_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """`findings` worst first; `surface` what is the run's own by design; `notes` what could not be tried, and why."""

    level: IsolationLevel
    findings: tuple[Finding, ...]
    surface: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def unexpected(self) -> tuple[Finding, ...]:
        """The findings that the level's documentation does not name: each is a hole."""
        known = {item.kind for item in residual(self.level)}
        return tuple(finding for finding in self.findings if finding.kind not in known)


SEVERITY: Mapping[str, Severity] = {
    "network_interface": Severity.LOW,
    "process_list": Severity.LOW,
    "setuid_program": Severity.LOW,
    "user_namespace": Severity.LOW,
    "abstract_socket": Severity.MEDIUM,
    "dns_server": Severity.MEDIUM,
    "loopback_port": Severity.MEDIUM,
    "other_run_edge": Severity.MEDIUM,
    "path_socket": Severity.MEDIUM,
    "readable_file": Severity.MEDIUM,
    "route_out": Severity.MEDIUM,
    "shared_folder": Severity.MEDIUM,
    "sysv_ipc": Severity.MEDIUM,
    "udp_port": Severity.MEDIUM,
    "writable_place": Severity.MEDIUM,
    "gh_login": Severity.HIGH,
    "git_credential": Severity.HIGH,
    "inherited_descriptor": Severity.HIGH,
    "kernel_keyring": Severity.HIGH,
    "model_port_beyond": Severity.HIGH,
    "netrc": Severity.HIGH,
    "process_access": Severity.HIGH,
    "secret_file": Severity.HIGH,
    "secret_given": Severity.HIGH,
    "ssh_agent": Severity.HIGH,
    "way_out_opens": Severity.HIGH,
    "container_socket": Severity.CRITICAL,
    "edge_accepts": Severity.CRITICAL,
    "host_state": Severity.CRITICAL,
    "kernel_settings": Severity.CRITICAL,
    "model_accepts": Severity.CRITICAL,
    "mount": Severity.CRITICAL,
    "other_run_accepts": Severity.CRITICAL,
    "raw_device": Severity.CRITICAL,
    "scheduled_job": Severity.CRITICAL,
    "sudo": Severity.CRITICAL,
}
"""Every kind that the probe can report."""

_WORST_FIRST = tuple(reversed(Severity))


def _residual(kind: str, what_it_can_do: str, depends_on: str = "") -> Residual:
    return Residual(kind=kind, what_it_can_do=what_it_can_do, depends_on=depends_on)


_USER = (
    _residual("process_list", "see every process of the machine and its arguments"),
    _residual("process_access", "read and signal the processes of other runs of the same user, their tokens included"),
    _residual("readable_file", "read every world-readable file"),
    _residual("writable_place", "write in /tmp and other folders that are open to all"),
    _residual("loopback_port", "connect to every TCP port of 127.0.0.1"),
    _residual("other_run_edge", "connect to another run's edge, which refuses its token"),
    _residual("udp_port", "send to every UDP port of 127.0.0.1"),
    _residual("abstract_socket", "connect to every abstract socket"),
    _residual("path_socket", "connect to sockets in folders and with modes that are open to all"),
    _residual("sysv_ipc", "see System V objects, and use those that are open to all"),
    _residual("user_namespace", "make user namespaces, so attack more of the kernel", "kernel settings"),
    _residual("network_interface", "see the machine's network interfaces", "a network"),
    _residual("route_out", "send anything anywhere", "a network"),
    _residual("dns_server", "resolve names", "a network"),
    _residual("setuid_program", "run programs that act as another user", "set-user-ID programs"),
    _residual("container_socket", "start containers as root", "a container socket open to all"),
)
_HOME = (
    *_USER,
    _residual("host_state", "read and write the host's database, key and approvals"),
    _residual("secret_file", "read every secret file of this user"),
    _residual("git_credential", "log in with this user's git credentials"),
    _residual("gh_login", "act with this user's gh login"),
    _residual("netrc", "log in with this user's netrc"),
    _residual("ssh_agent", "sign with this user's ssh agent"),
    _residual("kernel_keyring", "read the keys in this user's keyring", "a kernel with keyrings"),
    _residual("sudo", "become root", "sudo without a password"),
    _residual("scheduled_job", "leave jobs that run later", "a host that runs as root"),
    _residual("kernel_settings", "change the kernel's settings", "a host that runs as root"),
    _residual("mount", "mount file systems", "a host that runs as root"),
    _residual("raw_device", "read disks and memory", "a host that runs as root"),
)


def residual(level: IsolationLevel) -> tuple[Residual, ...]:
    """Return what `level` is known to leave open, in the order of the documentation; nothing for bwrap.

    Beyond this list stand what no probe can try: the kernel's own faults, and what the agent may do with its surface.
    """
    return {IsolationLevel.BWRAP: (), IsolationLevel.USER: _USER, IsolationLevel.HOME: _HOME}[level]


class ProbeFailed(HostsideError):
    """The probe did not run to its end, or did not reach the run's own surface: it proves nothing."""


def read_report(level: IsolationLevel, printed: bytes, *, own: Collection[str]) -> ProbeReport:
    """Return what the probe printed as a report. `own` is the surface that it must have reached and found working.

    Raises `ProbeFailed` when it printed no result, or has not reached the whole of its own surface.
    """
    try:
        told: Any = parse(printed)
        surface, notes, found = set(told["surface"]), tuple(told["notes"]), told["found"]
    except (JsonRejected, KeyError, TypeError):
        raise ProbeFailed("the probe printed no result") from None
    if lost := set(own) - surface:
        raise ProbeFailed(f"the probe did not reach {' and '.join(sorted(lost))}: {'; '.join(notes) or 'no reason'}")
    surface.add("its workspace and its home, writable")
    if level is IsolationLevel.BWRAP:
        surface |= {"a private /tmp, /run and /dev/shm", "the system, read-only"}
    return ProbeReport(level=level, findings=judge(found), surface=tuple(sorted(surface)), notes=notes)


def judge(found: Mapping[str, Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Return the probe's record as findings, worst first. A kind that is not known counts as critical."""
    findings = [
        Finding(
            kind=kind,
            where=_where(entry["where"], entry["count"]),
            what_it_can_do="; ".join(entry["did"]),
            severity=SEVERITY.get(kind, Severity.CRITICAL),
        )
        for kind, entry in found.items()
    ]
    return tuple(sorted(findings, key=lambda finding: (_WORST_FIRST.index(finding.severity), finding.kind)))


def _where(examples: Sequence[str], count: int) -> str:
    more = f" (and more: {count} in all)" if count > len(examples) else ""
    return ", ".join(examples) + more
