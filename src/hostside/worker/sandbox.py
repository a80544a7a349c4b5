"""Starting one process inside bwrap, with listeners of its own network namespace handed out to the host (D9)."""

import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from hostside.worker.process import STDERR_TAIL_BYTES, Child, LaunchError, RunUser, start_process
from hostside.worker.process_streams import PipeWriter
from hostside.worker.sandbox_args import ETC_DATA, LAUNCHER, Bind, SandboxView, bwrap_arguments, bwrap_path, interpreter
from hostside.worker.sandbox_status import SandboxStatus

START_SECONDS = 10.0
_LAUNCHER_SOURCE = Path(__file__).with_name("launcher.py")
_MESSAGE_BYTES = 4_096


def data_descriptor(content: bytes) -> int:
    """A descriptor of an anonymous file in memory that holds `content`, at its beginning. The caller closes it."""
    fd = os.memfd_create("hostside")
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(os.close, fd)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
        on_failure.pop_all()
    return fd


async def start_sandboxed(
    argv: Sequence[str],
    *,
    view: SandboxView,
    environment: Mapping[str, str],
    cwd: str,
    ports: Sequence[int] = (),
    pass_fds: Sequence[int] = (),
    stdin: bool = False,
    user: RunUser | None = None,
    stderr_limit: int = STDERR_TAIL_BYTES,
) -> Child:
    """Start `argv` in a new sandbox; the child's `listeners` are on the inner 127.0.0.1 at `ports`.

    Raises `LaunchError` when the sandbox, a listener, or (with `ports`) the program cannot start; without `ports` a
    missing program shows in `Child.wait`. Raises `TimeoutError` after 10 seconds. No process is left then.
    """
    program = bwrap_path()
    if program is None:
        raise LaunchError("bwrap is not installed")
    with contextlib.ExitStack() as ours:
        start = _Start(ours)
        command = start.command(argv, view=view, cwd=cwd, ports=ports)
        try:
            # bwrap is pid 1 inside: what it was started with is what /proc/1 shows, so it gets the built environment
            # and, on its command line, nothing but the program.
            child = start_process(
                [program, "--args", str(start.arguments_fd), "--", *command],
                environment=environment,
                cwd=Path("/"),
                stdin=stdin,
                pass_fds=(*start.inherited, *pass_fds),
                user=user,
                stderr_limit=stderr_limit,
            )
        finally:
            start.close_inherited()
        try:
            with anyio.fail_after(START_SECONDS):
                await start.finish(child, len(ports))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await child.aclose()
            raise
    return child


class _Start:
    """The descriptors of one start: those that bwrap inherits, and the host's ends of them."""

    def __init__(self, ours: contextlib.ExitStack) -> None:
        self._ours = ours
        self._theirs = contextlib.ExitStack()
        ours.callback(self._theirs.close)
        self.inherited: list[int] = []
        self._channel: socket.socket | None = None
        self._arguments = b""

        reader, writer = os.pipe()
        self.arguments_fd = self._inherit(reader)
        self._arguments_writer = PipeWriter(writer)
        ours.callback(self._arguments_writer.close)
        reader, writer = os.pipe()
        self._status_fd = self._inherit(writer)
        self._status = SandboxStatus(reader)
        self._on_failure = ours.enter_context(contextlib.ExitStack())
        self._on_failure.callback(self._status.close)

    def command(self, argv: Sequence[str], *, view: SandboxView, cwd: str, ports: Sequence[int]) -> list[str]:
        """The command inside; the arguments that lead there are kept for `finish`."""
        data = [(self._inherit(data_descriptor(text.encode())), path) for path, text in ETC_DATA.items()]
        command = list(argv)
        binds: tuple[Bind, ...] = ()
        if ports:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._ours.callback(self._channel.close)
            channel_fd = self._inherit(theirs.detach())
            data.append((self._inherit(data_descriptor(_LAUNCHER_SOURCE.read_bytes())), LAUNCHER))
            python, binds = interpreter()
            launcher = [python, "-I", "-S", "-B", LAUNCHER, str(channel_fd), ",".join(map(str, ports))]
            command = [*launcher, *command]
        arguments = ["--json-status-fd", str(self._status_fd)]
        arguments += bwrap_arguments(view, cwd=cwd, data=data, binds=binds)
        self._arguments = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
        return command

    def close_inherited(self) -> None:
        self._theirs.close()

    async def finish(self, child: Child, listeners: int) -> None:
        """Let bwrap go on (it waits for its arguments) and take over what comes out of the sandbox."""
        child.attach_sandbox(self._status)
        self._on_failure.pop_all()
        # A bwrap that refuses its first argument no longer reads; its reason is on stderr.
        with contextlib.suppress(anyio.BrokenResourceError):
            await self._arguments_writer.send(self._arguments)
        self._arguments_writer.close()
        if not await self._status.started():
            raise await _not_started(child)
        if self._channel is not None:
            child.listeners = await _receive_listeners(self._channel, listeners, child)

    def _inherit(self, fd: int) -> int:
        self._theirs.callback(os.close, fd)
        self.inherited.append(fd)
        return fd


async def _receive_listeners(channel: socket.socket, count: int, child: Child) -> tuple[socket.socket, ...]:
    channel.setblocking(False)
    await anyio.wait_readable(channel)
    message, fds, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, count, socket.MSG_CMSG_CLOEXEC)
    with contextlib.ExitStack() as on_failure:
        listeners = tuple(on_failure.enter_context(socket.socket(fileno=fd)) for fd in fds)
        if len(listeners) != count:
            raise LaunchError(message.decode("utf-8", "replace")) if message else await _not_started(child)
        # The channel closes when the launcher has become the program; a message is the reason why it has not.
        await anyio.wait_readable(channel)
        if reason := channel.recv(_MESSAGE_BYTES):
            raise LaunchError(reason.decode("utf-8", "replace"))
        on_failure.pop_all()
    return listeners


async def _not_started(child: Child) -> LaunchError:
    await child.stop(grace_seconds=0)
    return LaunchError(f"the sandbox did not start: {child.stderr.text().strip() or 'no reason given'}")
