"""What one attempt of the probe is made of: bounded reads, connections and commands, and the record of what worked.

Part of the program that runs where the agent would (`probe_program`): standard library, Python 3.9 or newer. Attempts
never raise for what the kernel refuses, and print nothing.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import select
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import Any

EXAMPLES = 4
WAYS = 8
FILE_BYTES = 65_536
TABLE_BYTES = 1 << 22
COMMAND_SECONDS = 10
SOCKET_SECONDS = 0.5
REQUEST_SECONDS = 5


class Found:
    """Everything reached, by kind: where (a few examples), how often, and what could be done with it."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.kinds: dict[str, dict[str, Any]] = {}
        self.surface: list[str] = []
        self.notes: list[str] = []
        # Spelled backwards in the plan, so that the probe does not find itself.
        self._canary = re.compile(rb"([a-z-]{2,40})[.]" + plan["nonce_reversed"][::-1].encode())

    def reached(self, kind: str, where: str, did: str) -> None:
        """Record one success."""
        entry = self.kinds.setdefault(kind, {"where": [], "count": 0, "did": []})
        entry["count"] += 1
        if where not in entry["where"] and len(entry["where"]) < EXAMPLES:
            entry["where"].append(where)
        if did not in entry["did"] and len(entry["did"]) < WAYS:
            entry["did"].append(did)

    def canaries(self, content: bytes | None) -> list[str]:
        """The kinds of planted secrets in `content`."""
        return sorted({match.decode() for match in self._canary.findall(content or b"")})

    def is_own(self, path: str) -> bool:
        """Whether `path` lies in a folder that the run has to itself."""
        real = os.path.realpath(path)
        return any(real == root or real.startswith(root + "/") for root in self.plan["own_roots"])


# -- files


def read(path: str, size: int = FILE_BYTES, offset: int = 0) -> bytes | None:
    """The beginning of a file, or None."""
    try:
        # A pipe or a device must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        if offset:
            return os.pread(descriptor, size, offset)
        content = b""
        while len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
        return content
    except OSError:
        return None
    finally:
        os.close(descriptor)


def lines(path: str, size: int = TABLE_BYTES) -> list[str]:
    """The lines of a table in /proc; none where it cannot be read."""
    return (read(path, size) or b"").decode("utf-8", "replace").splitlines()


def link(path: str) -> str:
    """Where a link leads, or nothing."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def names(path: str) -> list[str]:
    """What a folder holds, as far as it can be listed."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def entries(folder: str) -> list[os.DirEntry[str]]:
    """As `names`, with what the listing tells of each."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def writes(path: str) -> bool:
    """Whether it could be written; nothing is."""
    if os.path.isdir(path):
        return os.access(path, os.W_OK)
    return done(lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)))


def creates(folder: str) -> bool:
    """Whether a file can be made there; it is removed at once."""
    path = os.path.join(folder, f".probe-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return done(lambda: os.close(os.open(path, flags, 0o600))) and done(os.unlink, path)


# -- processes and commands


def done(action: Callable[..., object], *arguments: object) -> bool:
    """Whether the kernel let it happen."""
    try:
        action(*arguments)
    except OSError:
        return False
    return True


def forked(action: Callable[[], bool]) -> bool:
    """The answer of `action` in a process of its own, whose end undoes what it did to itself."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if action() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def ran(command: Iterable[str], home: str | None = None, given: bytes = b"") -> bytes | None:
    """What a program printed; None when it is missing, failed or took too long. `home` stands in for the agent's."""
    environment = dict(os.environ)
    if home is not None:
        environment.update(HOME=home, XDG_CONFIG_HOME=f"{home}/.config", GH_CONFIG_DIR=f"{home}/.config/gh")
    try:
        ended = subprocess.run(
            list(command),
            input=given,
            env=environment,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout if ended.returncode == 0 else None


# -- sockets


def connects(address: str, kind: int) -> bool:
    """Whether a Unix socket takes a connection, which ends at once."""
    with socket.socket(socket.AF_UNIX, kind) as unix:
        unix.settimeout(SOCKET_SECONDS)
        return done(unix.connect, address)


def agent_keys(path: str) -> int | None:
    """How many keys an ssh agent offers; None when it is none."""
    with socket.socket(socket.AF_UNIX) as unix:
        unix.settimeout(SOCKET_SECONDS)
        try:
            unix.connect(path)
            unix.sendall(b"\0\0\0\1\x0b")  # SSH_AGENTC_REQUEST_IDENTITIES
            answer = unix.recv(9)
        except OSError:
            return None
    return int.from_bytes(answer[5:9], "big") if answer[4:5] == b"\x0c" else None


def open_port(address: tuple[str, int]) -> bool:
    """Whether a TCP port takes a connection, which ends at once."""
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as tcp:
        tcp.setblocking(False)
        tcp.connect_ex(address)
        _, connected, _ = select.select([], [tcp], [], SOCKET_SECONDS)
        if not connected or tcp.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        try:  # a scan may connect a socket to itself
            return bool(tcp.getsockname() != tcp.getpeername())
        except OSError:
            return False


def listening(path: str, state: str = "0A") -> list[int]:
    """The ports of a table like /proc/net/tcp whose sockets have that state."""
    rows = [line.split() for line in lines(path)[1:]]
    return sorted({int(row[1].rsplit(":", 1)[1], 16) for row in rows if len(row) > 3 and row[3] == state})


def received(sock: socket.socket) -> bytes:
    """What comes next, or nothing."""
    try:
        return sock.recv(4096)
    except OSError:
        return b""


def routed(address: str) -> bool:
    """Whether there is a way to an address beyond this machine. A datagram socket connects without sending."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if address.startswith("127.") or address == "::1":
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as datagram:
            return done(datagram.connect, (address, 53))
    except OSError:
        return False


def sent(port: int, content: bytes) -> bytes:
    """The first answer to `content` on a TCP port of this machine."""
    with socket.socket() as tcp:
        tcp.settimeout(REQUEST_SECONDS)
        return received(tcp) if done(tcp.connect, ("127.0.0.1", port)) and done(tcp.sendall, content) else b""


# -- HTTP


def request(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    """Status and beginning of the answer; 0 where there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_SECONDS)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read(FILE_BYTES)
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def initialize(port: int, token: str | None, changes: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """What an MCP endpoint answers to a client's first request."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **(changes or {})}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    told = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told}).encode()
    return request(port, "POST", "/mcp", headers, body)
