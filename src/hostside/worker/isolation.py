"""The one way in which a run starts processes: the agent, workspace git, hooks and shell tools (D9, R-330, R-335)."""

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from hostside.errors import ConfigError
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.network import PROXY_ADDRESS, RunNetwork
from hostside.worker.process import STDERR_TAIL_BYTES, Child, Completed, RunUser, complete, start_process
from hostside.worker.sandbox import data_descriptor, start_sandboxed
from hostside.worker.sandbox_args import INNER_HOME, INNER_PATH, INNER_USER, Bind, SandboxView

FIRST_PORT = 8001
MAX_LISTENERS = PROXY_ADDRESS[1] - FIRST_PORT
_NOTHING: Mapping[str, str] = MappingProxyType({})
_KEPT_INSIDE = frozenset({"LANG", "TERM", "COLORTERM", "TZ"})


class Launch:
    """What is decided before a process starts because its arguments name it: addresses to serve on, data to read.

    Good for one `RunIsolation.spawn`, which uses it up; close it (it is a context manager) when that is not reached.
    """

    def __init__(self, *, listeners: int, sandboxed: bool, user: RunUser | None) -> None:
        if not 0 <= listeners <= MAX_LISTENERS:
            raise ValueError(f"at most {MAX_LISTENERS} listeners")
        self._stack = contextlib.ExitStack()
        self._user = user
        self._sockets: tuple[socket.socket, ...] = ()
        self.data_fds: list[int] = []
        if sandboxed:
            # Its own network namespace: these ports are free by construction.
            self.addresses = tuple(("127.0.0.1", FIRST_PORT + index) for index in range(listeners))
            return
        with contextlib.ExitStack() as on_failure:
            self._sockets = tuple(
                on_failure.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(listeners)
            )
            self._stack.push(on_failure.pop_all())
        self.addresses = tuple(listener.getsockname() for listener in self._sockets)

    addresses: tuple[tuple[str, int], ...]
    """Host and port of each listener, as the process inside reaches it."""

    def add_data(self, content: bytes) -> str:
        """The path (`/dev/fd/N`) under which the process reads `content`, which is on no disk and in no argument.

        What fits is given as a pipe: read once, gone afterwards. More than a pipe holds is an anonymous file.
        """
        fd = self._filled_pipe(content)
        if fd is None:
            fd = data_descriptor(content)
            self._stack.callback(os.close, fd)
        self.data_fds.append(fd)
        return f"/dev/fd/{fd}"

    def take_listeners(self) -> tuple[socket.socket, ...]:
        """Hand the sockets over; `close` then leaves them alone. Empty for a sandbox, which opens its own."""
        taken = tuple(listener.dup() for listener in self._sockets)
        self._sockets = ()
        return taken

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _filled_pipe(self, content: bytes) -> int | None:
        reader, writer = os.pipe()
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(os.close, reader)
            try:
                # Nobody reads yet: a full pipe must not block the loop.
                os.set_blocking(writer, False)
                written = os.write(writer, content) if content else 0
            except BlockingIOError:
                return None
            finally:
                os.close(writer)
            if written < len(content):
                return None
            if self._user is not None:
                # /dev/fd/N is opened anew by name, which only the owner of the pipe may do.
                os.fchown(reader, self._user.uid, self._user.gid)
            self._stack.push(on_failure.pop_all())
        return reader


class RunIsolation:
    """One run's walls. Every process of the run starts through `spawn` or `run`, at one level, with one environment
    contract, and sees the same workspace and home."""

    def __init__(
        self,
        *,
        level: IsolationLevel,
        workspace: Path,
        home: Path,
        environment: EnvironmentSource,
        ro_binds: Sequence[Bind] = (),
        rw_binds: Sequence[Bind] = (),
        path_prefix: Sequence[Path] = (),
        user: RunUser | None = None,
        started: Callable[[Child], None] | None = None,
        network: RunNetwork | None = None,
    ) -> None:
        """`workspace` and `home`: existing folders, neither inside the other, owned by `user` where one is given;
        `home` belongs to this run alone (mode 0700, C-26). `ro_binds` and `rw_binds`: what else exists inside.
        `path_prefix`: host folders that come first in PATH; each must be visible inside. `started` hears of each process,
        so that it can be written down and ended should the host be killed. `network`: the way out of its processes at
        level bwrap, where there is none but this; without it there is none at all.

        Raises `ConfigError` (`invalid_configuration`) when the folders do not keep the run apart.
        """
        if level is IsolationLevel.USER and (user is None or user.uid == os.geteuid()):
            raise _misplaced("isolation level user needs an operating system user other than the host's own")
        if level is IsolationLevel.HOME and user is not None:
            raise _misplaced("isolation level home runs as the host's own user")
        self.level = level
        self.workspace = workspace.resolve(strict=True)
        self.home = home.resolve(strict=True)
        _check_folders(self.workspace, self.home)
        self._user = user
        self._started = started
        self._source = environment
        self._network = network if self._sandboxed else None
        self._view = SandboxView(
            workspace=self.workspace,
            home=self.home,
            ro_binds=tuple(_checked(bind, self.workspace) for bind in ro_binds),
            rw_binds=tuple(_checked(bind, self.workspace) for bind in rw_binds),
        )
        self._path_prefix = tuple(self.path_inside(path) for path in path_prefix)

    @property
    def home_inside(self) -> str:
        """The run's home as its processes see it."""
        return INNER_HOME if self._sandboxed else str(self.home)

    def path_inside(self, path: Path) -> str:
        """Where `path` of the host is found inside. Raises `ValueError` when it does not exist there.

        Purely by name: a symlink in the workspace is followed inside, within the walls.
        """
        normal = Path(os.path.normpath(path))
        if not self._sandboxed:
            return str(normal)
        if normal.is_relative_to(self.workspace) or normal.is_relative_to("/usr"):
            return str(normal)
        home = Bind(source=self.home, target=INNER_HOME)
        for bind in (home, *self._view.ro_binds, *self._view.rw_binds):
            if normal.is_relative_to(bind.source):
                return str(Path(bind.target) / normal.relative_to(bind.source))
        raise ValueError(f"not visible to the run: {path}")

    def environment(self, extras: Mapping[str, str] = _NOTHING) -> dict[str, str]:
        """The complete environment of one process (`child_environment.build_environment`)."""
        source = self._source
        base = dict(source.base)
        if self._sandboxed:
            base = {name: value for name, value in base.items() if name in _KEPT_INSIDE or name.startswith("LC_")}
            base = {"LANG": "C.UTF-8", **base, "PATH": os.pathsep.join(INNER_PATH), "TMPDIR": "/tmp"}
            base |= {"USER": INNER_USER, "LOGNAME": INNER_USER, "SHELL": "/bin/bash"}
        if self._path_prefix:
            base["PATH"] = os.pathsep.join((*self._path_prefix, *filter(None, (base.get("PATH"),))))
        return source.build(home=self.home_inside, extras=extras, base=base)

    def prepare(self, *, listeners: int = 0) -> Launch:
        """Decide addresses and data of one process before its arguments are written."""
        return Launch(listeners=listeners, sandboxed=self._sandboxed, user=self._user)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        extras: Mapping[str, str] = _NOTHING,
        stdin: bool = True,
        launch: Launch | None = None,
        pass_fds: Sequence[int] = (),
        stderr_limit: int = STDERR_TAIL_BYTES,
        asks_network: bool = True,
    ) -> Child:
        """Start a process. `cwd`: a host path, the workspace by default. `launch` is used up in any case.
        `asks_network` False: it asks for nothing, so where its policy lists nothing it needs nobody to say so.

        The child's listeners answer at `launch.addresses`; connections made before the host serves wait in the
        backlog. The network serves the process until the child is closed. Raises `LaunchError`, `TimeoutError` (10
        seconds) or `ValueError` (`cwd` outside); then nothing runs.
        """
        with launch or self.prepare() as plan:
            network = self._way_out(asks_network)
            environment = self.environment(extras if network is None else {**self._pointed_at(network), **extras})
            inside = self.path_inside(self.workspace if cwd is None else cwd)
            fds = (*pass_fds, *plan.data_fds)
            if self._sandboxed:
                child = await start_sandboxed(
                    argv,
                    view=self._view,
                    environment=environment,
                    cwd=inside,
                    ports=[port for _, port in (*plan.addresses, *([PROXY_ADDRESS] if network else ()))],
                    pass_fds=fds,
                    stdin=stdin,
                    user=self._user,
                    stderr_limit=stderr_limit,
                )
                if network is not None:
                    *handed_out, way_out = child.listeners
                    child.listeners = tuple(handed_out)
                    child.serve_beside(network.serve, way_out)
            else:
                child = start_process(
                    argv,
                    environment=environment,
                    cwd=Path(inside),
                    stdin=stdin,
                    pass_fds=fds,
                    user=self._user,
                    stderr_limit=stderr_limit,
                )
                child.listeners = plan.take_listeners()
            child.listener_addresses = plan.addresses
        if self._started is not None:
            self._started(child)
        return child

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_seconds: float,
        output_limit_bytes: int,
        cwd: Path | None = None,
        extras: Mapping[str, str] = _NOTHING,
        stdin: bytes = b"",
        asks_network: bool = True,
    ) -> Completed:
        """Run a short command of the run (git, a hook, a shell tool) to its end, its deadline or cancellation.

        Its processes are gone when this returns or raises. Raises as `spawn` does.
        """
        child = await self.spawn(
            argv,
            cwd=cwd,
            extras=extras,
            stdin=bool(stdin),
            stderr_limit=output_limit_bytes,
            asks_network=asks_network,
        )
        return await complete(
            child, stdin=stdin, timeout_seconds=timeout_seconds, output_limit_bytes=output_limit_bytes
        )

    def _way_out(self, asks_network: bool) -> RunNetwork | None:
        network = self._network
        return None if network is None or (network.policy.is_empty and not asks_network) else network

    def _pointed_at(self, network: RunNetwork) -> Mapping[str, str]:
        return network.configuration(self.home_inside)[0]

    @property
    def _sandboxed(self) -> bool:
        return self.level is IsolationLevel.BWRAP


def _check_folders(workspace: Path, home: Path) -> None:
    if workspace.is_relative_to(home) or home.is_relative_to(workspace):
        raise _misplaced("the run's home and its workspace lie inside one another")
    if home.stat().st_mode & 0o077:
        raise _misplaced("the run's home is open to other users")


def _checked(bind: Bind, workspace: Path) -> Bind:
    target = Path(os.path.normpath(bind.target))
    # The agent could have put a symlink where the mount would go.
    if not target.is_absolute() or target.is_relative_to(workspace) or target.is_relative_to(INNER_HOME):
        raise _misplaced(f"a mount at {bind.target} would lie in a folder that the agent writes")
    return Bind(source=bind.source.resolve(strict=True), target=str(target))


def _misplaced(message: str) -> ConfigError:
    return ConfigError(
        "invalid_configuration", message, remedy="Give the run a home of its own, mode 0700, outside its workspace."
    )
