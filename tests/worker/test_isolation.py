"""Starting a run's processes: the same promises at every level."""

import os
import socket
import sys
from pathlib import Path

import anyio
import pytest

from hostside.errors import ConfigError
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel
from hostside.worker.process import Completed, LaunchError, RunUser
from hostside.worker.sandbox_args import Bind
from tests.worker.conftest import IsolationFactory, Marked

pytestmark = [pytest.mark.anyio, pytest.mark.system]

SERVE_ONE = "import socket,sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(99).decode())"


async def run(isolation: RunIsolation, *argv: str, timeout_seconds: float = 10, limit: int = 100_000) -> Completed:
    return await isolation.run(argv, timeout_seconds=timeout_seconds, output_limit_bytes=limit)


def environment_of(dump: bytes) -> dict[str, str]:
    return dict(item.split("=", 1) for item in dump.decode().rstrip("\0").split("\0"))


async def test_every_kind_of_process_gets_the_one_environment(
    isolate: IsolationFactory, walls: dict[str, object]
) -> None:
    host = {"PATH": "/usr/bin:/bin", "LANG": "C", "HOME": "/root", "LINEAR_API_KEY": "canary", "TMP": "/var/x"}
    source = EnvironmentSource(
        base=host, declared_secrets=frozenset({"T"}), run_facts={"HOSTSIDE_ISSUE": "7", "T": "x"}
    )
    isolation = isolate(**walls, environment=source)
    contract = isolation.environment({"KEY": "run-token"})
    tool = await isolation.run(["env", "-0"], extras={"KEY": "run-token"}, timeout_seconds=5, output_limit_bytes=9999)
    with isolation.prepare(listeners=1) as launch:
        agent = await isolation.spawn(["env", "-0"], extras={"KEY": "run-token"}, launch=launch)
    async with agent:
        of_agent = environment_of(await agent.receive())
        agent.listeners[0].close()
    of_tool = environment_of(tool.stdout)
    if isolation.level is IsolationLevel.BWRAP:
        # bwrap names the folder it starts in; nothing else is added.
        assert of_tool.pop("PWD") == of_agent.pop("PWD") == str(isolation.workspace)
    assert of_tool == of_agent == contract
    assert contract["HOSTSIDE_ISSUE"] == "7"
    assert not contract.keys() & {"T", "LINEAR_API_KEY"}
    assert contract["HOME"] == isolation.home_inside


async def test_the_workspace_and_the_home_are_where_the_run_is_told(
    isolate: IsolationFactory, walls: dict[str, object]
) -> None:
    isolation = isolate(**walls)
    (isolation.workspace / "sub").mkdir()
    (isolation.workspace / "sub").chmod(0o777)
    script = 'git init -q . && echo made > "$HOME/made" && pwd'
    done = await isolation.run(
        ["sh", "-c", script], cwd=isolation.workspace / "sub", timeout_seconds=10, output_limit_bytes=999
    )
    assert (done.exit_code, done.stdout.decode(), done.stderr) == (0, f"{isolation.workspace}/sub\n", b"")
    assert (isolation.workspace / "sub/.git/HEAD").exists()
    assert (isolation.home / "made").read_text() == "made\n"


@pytest.mark.parametrize("use_uvloop", [False, True])
def test_the_host_serves_on_addresses_that_were_known_before_the_start(
    isolate: IsolationFactory, walls: dict[str, object], use_uvloop: bool
) -> None:
    async def serve() -> list[bytes | None]:
        isolation = isolate(**walls)
        with isolation.prepare(listeners=2) as launch:
            address = launch.addresses[1]
            argv = ["/usr/bin/python3", "-c", SERVE_ONE, address[0], str(address[1])]
            child = await isolation.spawn(argv, launch=launch)
        assert child.listener_addresses == launch.addresses
        async with child:
            for listener in child.listeners:
                listener.settimeout(5)
            connection, _ = await anyio.to_thread.run_sync(child.listeners[1].accept)
            with connection:
                connection.sendall(b"from outside")
            said = [await child.receive_line(), await child.receive_line()]
            assert await child.wait() == 0
        for listener in child.listeners:
            listener.close()
        return said

    said = anyio.run(serve, backend_options={"use_uvloop": use_uvloop})
    assert said == [b"from outside", None]


async def test_data_is_read_from_a_descriptor_and_a_small_one_only_once(
    isolate: IsolationFactory, walls: dict[str, object]
) -> None:
    isolation = isolate(**walls)
    large = b"x" * 3_000_000
    with isolation.prepare(listeners=1) as launch:
        small_path, large_path, empty_path = launch.add_data(b"private"), launch.add_data(large), launch.add_data(b"")
        script = 'cat "$0"; echo; cat "$0" | wc -c; cat "$1" | wc -c; cat "$2" | wc -c'
        child = await isolation.spawn(["sh", "-c", script, small_path, large_path, empty_path], launch=launch)
    async with child:
        with anyio.fail_after(10):
            said = [await child.receive_line() for _ in range(5)]
        child.listeners[0].close()
    assert said == [b"private", b"0", b"3000000", b"0", None]
    assert list(isolation.home.iterdir()) == []


@pytest.mark.parametrize("listeners", [0, 1])
async def test_a_missing_program_is_a_typed_error_and_leaves_nothing(
    isolate: IsolationFactory, walls: dict[str, object], listeners: int
) -> None:
    isolation = isolate(**walls)
    assert (await run(isolation, "true")).exit_code == 0
    before = sorted(os.listdir("/proc/self/fd"))

    async def start() -> None:
        with isolation.prepare(listeners=listeners) as launch:
            child = await isolation.spawn(["no-such-program"], launch=launch)
        async with child:
            await child.wait()

    with pytest.raises(LaunchError, match=r"no-such-program.*No such file"):
        await start()
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_sandbox_that_cannot_be_set_up_is_no_exit_code_of_the_program(
    bwrap: None, isolate: IsolationFactory, folder: Path
) -> None:
    (folder / "tool").mkdir()
    isolation = isolate(IsolationLevel.BWRAP, ro_binds=[Bind(source=folder / "tool", target="/opt/tool")])
    (folder / "tool").rmdir()
    with pytest.raises(LaunchError, match="source path"):
        await run(isolation, "false")


async def test_codes_and_signals_of_the_program_come_through(
    isolate: IsolationFactory, walls: dict[str, object]
) -> None:
    isolation = isolate(**walls)
    codes = [(await run(isolation, "sh", "-c", script)).exit_code for script in ("exit 0", "exit 1", "kill -9 $$")]
    assert codes == [0, 1, 137]


async def test_in_a_sandbox_nobody_escapes_the_deadline(bwrap: None, isolate: IsolationFactory, marked: Marked) -> None:
    script = f"setsid sleep {marked.seconds} & (setsid sh -c 'sleep {marked.seconds} & exit' &) ; echo on; sleep 1000"
    done = await run(isolate(IsolationLevel.BWRAP), "sh", "-c", script, timeout_seconds=0.5)
    assert (done.stdout, done.timed_out) == (b"on\n", True)
    assert marked.pids() == []


async def test_in_a_sandbox_nobody_outlives_the_program(bwrap: None, isolate: IsolationFactory, marked: Marked) -> None:
    script = f"setsid sleep {marked.seconds} >/dev/null 2>&1 & echo done"
    done = await run(isolate(IsolationLevel.BWRAP), "sh", "-c", script)
    assert (done.exit_code, done.stdout) == (0, b"done\n")
    assert marked.pids() == []


async def test_cancellation_ends_everything(
    isolate: IsolationFactory, walls: dict[str, object], marked: Marked
) -> None:
    isolation = isolate(**walls)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(run, isolation, "sh", "-c", f"sleep {marked.seconds} & sleep {marked.seconds}")
            await marked.sleeping(2)
            group.cancel_scope.cancel()
    await marked.gone()


async def test_a_program_may_open_its_own_streams_by_name(isolate: IsolationFactory, walls: dict[str, object]) -> None:
    script = "read word < /dev/stdin; echo got $word > /dev/stdout; echo wrong > /dev/stderr"
    done = await isolate(**walls).run(["sh", "-c", script], stdin=b"this\n", timeout_seconds=5, output_limit_bytes=99)
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"got this\n", b"wrong\n")


async def test_stop_asks_the_program_inside_first(isolate: IsolationFactory, walls: dict[str, object]) -> None:
    script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    async with await isolate(**walls).spawn(["sh", "-c", script]) as child:
        assert await child.receive_line() == b"ready"
        await child.stop(grace_seconds=5)
        assert (await child.receive_line(), child.exit_code) == (b"bye", 5)


async def test_stop_ends_a_program_that_will_not(isolate: IsolationFactory, walls: dict[str, object]) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    async with await isolate(**walls).spawn(["sh", "-c", script]) as child:
        assert await child.receive_line() == b"ready"
        await child.stop(grace_seconds=0.2)
        assert child.exit_code == 137


async def test_a_cwd_outside_is_refused_before_anything_starts(bwrap: None, isolate: IsolationFactory) -> None:
    isolation = isolate(IsolationLevel.BWRAP)
    for outside in (isolation.workspace / "..", Path("/etc"), isolation.workspace / "sub/../../other"):
        with pytest.raises(ValueError, match="not visible"):
            await isolation.spawn(["true"], cwd=outside)


async def test_a_tool_is_bound_read_only_and_found_by_its_inner_name(
    bwrap: None, isolate: IsolationFactory, folder: Path
) -> None:
    tools = folder / "tools"
    tools.mkdir()
    (tools / "hello").write_text("#!/bin/sh\necho hello\n")
    (tools / "hello").chmod(0o755)
    bind = Bind(source=tools, target="/opt/tools")
    isolation = isolate(IsolationLevel.BWRAP, ro_binds=[bind], path_prefix=[tools])
    assert isolation.path_inside(tools / "hello") == "/opt/tools/hello"
    done = await run(isolation, "sh", "-c", "hello; echo x > /opt/tools/hello")
    assert done.stdout == b"hello\n"
    assert b"Read-only" in done.stderr


def test_folders_that_do_not_keep_a_run_apart_are_refused(isolate: IsolationFactory, folder: Path) -> None:
    isolate(IsolationLevel.HOME)
    (folder / "workspace/home").mkdir(mode=0o700)
    (folder / "open").mkdir(mode=0o755)
    into_workspace = Bind(source=folder, target=str(folder / "workspace/x"))
    problems: list[dict[str, object]] = [
        {"home": folder / "workspace/home"},
        {"workspace": folder},
        {"home": folder / "open"},
        {"ro_binds": [into_workspace]},
        {"rw_binds": [Bind(source=folder, target="/home/agent/../agent/x")]},
        {"ro_binds": [Bind(source=folder, target="relative")]},
    ]
    for problem in problems:
        with pytest.raises(ConfigError):
            isolate(IsolationLevel.BWRAP, **problem)
    with pytest.raises(ConfigError):
        isolate(IsolationLevel.USER)
    with pytest.raises(ConfigError):
        isolate(IsolationLevel.HOME, user=RunUser(uid=1, gid=1))


def test_a_launch_that_is_never_used_leaves_no_descriptor_and_no_port(isolate: IsolationFactory) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with isolate(IsolationLevel.HOME).prepare(listeners=2) as launch:
        launch.add_data(b"x")
        addresses = launch.addresses
    assert sorted(os.listdir("/proc/self/fd")) == before
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 1)


async def test_an_interpreter_outside_the_system_serves_as_launcher_too(
    bwrap: None, isolate: IsolationFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if Path(sys.base_prefix).resolve().is_relative_to("/usr"):
        pytest.skip("this Python lives under /usr")
    monkeypatch.setattr("hostside.worker.sandbox_args._SYSTEM_PYTHON", "/no/python3")
    isolation = isolate(IsolationLevel.BWRAP)
    with isolation.prepare(listeners=1) as launch:
        child = await isolation.spawn(["sh", "-c", "echo ready"], launch=launch)
    async with child:
        assert await child.receive_line() == b"ready"
        child.listeners[0].close()
