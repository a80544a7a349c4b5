"""The real environment of an agent with a probe in the agent's place: what could its shell reach on this machine? (D9, D24)

Everything is as a run makes it - walls, environment, run edge with its token, model port - and beside it stands a second
run. Secrets of every kind are planted around it; nothing of the real user's is changed or printed.
"""

import contextlib
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread

from hostside.core.gateway import Gateway
from hostside.core.redaction import Redactor
from hostside.store.sessions import TokenKind, new_token
from hostside.worker import claude_command, codex_launch, probe_attempts, probe_peers, probe_program
from hostside.worker.agent import AgentSettings, AgentTask
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation import Launch, RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.model_provider import ANTHROPIC, OPENAI
from hostside.worker.model_proxy import agent_base_url
from hostside.worker.network import NOTHING_LISTED, PROXY_ADDRESS, NetworkPlan, furnish_home, open_networks
from hostside.worker.probe_canaries import Planted, planted
from hostside.worker.probe_report import ProbeFailed, ProbeReport, read_report
from hostside.worker.probe_world import SERVER_ID, ProbeSession, ProbeWorld, stub_model, utc_now
from hostside.worker.process import Child, RunUser
from hostside.worker.removal import remove_tree
from hostside.worker.run_edge import edge_url, run_edge
from hostside.worker.run_model import model_upstream, run_model
from hostside.worker.sandbox_args import ETC_DATA, ETC_SHOWN, INNER_HOME, interpreter

Agent = Literal["claude", "codex"]
WALK_SECONDS = 10.0
_OUTPUT_BYTES = 1_000_000
_STDERR_BYTES = 4_096
_LONGEST_PLACE = 60
_ARCHIVE = "probe.pyz"
_SYSTEM_ROOTS = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/")
_PRIVATE = ("/tmp", "/run", "/dev/shm")
_SHOWN = ("/opt/agent", "/opt/codex", "/opt/hostside")
_PROVIDERS = {"claude": (ANTHROPIC, ""), "codex": (OPENAI, "/v1")}
_OWN = ("the run's edge, with its own token", "the run's model port, with its own model token")
_WAY_OUT = "the run's way out, which refuses by name what is not listed"


async def probe_as_agent(
    agent: Agent,
    *,
    level: IsolationLevel,
    executable: Path,
    host_environment: Mapping[str, str],
    user: RunUser | None = None,
    network: NetworkPlan | None = None,
    state: Sequence[Path] = (),
    timeout_seconds: float = 180.0,
) -> ProbeReport:
    """Start the environment of `agent` at `level` with a probe in it, and return what that reached.

    `executable`: the agent's native binary, which is shown but not run. `host_environment`: the host's variables, as a
    run gets them. `network`: that of a run, of which the agent's policy is served; None lists nothing. `state`: the real
    state folder and its files, which the probe tries to open. Takes about 5 seconds at bwrap; elsewhere files are looked
    at for up to 10 seconds.

    Raises `ProbeFailed` when the probe proves nothing, `LaunchError` or `ConfigError` as a run would.
    """
    # The path of a socket has at most 107 bytes.
    place = None if len(tempfile.gettempdir()) <= _LONGEST_PLACE else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="hostside-as-agent-", dir=place)).resolve()
    # Another user has to walk through; what is private is private by itself.
    folder.chmod(0o755)
    try:
        with anyio.fail_after(timeout_seconds):
            async with planted(folder) as secrets:
                with ProbeWorld(folder, secrets) as world:
                    bench = _Bench(
                        agent=agent,
                        level=level,
                        executable=executable,
                        user=user,
                        network=network,
                        secrets=secrets,
                        world=world,
                    )
                    return await bench.probe(host_environment, state)
    except TimeoutError:
        raise ProbeFailed("the probe did not end in time") from None
    except ExceptionGroup as group:  # what serves beside the probe stands in task groups
        raise _sole(group) from None
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_tree, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    agent: Agent
    level: IsolationLevel
    executable: Path
    user: RunUser | None
    network: NetworkPlan | None
    secrets: Planted
    world: ProbeWorld

    async def probe(self, host_environment: Mapping[str, str], state: Sequence[Path]) -> ProbeReport:
        ours, beside = self._isolation("run", host_environment), self._isolation("other", host_environment)
        async with self._second_run(beside) as (other, other_port), stub_model() as origin:
            provider, base = _PROVIDERS[self.agent]
            task = self._task(ours, await self.world.session("ours", ours.workspace), origin + base)
            with ours.prepare(listeners=2) as launch:
                plan = await self._plan(task, launch, other, state)
                # In a network of its own the other run has the same port: only its token can be tried.
                plan["other_edge"] = other_port if other_port not in (plan["edge"], plan["model"]) else None
                child = await self._start(task, launch, plan)
            async with contextlib.AsyncExitStack() as serving:
                await serving.enter_async_context(child)
                for listener in child.listeners:
                    serving.callback(listener.close)
                edge, model = child.listeners
                await serving.enter_async_context(run_edge(task, [edge], launch.addresses[0]))
                upstream = model_upstream(task.settings, provider)
                await serving.enter_async_context(run_model(task, model, launch.addresses[1], upstream))
                return read_report(self.level, await _output(child), own=self._own)

    @property
    def _walled(self) -> bool:
        return self.level is IsolationLevel.BWRAP

    @property
    def _own(self) -> tuple[str, ...]:
        return (*_OWN, _WAY_OUT) if self._walled else _OWN

    def _isolation(self, name: str, host_environment: Mapping[str, str]) -> RunIsolation:
        place = self.world.folder / name
        place.mkdir(mode=0o755)
        for folder in (place / "workspace", place / "home"):
            folder.mkdir(mode=0o700)
            self._hand_over(folder)
        binds = (claude_command.claude_binds if self.agent == "claude" else codex_launch.codex_binds)(self.executable)
        hidden = self.secrets.environment["LC_HOSTSIDE_PROBE"]
        source = EnvironmentSource(
            base={**host_environment, **self.secrets.environment},
            secret_values=frozenset({hidden}),
            run_facts={"HOSTSIDE_RUN_ID": f"r-{name}"},
        )
        network = open_networks(
            self.network or NOTHING_LISTED, event=lambda _name, _facts: None, redactor=Redactor()
        ).agent
        if self._walled:
            furnish_home(place / "home", network.configuration(INNER_HOME)[1], self.user)
        return RunIsolation(
            level=self.level,
            workspace=place / "workspace",
            home=place / "home",
            environment=source,
            ro_binds=binds,
            user=self.user,
            network=network,
        )

    def _hand_over(self, path: Path) -> None:
        if self.user is not None:
            os.chown(path, self.user.uid, self.user.gid)

    def _task(self, isolation: RunIsolation, session: ProbeSession, upstream: str) -> AgentTask:
        world, session_id = self.world, session.session_id

        async def resolve(text: str) -> Gateway | None:
            record = world.sessions.authenticate(text, server_id=SERVER_ID, kind=TokenKind.EDGE, now=utc_now())
            return session.gateway if record is not None and record.session_id == session_id else None

        settings = AgentSettings(
            kind=self.agent,
            executable=self.executable,
            version=None,
            model=None,
            model_base_url=upstream,
            model_key=self.secrets.canary("model-key"),
            native_tools="workspace",
            turn_timeout_seconds=60.0,
            stall_timeout_seconds=60.0,
            start_timeout_seconds=30.0,
            max_turns=1,
        )
        return AgentTask(
            gateway=session.gateway,
            isolation=isolation,
            workspace=isolation.workspace,
            home=isolation.home,
            prompt="",
            token=session.token,
            resolve_token=resolve,
            model=session.model,
            settings=settings,
            event=lambda _name, _facts: None,
        )

    @contextlib.asynccontextmanager
    async def _second_run(self, isolation: RunIsolation) -> AsyncIterator[tuple[ProbeSession, int]]:
        """Another run that waits, its edge served; its session, and its port as its own agent sees it."""
        session = await self.world.session("other", isolation.workspace)
        task = self._task(isolation, session, "http://127.0.0.1:9")
        with isolation.prepare(listeners=1) as launch:
            child = await isolation.spawn(["/usr/bin/cat"], launch=launch)
        async with contextlib.AsyncExitStack() as serving:
            await serving.enter_async_context(child)
            for listener in child.listeners:
                serving.callback(listener.close)
            await serving.enter_async_context(run_edge(task, child.listeners, launch.addresses[0]))
            yield session, launch.addresses[0][1]

    async def _plan(
        self, task: AgentTask, launch: Launch, other: ProbeSession, state: Sequence[Path]
    ) -> dict[str, Any]:
        secrets, world = self.secrets, self.world
        (_, edge), (_, model) = launch.addresses
        expired = await world.session("ended", task.workspace)
        world.sessions.revoke(expired.session_id)
        own_roots = [str(task.workspace), task.isolation.home_inside]
        if self._walled:
            own_roots += [*_PRIVATE, *_SHOWN, *ETC_DATA]
        etc = [f"/etc/{name}" for name in ETC_SHOWN] if self._walled else []
        planted_state = [world.state, *world.state.iterdir()]
        return {
            "nonce_reversed": secrets.nonce[::-1],
            "own_roots": own_roots,
            "system_roots": [*_SYSTEM_ROOTS, *etc],
            "walk_seconds": WALK_SECONDS,
            "tokens": {
                "own": task.token,
                "a wrong token": new_token(),
                "the token of a run that ended": expired.token,
                "another run's token": other.token,
                "its model token": task.model.token,
            },
            "model_tokens": {
                "own": task.model.token,
                "a wrong token": new_token(),
                "the model token of a run that ended": expired.model.token,
                "another run's model token": other.model.token,
                "its edge token": task.token,
            },
            "edge": edge,
            "model": model,
            "model_paths": [path for path, route in _PROVIDERS[self.agent][0].routes.items() if route.asks],
            "way_out": PROXY_ADDRESS[1] if self._walled else None,
            "own": self._own,
            "private": _PRIVATE if self._walled else (),
            "read_only": [*_SHOWN, *ETC_DATA] if self._walled else (),
            "tcp": secrets.tcp,
            "udp": secrets.udp,
            "sockets": [str(path) for path in secrets.sockets],
            "files": {kind: str(path) for kind, path in secrets.files.items()},
            "home": str(secrets.home),
            "state": [str(path) for path in (*planted_state, *state)],
            "key": secrets.key,
            "shm": secrets.shm,
        }

    async def _start(self, task: AgentTask, launch: Launch, plan: Mapping[str, Any]) -> Child:
        isolation = task.isolation
        archive = isolation.home / _ARCHIVE
        _write_archive(archive)
        self._hand_over(archive)
        model_url = agent_base_url(launch.addresses[1], _PROVIDERS[self.agent][0])
        if self.agent == "claude":
            # Handed over as to the agent, and not read: the probe has the token from its plan.
            launch.add_data(claude_command.http_config(edge_url(launch.addresses[0]), task.token, task.settings))
            extras = claude_command.variables(
                task.settings, model_url=model_url, model_token=task.model.token, temporary=None
            )
        else:
            codex_launch.prepare_home(task.home)
            extras = {"CODEX_HOME": codex_launch.codex_home(isolation)}
            extras[codex_launch.MODEL_TOKEN_VARIABLE] = task.model.token
        path = launch.add_data(json.dumps(plan).encode())
        argv = [self._python(), "-I", "-S", "-B", isolation.path_inside(archive), path]
        return await isolation.spawn(argv, extras=extras, launch=launch, stdin=False, stderr_limit=_STDERR_BYTES)

    def _python(self) -> str:
        python, binds = interpreter()
        return sys.executable if binds and self.level is not IsolationLevel.BWRAP else python


def _write_archive(path: Path) -> None:
    """The probe as one file that any Python can run: the modules under the names by which they import each other."""
    with zipfile.ZipFile(path, "x") as archive:
        for package in ("hostside/__init__.py", "hostside/worker/__init__.py"):
            archive.writestr(package, "")
        archive.write(probe_program.__file__, "__main__.py")
        for module in (probe_peers, probe_attempts):
            archive.write(str(module.__file__), f"{module.__name__.replace('.', '/')}.py")


def _sole(error: Exception) -> Exception:
    """The error itself where groups of one stand around it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _output(child: Child) -> bytes:
    printed = b""
    while chunk := await child.receive():
        printed += chunk
        if len(printed) > _OUTPUT_BYTES:
            raise ProbeFailed("the probe printed too much")
    if await child.wait() != 0:
        raise ProbeFailed(f"the probe failed: {child.stderr.text()[-400:]}")
    return printed
