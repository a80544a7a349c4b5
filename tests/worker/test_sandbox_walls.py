"""What a process of a run finds of the host that started it: planted canaries, ports, sockets, processes (D9, C-26)."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from hostside.worker.sandbox_args import bwrap_path
from tests.worker.conftest import OTHER_USER, Marked

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("bwrap")]

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = str(Path(anyio.__file__).parents[1])
HOST_SCRIPT = Path(__file__).with_name("wall_host.py")
IDENTITIES = ("as it is", "root, runs are another user", "ordinary user")
Starter = Callable[..., subprocess.Popen[str]]


@pytest.fixture(params=IDENTITIES)
def start_host(request: pytest.FixtureRequest, folder: Path) -> Starter:
    """Starts `wall_host.py` with one identity of the host and of the run."""
    identity = request.param
    if identity != "as it is" and os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    host = OTHER_USER if identity == "ordinary user" else None
    run = [OTHER_USER.uid, OTHER_USER.gid] if identity == "root, runs are another user" else None
    if host is not None:
        os.chown(folder, host.uid, host.gid)

    def start(argv: list[str], *, listeners: int) -> subprocess.Popen[str]:
        order = json.dumps({"user": run, "listeners": listeners, "argv": argv})
        libraries = os.pathsep.join([str(ROOT), str(ROOT / "src"), LIBRARIES])
        return subprocess.Popen(
            [interpreter_for(host is not None), "-B", "-W", "error", str(HOST_SCRIPT), str(folder), order],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": libraries, "HOME": "/nowhere"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            user=None if host is None else host.uid,
            group=None if host is None else host.gid,
            extra_groups=None if host is None else [],
        )

    return start


def interpreter_for(other_user: bool) -> str:
    """One that the host's user can start: an interpreter below a private home is root's alone."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/python{version}"):
        who = {"user": OTHER_USER.uid, "group": OTHER_USER.gid} if other_user else {}
        try:
            subprocess.run([candidate, "-c", ""], check=True, timeout=30, **who)  # type: ignore[call-overload]
        except OSError:
            continue
        return candidate
    pytest.skip(f"no Python {version} that another user can start")


def test_from_inside_nothing_of_the_host_is_found_but_the_runs_own_ports(start_host: Starter) -> None:
    argv = ["/usr/bin/python3", "@PROBE@", "@CANARY@", "@WANTED@"]
    with start_host(argv, listeners=2) as host:
        try:
            out, err = host.communicate(timeout=60)
        finally:
            host.kill()
    assert host.returncode == 0, err
    found = json.loads(out)
    workspace = found["writable"].pop()
    assert workspace.endswith("/workspace")
    assert found == {
        "canary in processes": [],
        "process count": 2,
        "readable": [],
        "writable": ["/tmp", "/run", "/dev/shm", "/home/agent"],
        "open ports": [8001, 8002],
        "abstract socket": "Connection refused",
        "path socket": "No such file or directory",
        "interfaces": ["lo"],
        "outside": "Network is unreachable",
        "signal to the host": "No such process",
        "user namespace": True,
        "capabilities": "0000000000000000",
        "no new privileges": "1",
        "core": [0, 0],
        "terminal": "done",
        "certificates": True,
        "git credential": "",
        "host name": "agent",
        "descriptors": [0, 1, 2],
    }


def test_no_process_of_a_run_outlives_a_host_that_is_killed(start_host: Starter, marked: Marked) -> None:
    sleep = f"sleep {marked.seconds}"
    script = f"setsid {sleep} & (setsid sh -c '{sleep} & exit' &) ; {sleep} & echo ready; exec {sleep}"
    with start_host(["sh", "-c", script], listeners=1) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
            anyio.run(marked.sleeping, 4)
            sandbox = [*marked.pids("sleep\0"), *marked.pids(f"{bwrap_path()}\0")]
            handles = [os.pidfd_open(pid) for pid in sandbox]
        finally:
            host.send_signal(signal.SIGKILL)
        gone = [wait_for_end(handle) for handle in handles]
    for handle in handles:
        os.close(handle)
    assert gone == [True] * 6  # four sleeps, bwrap outside and as the first process inside
    anyio.run(marked.gone)


def wait_for_end(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(5_000))


def test_memory_and_environment_of_the_host_are_closed_to_its_own_user(folder: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "from hostside.worker.host_hardening import make_undumpable\n"
        "def read(): return subprocess.run(['cat', f'/proc/{os.getpid()}/environ'], capture_output=True).returncode\n"
        "before = read()\n"
        "make_undumpable()\n"
        "print(before, read())\n"
    )
    ordinary = os.geteuid() == 0
    libraries = os.pathsep.join([str(ROOT / "src"), LIBRARIES])
    done = subprocess.run(
        [interpreter_for(ordinary), "-B", "-c", script],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": libraries},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        user=OTHER_USER.uid if ordinary else None,
        group=OTHER_USER.gid if ordinary else None,
        extra_groups=[] if ordinary else None,
    )
    assert (done.stdout, done.stderr) == ("0 1\n", "")
