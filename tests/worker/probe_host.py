"""A host that asks what an agent could reach, and prints the report as JSON.

    probe_host.py JSON     {"agent", "level", "executable", "user": [uid, gid] or null, "state": [...], "key": bool}

`key`: something has put a key into the keyring of the session that this host was started in.
"""

import ctypes
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import anyio

from hostside.worker.agent_probe import probe_as_agent
from hostside.worker.host_hardening import make_undumpable
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.process import RunUser

ADD_KEY = {"x86_64": 248, "aarch64": 217}
KEYCTL = {"x86_64": 250, "aarch64": 219}
SESSION_KEYRING, JOIN = -3, 1
NO_KEYRING = 77


def plant_session_key() -> None:
    """Leave a key in a session keyring of this process's own, as a login does."""
    libc, machine = ctypes.CDLL(None, use_errno=True), os.uname().machine
    libc.syscall(KEYCTL[machine], JOIN, None)
    added = libc.syscall(ADD_KEY[machine], b"user", b"hostside-test", b"secret", 6, SESSION_KEYRING)
    if added <= 0:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(NO_KEYRING)


async def main() -> None:
    order = json.loads(sys.argv[1])
    if order["key"]:
        plant_session_key()
    else:
        make_undumpable()
    report = await probe_as_agent(
        order["agent"],
        level=IsolationLevel(order["level"]),
        executable=Path(order["executable"]),
        host_environment=os.environ,
        user=RunUser(uid=order["user"][0], gid=order["user"][1]) if order["user"] else None,
        state=[Path(path) for path in order["state"]],
    )
    unexpected = [finding.kind for finding in report.unexpected]
    print(json.dumps({**asdict(report), "unexpected": unexpected}))


if __name__ == "__main__":
    anyio.run(main)
