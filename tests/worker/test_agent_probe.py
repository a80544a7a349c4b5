"""What `doctor --as-agent` finds: nothing at bwrap, and exactly what is documented at the weaker levels (D9, A0-13, A0-21).

The weaker levels are probed on a machine of their own: a sandbox with its own processes, network and files, in which the
host and the run stand together. So the probe touches nothing of the machine that runs the tests.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from hostside.errors import ConfigError
from hostside.worker import probe_attempts, probe_peers, probe_program
from hostside.worker.agent_probe import probe_as_agent
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.probe_report import SEVERITY, Finding, ProbeFailed, ProbeReport, Severity, read_report, residual
from hostside.worker.sandbox_args import bwrap_path
from tests.support.clients import find_claude, find_codex
from tests.worker.conftest import OTHER_USER
from tests.worker.probe_host import NO_KEYRING
from tests.worker.test_sandbox_walls import interpreter_for

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = Path(anyio.__file__).parents[1]
HOST_SCRIPT = Path(__file__).with_name("probe_host.py")
DOCUMENT = ROOT / "docs" / "concepts" / "isolation.md"
FINDERS = {"claude": find_claude, "codex": find_codex}
SURFACE = [
    "a private /tmp, /run and /dev/shm",
    "its workspace and its home, writable",
    "the run's edge, with its own token",
    "the run's model port, with its own model token",
    "the run's way out, which refuses by name what is not listed",
    "the system, read-only",
]
Report = Mapping[str, Any]
Identity = Mapping[str, Any]


def host_process(
    order: Mapping[str, object], *, prefix: Sequence[str] = (), other_user: bool = False, temporary: Path = Path("/tmp")
) -> Report:
    """Run `probe_host.py`, perhaps as another user or behind a command that makes a machine; its report."""
    who: dict[str, Any] = {}
    if other_user:
        who = {"user": OTHER_USER.uid, "group": OTHER_USER.gid, "extra_groups": []}
    ended = subprocess.run(
        [*prefix, interpreter_for(other_user), "-B", "-W", "error", str(HOST_SCRIPT), json.dumps(order)],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), str(LIBRARIES)]),
            "HOME": "/nowhere",
            "TMPDIR": str(temporary),
        },
        capture_output=True,
        text=True,
        cwd="/",
        timeout=240,
        check=False,
        **who,
    )
    if ended.returncode == NO_KEYRING:
        pytest.skip(f"the kernel gives this process no keyring: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr[-4_000:]
    report: Report = json.loads(ended.stdout)
    return report


def order(agent: str, level: str, *, user: Sequence[int] | None = None, **changes: object) -> dict[str, object]:
    executable = str(FINDERS[agent]().resolve())
    return {"agent": agent, "level": level, "executable": executable, "user": user, "state": [], "key": False} | changes


# -- bwrap, on this machine


@pytest.fixture(params=["as it is", "root, runs are another user", "ordinary user"])
def identity(request: pytest.FixtureRequest, bwrap: None) -> Identity:
    """Who the host is, and who its runs are."""
    if request.param != "as it is" and os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    return {
        "user": [OTHER_USER.uid, OTHER_USER.gid] if request.param == "root, runs are another user" else None,
        "other_user": request.param == "ordinary user",
    }


@pytest.mark.system
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_in_the_sandbox_reaches_its_own_surface_and_nothing_else(
    agent: str, identity: Identity, folder: Path
) -> None:
    state, temporary = folder / "state", folder / "temporary"
    for path in (state, temporary):
        path.mkdir(mode=0o700)
        (path / "key").write_text("key")
    (temporary / "key").unlink()
    if os.geteuid() == 0:
        os.chown(temporary, *((OTHER_USER.uid, OTHER_USER.gid) if identity["other_user"] else (0, 0)))
        temporary.chmod(0o755)
    asked = order(agent, "bwrap", user=identity["user"], state=[str(state), str(state / "key")])
    report = host_process(asked, other_user=identity["other_user"], temporary=temporary)
    assert report == {"level": "bwrap", "findings": [], "surface": SURFACE, "notes": [], "unexpected": []}
    assert list(temporary.iterdir()) == []


@pytest.mark.system
@pytest.mark.usefixtures("bwrap")
def test_a_key_of_the_session_that_started_the_host_is_found_where_the_run_inherits_it() -> None:
    report = host_process(order("codex", "bwrap", key=True))
    found = [(finding["kind"], finding["what_it_can_do"]) for finding in report["findings"]]
    assert found == [("kernel_keyring", "reads an inherited key of type user")]


# -- the weaker levels, on a machine of their own


@pytest.fixture
def machine() -> Iterator[Callable[..., list[str]]]:
    """Makes the command before a host's: a sandbox with this Python, this checkout and the agents; the rest is empty."""
    program = bwrap_path()
    if program is None:
        pytest.skip("bwrap is not installed, and without it the probe would touch this machine")
    interpreter = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    with tempfile.TemporaryDirectory(prefix="hostside-test-machine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")

        def make(agent: str, *, other_user: bool = False) -> list[str]:
            command = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
            # As root the host must be able to become the run's user, and to do what root can do.
            command += ["--cap-add", "ALL"] if os.geteuid() == 0 and not other_user else []
            command += [
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "--tmpfs",
                "/tmp",
                "--chmod",
                "1777",
                "/tmp",
                "--dir",
                "/run",
            ]
            command += ["--ro-bind", "/usr", "/usr", "--ro-bind", str(folder / "passwd"), "/etc/passwd"]
            for path in map(Path, ("/bin", "/sbin", "/lib", "/lib64")):
                if path.is_symlink():
                    command += ["--symlink", os.readlink(path), str(path)]
                elif path.is_dir():
                    command += ["--ro-bind", str(path), str(path)]
            packages = {FINDERS[agent]().resolve().parents[1]}
            # Another user cannot show what lies in this one's home; it has an interpreter of the system.
            shown = {ROOT, LIBRARIES} | packages | (set() if other_user else interpreter)
            for path in sorted(shown, key=lambda path: len(path.parts)):
                if not path.is_relative_to("/usr"):
                    command += ["--ro-bind", str(path), str(path)]
            return [*command, "--"]

        yield make


def kinds(report: Report) -> set[str]:
    return {finding["kind"] for finding in report["findings"]}


def documented(level: IsolationLevel) -> tuple[set[str], set[str]]:
    """The kinds that every machine has, and all."""
    items = residual(level)
    return {item.kind for item in items if not item.depends_on}, {item.kind for item in items}


def deeds(level: str) -> dict[str, set[str]]:
    """Some of what the probe must have done, not only seen."""
    if level == "user":
        return {"udp_port": {"sends to it and reads its answer"}, "process_access": {"reads its environment"}}
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    free = not scope.exists() or scope.read_text().strip() == "0"
    return {
        "host_state": {"reads and writes it"},
        "process_access": {"reads its environment", "signals it"}
        | ({"reads its memory", "traces it"} if free else set()),
        "ssh_agent": {"lists 1 keys and could sign with them"},
        "git_credential": {"git gives it a password"},
    }


@pytest.mark.system
@pytest.mark.parametrize(
    ("level", "agent", "other_user"),
    [("home", "claude", False), ("home", "codex", True), ("user", "codex", False), ("user", "claude", False)],
)
def test_a_weaker_level_leaves_open_what_is_documented_and_nothing_else(
    level: str, agent: str, other_user: bool, machine: Callable[..., list[str]]
) -> None:
    if (level == "user" or other_user) and os.geteuid() != 0:
        pytest.skip("starting processes as another user needs root")
    user = [OTHER_USER.uid, OTHER_USER.gid] if level == "user" else None
    prefix = machine(agent, other_user=other_user)
    report = host_process(order(agent, level, user=user), prefix=prefix, other_user=other_user)
    always, all_known = documented(IsolationLevel(level))
    assert (always - kinds(report), kinds(report) - all_known, report["unexpected"]) == (set(), set(), [])
    by_kind = {finding["kind"]: finding for finding in report["findings"]}
    for kind, done in deeds(level).items():
        assert done <= set(by_kind[kind]["what_it_can_do"].split("; ")), kind


# -- what the report says


def printed(**found: object) -> bytes:
    return json.dumps({"found": {}, "surface": ["the edge"], "notes": [], **found}).encode()


def test_the_worst_finding_comes_first_and_says_how_often_it_was_made() -> None:
    found = {
        "loopback_port": {"where": ["port 1"], "count": 1, "did": ["connects"]},
        "sudo": {"where": ["sudo -n"], "count": 1, "did": ["becomes root"]},
        "invented": {"where": ["a", "b"], "count": 7, "did": ["this", "that"]},
    }
    report = read_report(IsolationLevel.USER, printed(found=found, notes=["a note"]), own=["the edge"])
    assert report == ProbeReport(
        level=IsolationLevel.USER,
        findings=(
            Finding(
                kind="invented",
                where="a, b (and more: 7 in all)",
                what_it_can_do="this; that",
                severity=Severity.CRITICAL,
            ),
            Finding(kind="sudo", where="sudo -n", what_it_can_do="becomes root", severity=Severity.CRITICAL),
            Finding(kind="loopback_port", where="port 1", what_it_can_do="connects", severity=Severity.MEDIUM),
        ),
        surface=("its workspace and its home, writable", "the edge"),
        notes=("a note",),
    )
    assert [finding.kind for finding in report.unexpected] == ["invented", "sudo"]


@pytest.mark.parametrize("output", [b"", b"[]", b"{}", printed(surface=[]), printed()[:-1]])
def test_a_probe_that_did_not_reach_its_own_surface_proves_nothing(output: bytes) -> None:
    with pytest.raises(ProbeFailed):
        read_report(IsolationLevel.BWRAP, output, own=["the edge"])


def test_a_probe_that_cannot_start_says_why_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    program = folder / "claude"
    program.write_bytes(b"")

    async def probe() -> None:
        await probe_as_agent("claude", level=IsolationLevel.USER, executable=program, host_environment={})

    with pytest.raises(ConfigError, match="user other than the host's own"):
        anyio.run(probe)
    assert [path.name for path in folder.iterdir()] == ["claude"]


def test_every_kind_that_the_probe_reports_has_a_severity_and_every_residual_is_one_of_them() -> None:
    sources = "".join(Path(str(module.__file__)).read_text("utf-8") for module in (probe_program, probe_peers))
    reported = set(re.findall(r'reached\(\s*"([a-z_]+)"', sources)) | {"scheduled_job", "other_run_edge"}
    assert reported | {"loopback_port", "writable_place"} == set(SEVERITY)
    assert {item.kind for level in IsolationLevel for item in residual(level)} <= set(SEVERITY)


def test_a_weaker_level_leaves_open_whatever_a_stronger_one_does() -> None:
    bwrap, user, home = (residual(level) for level in IsolationLevel)
    assert (bwrap, set(user) - set(home)) == ((), set())


def test_the_documentation_lists_the_residuals_of_each_level_as_the_probe_knows_them() -> None:
    text = DOCUMENT.read_text("utf-8")
    listed = {
        level: re.findall(r"^\| `([a-z_]+)` \| (.*) \| (.*) \|$", section, re.MULTILINE)
        for level, section in re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    user = residual(IsolationLevel.USER)
    more = tuple(item for item in residual(IsolationLevel.HOME) if item not in user)
    rows = {"user": user, "home": more}
    assert {level: listed[level] for level in rows} == {
        level: [(item.kind, item.what_it_can_do, item.depends_on or "everywhere") for item in items]
        for level, items in rows.items()
    }


@pytest.mark.parametrize("module", [probe_program, probe_peers, probe_attempts])
def test_the_program_inside_needs_nothing_but_an_old_python(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"), feature_version=(3, 9))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    ours = {"hostside.worker.probe_attempts", "hostside.worker.probe_peers"}
    from_us = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module} - {
        "__future__"
    }
    assert imported <= sys.stdlib_module_names | {"hostside"}
    assert {name for name in from_us if name.startswith("hostside")} <= ours
