"""A started process: its streams, its end, and bounded runs of short commands.

Start processes from the event loop's thread only: bwrap's `--die-with-parent` watches the thread, not the process.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from hostside.errors import HostsideError
from hostside.worker.process_identity import kill_group, started_at
from hostside.worker.process_streams import MAX_LINE_BYTES, Head, PipeReader, PipeWriter, Tail
from hostside.worker.sandbox_status import SandboxStatus

STDERR_TAIL_BYTES = 65_536
OPEN_FILES = 8_192
_KILL_SECONDS = 5.0
_DRAIN_SECONDS = 2.0


class LaunchError(HostsideError):
    """The process did not start: the program is missing, or its sandbox could not be set up. None of it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUser:
    """The operating system user that a run's processes are."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The end of a short command. `stdout` is its beginning, `stderr` its end, both cut at the limit."""

    exit_code: int
    """128 + signal number when a signal ended it."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    """Something of `stdout` or `stderr` was left out."""


class Child:
    """One running process with pipes; everything it started ends with it (D9: within bwrap without exception,
    otherwise its process group).

    Use it as an async context manager, or call `aclose`: both kill what still runs. One task reads stdout, one writes
    stdin; `wait`, `stop` and `kill` may be called from any task of the loop.
    """

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        *,
        stdin: PipeWriter | None,
        stdout: PipeReader,
        stderr: PipeReader,
        stderr_limit: int = STDERR_TAIL_BYTES,
    ) -> None:
        self._popen = popen
        self._stdin = stdin
        self._stdout = stdout
        self._stderr_pipe = stderr
        self._sandbox: SandboxStatus | None = None
        self._exit_code: int | None = None
        self._killed = False
        self.listeners: tuple[socket.socket, ...] = ()
        """Listening sockets that only this process reaches (bwrap) or that it was told of; the caller serves and
        closes them."""
        self.listener_addresses: tuple[tuple[str, int], ...] = ()
        """Where the process finds them, in the same order."""
        self.stderr = Tail(stderr_limit)
        """The end of what the child wrote to stderr; `stderr.text(redact)` reads it."""
        self.pid = popen.pid
        self.pid_started_at = started_at(popen.pid) or 0
        """Clock ticks since boot (`process_identity.started_at`); 0 when it had ended already."""
        self._draining = asyncio.get_running_loop().create_task(self._drain_stderr())
        self._services: list[asyncio.Task[None]] = []

    async def send(self, data: bytes) -> None:
        """Write to stdin. Raises `anyio.BrokenResourceError` when the child has closed it or has ended."""
        if self._stdin is None:
            raise anyio.ClosedResourceError
        await self._stdin.send(data)

    def close_stdin(self) -> None:
        if self._stdin is not None:
            self._stdin.close()

    async def receive(self) -> bytes:
        """The next bytes of stdout, `b""` at its end."""
        return await self._stdout.receive()

    async def receive_line(self, max_bytes: int = MAX_LINE_BYTES) -> bytes | None:
        r"""The next line of stdout without `\n`, None at its end (see `PipeReader.receive_line`)."""
        return await self._stdout.receive_line(max_bytes)

    @property
    def exit_code(self) -> int | None:
        """None while it runs (or before somebody waited); 128 + signal number when a signal ended it."""
        return self._exit_code

    async def wait(self) -> int:
        """Wait for the end of the process and of everything inside its sandbox; the exit code.

        Raises `LaunchError` when the sandbox ended without having started the program.
        """
        exit_code = await self.ended()
        if self._sandbox is not None and not self._killed and exit_code < 128 and not self._sandbox.ran:
            raise LaunchError(
                f"the sandbox did not start the program: {self.stderr.text().strip() or 'no reason given'}"
            )
        return exit_code

    async def ended(self) -> int:
        """`wait` without its check: an exit code also where the sandbox failed."""
        while (exit_code := self._exit_code) is None:
            await _exit_of(self.pid)
            self._collect()
        if self._sandbox is not None:
            await self._sandbox.emptied()
        # What the process wrote last may still be in the pipe; somebody outside the group may hold it open for ever.
        with anyio.move_on_after(_DRAIN_SECONDS):
            await asyncio.wait({self._draining})
        return exit_code

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """SIGTERM, then after `grace_seconds` SIGKILL to all of it. Returns when nothing of it runs any more.

        Safe to repeat. Cancelled in its grace it kills at once, and still waits for the end.
        """
        try:
            if self._exit_code is None and grace_seconds > 0 and self._terminate():
                with anyio.move_on_after(grace_seconds):
                    await self.ended()
        finally:
            self.kill()
            with anyio.CancelScope(shield=True), anyio.fail_after(_KILL_SECONDS):
                await self.ended()

    def kill(self) -> None:
        """SIGKILL to the process, its group and its sandbox, without waiting."""
        if self._exit_code is None:
            self._killed = True
            kill_group(self.pid)

    async def aclose(self) -> None:
        """Kill what still runs, wait for its end, close every descriptor but the listeners."""
        try:
            await self.stop(grace_seconds=0)
        finally:
            self._draining.cancel()
            await self._end_services()
            self.close_stdin()
            self._stdout.close()
            self._stderr_pipe.close()
            if self._sandbox is not None:
                self._sandbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def attach_sandbox(self, status: SandboxStatus) -> None:
        """Called once by the launcher of a bwrap process, before anybody else sees the child."""
        self._sandbox = status

    def serve_beside(
        self, service: Callable[[socket.socket], Coroutine[Any, Any, None]], listener: socket.socket
    ) -> None:
        """Run `service` on `listener` until `aclose`, which cancels it, waits for its end and closes the listener."""
        task = asyncio.get_running_loop().create_task(service(listener))
        # Also of one that was cancelled before it began.
        task.add_done_callback(lambda _: listener.close())
        self._services.append(task)

    async def _end_services(self) -> None:
        for task in self._services:
            task.cancel()
        if self._services:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_KILL_SECONDS):
                await asyncio.wait(self._services)

    def _collect(self) -> None:
        if self._exit_code is not None:
            return
        # Not reaped yet, so the number still names this group: what the process left behind ends here.
        kill_group(self.pid)
        code = self._popen.wait()
        self._exit_code = code if code >= 0 else 128 - code

    def _terminate(self) -> bool:
        """SIGTERM; False when there is nobody to ask."""
        self._killed = True
        if self._sandbox is None:
            kill_group(self.pid, signal.SIGTERM)
            return True
        # SIGTERM to bwrap would end the sandbox at once. The program inside is the one to ask.
        programs = self._sandbox.programs()
        for pid in programs:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        return bool(programs)

    async def _drain_stderr(self) -> None:
        with contextlib.suppress(anyio.ClosedResourceError):
            while chunk := await self._stderr_pipe.receive():
                self.stderr.add(chunk)


def start_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    stdin: bool = False,
    pass_fds: Sequence[int] = (),
    user: RunUser | None = None,
    stderr_limit: int = STDERR_TAIL_BYTES,
) -> Child:
    """Start `argv` in its own session with exactly `environment`; stdin is a pipe or `/dev/null`.

    Needs a running event loop. Raises `LaunchError`, then without any process or descriptor left.
    """
    with contextlib.ExitStack() as on_failure, contextlib.ExitStack() as child_ends:

        def pipe(*, host_reads: bool) -> tuple[int, int]:
            reader, writer = os.pipe()
            host, child = (reader, writer) if host_reads else (writer, reader)
            on_failure.callback(os.close, host)
            child_ends.callback(os.close, child)
            if user is not None:
                # /dev/stdin and /dev/fd/N are opened anew by name, which only the owner may do.
                os.fchown(child, user.uid, user.gid)
            return host, child

        host_in, child_in = pipe(host_reads=False) if stdin else (None, subprocess.DEVNULL)
        host_out, child_out = pipe(host_reads=True)
        host_err, child_err = pipe(host_reads=True)
        popen = _popen(argv, environment, cwd, (child_in, child_out, child_err), pass_fds, user)
        on_failure.pop_all()
    _limit(popen.pid)
    return Child(
        popen,
        stdin=None if host_in is None else PipeWriter(host_in),
        stdout=PipeReader(host_out),
        stderr=PipeReader(host_err),
        stderr_limit=stderr_limit,
    )


async def complete(child: Child, *, stdin: bytes, timeout_seconds: float, output_limit_bytes: int) -> Completed:
    """Feed `child`, drain it in bounded memory, and end it: by itself, at the deadline, or on cancellation.

    Whatever happens, the process, its group and its sandbox are gone when this returns or raises.
    """
    head = Head(output_limit_bytes)
    async with child:
        with anyio.move_on_after(timeout_seconds):
            async with anyio.create_task_group() as streams:
                streams.start_soon(_feed, child, stdin)
                streams.start_soon(_drain, child, head)
                await child.ended()
                # The end of the process is the end of its output, unless somebody outside its group holds the pipe.
                streams.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS
        timed_out = child.exit_code is None
        if timed_out:
            await child.stop(grace_seconds=0)
        exit_code = await child.wait()
    return Completed(
        exit_code=exit_code,
        stdout=head.content(),
        stderr=child.stderr.content(),
        timed_out=timed_out,
        truncated=head.truncated or child.stderr.dropped > 0,
    )


async def run_bounded(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    timeout_seconds: float,
    output_limit_bytes: int,
    stdin: bytes = b"",
    user: RunUser | None = None,
) -> Completed:
    """Run one short command outside any sandbox (credentialed git of D15; for a run's own see `RunIsolation.run`).

    Raises `LaunchError` when it cannot start.
    """
    child = start_process(
        argv, environment=environment, cwd=cwd, stdin=bool(stdin), user=user, stderr_limit=output_limit_bytes
    )
    return await complete(child, stdin=stdin, timeout_seconds=timeout_seconds, output_limit_bytes=output_limit_bytes)


def _popen(
    argv: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    stdio: tuple[int, int, int],
    pass_fds: Sequence[int],
    user: RunUser | None,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=cwd,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            pass_fds=pass_fds,
            start_new_session=True,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"cannot start {argv[0]}: {error}") from error


def _limit(pid: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Set from outside, since code between fork and exec is not safe in a process with threads. A sandbox still waits
    # for its arguments now, so everything in it has these limits from its first instruction.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (_smaller(soft, OPEN_FILES), hard))


def _smaller(limit: int, ceiling: int) -> int:
    return ceiling if limit == resource.RLIM_INFINITY else min(limit, ceiling)


async def _exit_of(pid: int) -> None:
    """Wait until our child `pid` has ended, without reaping it: its number stays taken."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        # Old kernels and strict containers have no pidfd.
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT, abandon_on_cancel=True)
        return
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)


async def _feed(child: Child, data: bytes) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await child.send(data)
    child.close_stdin()


async def _drain(child: Child, head: Head) -> None:
    while chunk := await child.receive():
        head.add(chunk)
