"""A host with planted canaries that starts one sandboxed process and prints what that one prints.

    wall_host.py FOLDER JSON     JSON: {"user": [uid, gid] or null, "listeners": N, "argv": [...]}

In argv, `@PROBE@` is the probe's path inside, `@CANARY@` and `@WANTED@` are its arguments.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio

from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.host_hardening import make_undumpable
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.process import RunUser

CANARY = "canary-of-the-host"


async def main() -> None:
    folder, order = Path(sys.argv[1]), json.loads(sys.argv[2])
    user = RunUser(uid=order["user"][0], gid=order["user"][1]) if order["user"] else None
    os.environ["PLANTED"] = CANARY
    make_undumpable()
    workspace, home, state = folder / "workspace", folder / "home", folder / "state"
    for path in (workspace, home, state):
        path.mkdir(mode=0o700)
    (state / "secret").write_text(CANARY)
    (folder / "lax").write_text(CANARY)
    (folder / "lax").chmod(0o666)
    probe = workspace / "probe.py"
    probe.write_text(Path(__file__).with_name("wall_probe.py").read_text())
    for path in (workspace, home, probe):
        os.chown(path, *(order["user"] or (-1, -1)))

    abstract = f"hostside-{os.getpid()}"
    # Ends with its input, so also when this host is killed.
    other = subprocess.Popen(["cat"], env={"PLANTED": CANARY}, stdin=subprocess.PIPE)
    tcp = socket.create_server(("127.0.0.1", 0))
    hidden = socket.socket(socket.AF_UNIX)
    hidden.bind("\0" + abstract)
    hidden.listen()
    path_socket = socket.socket(socket.AF_UNIX)
    path_socket.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o777)
    path_socket.listen()

    isolation = RunIsolation(
        level=IsolationLevel.BWRAP,
        workspace=workspace,
        home=home,
        environment=EnvironmentSource(base=os.environ),
        user=user,
    )
    wanted = {
        "files": [
            str(state / "secret"),
            str(folder / "lax"),
            *("/etc/shadow", "/etc/hostname", "/etc/resolv.conf", "/etc/gitconfig", "/etc/environment", "/sys/kernel"),
            f"/proc/{os.getpid()}/environ",
        ],
        "folders": [
            "/",
            "/usr",
            "/etc",
            "/dev",
            "/opt",
            "/var",
            "/tmp",
            "/run",
            "/dev/shm",
            "/home/agent",
            str(workspace),
        ],
        "abstract": abstract,
        "socket": str(folder / "socket"),
        "pid": os.getpid(),
    }
    replaced = {"@PROBE@": str(probe), "@WANTED@": json.dumps(wanted), "@CANARY@": CANARY[::-1]}
    try:
        with isolation.prepare(listeners=order["listeners"]) as launch:
            argv = [replaced.get(argument, argument) for argument in order["argv"]]
            child = await isolation.spawn(argv, launch=launch)
        async with child:
            while (line := await child.receive_line()) is not None:
                print(line.decode(), flush=True)
            code = await child.wait()
        print(child.stderr.text(), file=sys.stderr)
    finally:
        other.communicate()
        for opened in (tcp, hidden, path_socket):
            opened.close()
    for listener in child.listeners:
        listener.close()
    sys.exit(code)


if __name__ == "__main__":
    anyio.run(main)
