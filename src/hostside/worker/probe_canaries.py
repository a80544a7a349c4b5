"""What the probe looks for: planted secrets, sockets and a process, as a host's user would have them; gone afterwards.

Nothing of the real user's is touched: the planted home is a folder of its own.
"""

import asyncio
import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute

_IPC_CREAT_EXCLUSIVE = 0o3000
_IPC_RMID = 0
_SHM_BYTES = 4096
_KEY_SECONDS = 300
_KEYCTL_UNLINK, _KEYCTL_SET_TIMEOUT = 9, 15
_USER_KEYRING = -4
_KEY_CALLS = {"x86_64": (248, 250), "aarch64": (217, 219), "riscv64": (217, 219)}
# A reply of one key that signs nothing: type, length, then an empty blob and a comment.
_ONE_KEY = b"\x0c\0\0\0\x01" + b"\0\0\0\x04none" + b"\0\0\0\x05probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Where everything is. `files` by kind of secret; `sockets` by path; `key` and `shm` None where the kernel has none."""

    nonce: str
    home: Path
    files: Mapping[str, Path]
    environment: Mapping[str, str]
    sockets: tuple[Path, ...]
    tcp: int
    udp: int
    key: str
    shm: int | None

    def canary(self, kind: str) -> str:
        """Return the secret of that kind."""
        return f"{kind}.{self.nonce}"


@contextlib.asynccontextmanager
async def planted(folder: Path) -> AsyncIterator[Planted]:
    """Plant everything below `folder` (which other users may walk through) while the block runs.

    Raises `OSError` when a file, socket or process cannot be made; what was made is removed then too.
    """
    nonce = secrets.token_hex(16)

    def canary(kind: str) -> str:
        return f"{kind}.{nonce}"

    home = folder / "host-home"
    home.mkdir(mode=0o700)
    files = _files(home, folder, canary)
    async with contextlib.AsyncExitStack() as stack:
        paths = [await stack.enter_async_context(_unix_server(home / "ssh-agent.sock", _agent_reply, 0o600))]
        banner = canary("path-socket").encode()
        paths.append(await stack.enter_async_context(_unix_server(folder / "lax.sock", lambda _: banner, 0o777)))
        abstract = f"\0hostside-probe-{nonce[:8]}"
        await stack.enter_async_context(_unix_server(abstract, lambda _: banner, None))
        service = canary("tcp-service").encode()
        tcp = await stack.enter_async_context(_tcp_server(lambda _: service))
        udp = await stack.enter_async_context(_udp_server(canary("udp-service").encode()))
        stack.enter_context(_process(canary, home))
        yield Planted(
            nonce=nonce,
            home=home,
            files=files,
            environment=_environment(canary, home),
            sockets=tuple(path for path in paths if isinstance(path, Path)),
            tcp=tcp,
            udp=udp,
            key=stack.enter_context(_key(canary("kernel-key"))),
            shm=stack.enter_context(_shared_memory(canary("shared-memory").encode())),
        )


def _environment(canary: Callable[[str], str], home: Path) -> dict[str, str]:
    names = ("GH_TOKEN", "GITHUB_TOKEN", "LINEAR_API_KEY", "GITEA_TOKEN", "AWS_SECRET_ACCESS_KEY", "X_CUSTOM_SECRET")
    # The last one hides in a name that is handed on: only its value tells.
    planted = {name: canary("environment-secret") for name in (*names, "LC_HOSTSIDE_PROBE")}
    return {**planted, "SSH_AUTH_SOCK": str(home / "ssh-agent.sock"), "GIT_ASKPASS": canary("ask-pass")}


def _files(home: Path, folder: Path, canary: Callable[[str], str]) -> dict[str, Path]:
    contents = {
        "file-secret": (home / ".config/secrets/api-key", "{}\n"),
        "keyring-file": (home / ".local/share/keyrings/login.keyring", "[keyring]\nsecret={}\n"),
        "git-credential": (home / ".git-credentials", "https://probe:{}@tracker.example\n"),
        "netrc-password": (home / ".netrc", "machine tracker.example login probe password {}\n"),
        "gh-login": (home / ".config/gh/hosts.yml", "github.com:\n    user: probe\n    oauth_token: {}\n"),
        "ssh-key": (home / ".ssh/id_probe", "{}\n"),
        "model-key-file": (home / ".config/model/key", "{}\n"),
        "open-file": (folder / "open-to-all", "{}\n"),
    }
    for kind, (path, text) in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(canary(kind)), encoding="utf-8")
        path.chmod(0o600)
    (folder / "open-to-all").chmod(0o644)
    (home / ".gitconfig").write_text("[credential]\n\thelper = store\n", encoding="utf-8")
    # What is open to all is no secret of the host's user.
    return {kind: path for kind, (path, _) in contents.items() if kind != "open-file"}


@contextlib.contextmanager
def _process(canary: Callable[[str], str], home: Path) -> Iterator[None]:
    """A process of the host's user with a secret in its environment and its arguments. It ends with its input."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", "read line", "sh", canary("process-arguments")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "PLANTED": canary("process-environment")},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@contextlib.asynccontextmanager
async def _unix_server(
    path: Path | str, reply: Callable[[bytes], bytes], mode: int | None
) -> AsyncIterator[Path | str]:
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.bind(str(path))
        if mode is not None:
            os.chmod(path, mode)
        async with await asyncio.start_unix_server(_answering(reply), sock=listener):
            yield path
    if isinstance(path, Path):
        path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def _tcp_server(reply: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    async with await asyncio.start_server(_answering(reply), "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def _answering(
    reply: Callable[[bytes], bytes],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if asked := await reader.read(4096):
                writer.write(reply(asked))
                await writer.drain()
        writer.close()

    return answer


@contextlib.asynccontextmanager
async def _udp_server(answer: bytes) -> AsyncIterator[int]:
    async with await anyio.create_udp_socket(local_host="127.0.0.1") as datagrams, anyio.create_task_group() as tasks:

        async def reply() -> None:
            async for _, (host, port) in datagrams:
                await datagrams.sendto(answer, host, port)

        tasks.start_soon(reply)
        yield datagrams.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def _agent_reply(asked: bytes) -> bytes:
    if asked[4:5] != b"\x0b":
        return b"\0\0\0\x01\x05"  # SSH_AGENT_FAILURE
    return len(_ONE_KEY).to_bytes(4, "big") + _ONE_KEY


@contextlib.contextmanager
def _shared_memory(content: bytes) -> Iterator[int | None]:
    """A segment open to all, which vanishes with this process however that ends; None where the kernel gives none."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(0, _SHM_BYTES, _IPC_CREAT_EXCLUSIVE | 0o666)
    address = libc.shmat(segment, None, 0) if segment >= 0 else ctypes.c_void_p(-1).value
    if segment >= 0:
        libc.shmctl(segment, _IPC_RMID, None)
    if address == ctypes.c_void_p(-1).value:
        yield None
        return
    try:
        ctypes.memmove(ctypes.c_void_p(address), content, len(content))
        yield segment
    finally:
        libc.shmdt(ctypes.c_void_p(address))


@contextlib.contextmanager
def _key(content: str) -> Iterator[str]:
    """A key in this user's keyring, with an end of its own; its name in any case."""
    name = f"hostside-probe-{secrets.token_hex(4)}"
    libc = ctypes.CDLL(None, use_errno=True)
    add_key, keyctl = _KEY_CALLS.get(os.uname().machine, (None, None))
    key = (
        -1
        if add_key is None
        else libc.syscall(add_key, b"user", name.encode(), content.encode(), len(content), _USER_KEYRING)
    )
    if key > 0:
        libc.syscall(keyctl, _KEYCTL_SET_TIMEOUT, key, _KEY_SECONDS)
    try:
        yield name
    finally:
        if key > 0:
            libc.syscall(keyctl, _KEYCTL_UNLINK, key, _USER_KEYRING)
