"""Run inside a sandbox, as the agent's shell could: what can be found from here? Prints one JSON object.

Arguments: the canary spelled backwards (so that this process does not find itself), a JSON object of what to try.
"""

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path


def attempt(action: object, *arguments: object) -> str:
    """`done`, or the kernel's word against it."""
    try:
        result = action(*arguments)  # type: ignore[operator]
    except OSError as error:
        return error.strerror or str(error)
    if hasattr(result, "close"):
        result.close()
    return "done"


def connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(address)


def write(folder: str) -> None:
    path = Path(folder, "written")
    path.write_text("x")
    path.unlink()


def processes_with(canary: bytes) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        for name in ("cmdline", "environ"):
            try:
                content = (entry / name).read_bytes()
            except OSError:
                continue
            if canary in content:
                found.append(f"{entry.name}/{name}")
    return found


def open_ports() -> list[int]:
    found = []
    for port in range(1, 65536):
        with socket.socket() as tcp:
            if tcp.connect_ex(("127.0.0.1", port)) == 0 and tcp.getsockname() != tcp.getpeername():
                found.append(port)
    return found


def open_terminal() -> None:
    for fd in os.openpty():
        os.close(fd)


def send_datagram(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect(("192.0.2.1", port))


def status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name + ":"))


def main() -> None:
    canary = sys.argv[1][::-1]
    wanted = json.loads(sys.argv[2])
    credential = subprocess.run(
        ["git", "credential", "fill"],
        input="protocol=https\nhost=tracker.example\n\n",
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        "canary in processes": processes_with(canary.encode()),
        "process count": sum(entry.name.isdigit() for entry in Path("/proc").iterdir()),
        "readable": [path for path in wanted["files"] if attempt(open, path) == "done"],
        "writable": [folder for folder in wanted["folders"] if attempt(write, folder) == "done"],
        "open ports": open_ports(),
        "abstract socket": attempt(connect, "\0" + wanted["abstract"]),
        "path socket": attempt(connect, wanted["socket"]),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "outside": attempt(send_datagram, 80),
        "signal to the host": attempt(os.kill, wanted["pid"], 0),
        "user namespace": subprocess.run(["unshare", "-U", "true"], capture_output=True, check=False).returncode != 0,
        "capabilities": status("CapEff"),
        "no new privileges": status("NoNewPrivs"),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "terminal": attempt(open_terminal),
        "certificates": Path("/etc/ssl/certs").is_dir(),
        "git credential": credential.stdout,
        "host name": socket.gethostname(),
        "descriptors": sorted(
            int(name) for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd", name).exists()
        ),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
