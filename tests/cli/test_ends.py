"""How commands end: exit codes, two lines for every error, JSON for whoever asked for it, and quiet interruptions."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from hostside.cli import main as command_line
from hostside.cli.output import plain
from hostside.cli.stopping import exit_code_of
from hostside.errors import ConfigError, FailureCode, HostsideError, RegistrationError, ToolRefused
from hostside.store.faults import StoreUnavailable
from tests.cli.conftest import CommandLine

#: Imported by nothing that only shows help: they cost more than the command line itself.
HEAVY = ("pydantic", "sqlalchemy", "mcp", "uvicorn", "starlette", "jsonschema_rs", "liquid", "uvloop")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("serve",),
        ("serve", "--stdio", "--http", "1"),
        ("call",),
        ("tools", "explain", "read_file", "--transport", "pigeon"),
        ("tools", "explain", "read_file", "--profile", "root"),
        ("tools", "show", "absent"),
        ("tools", "list", "--config", "/nonexistent/hostside.toml"),
        ("call", "read_file", "--profile", "root"),
        ("call", "file_issue_get", "--tracker", "absent"),
        ("serve", "--http", "example.org:80"),
        ("serve", "--http", "70000"),
        ("serve", "--http", "0.0.0.0:0"),
        ("http", "0.0.0.0:0", "--allow-remote"),
        ("http", "[::]:0"),
        ("http", "0", "--profile", "root"),
        ("sessions", "open"),
        ("sessions", "open", "--minutes", "0"),
        ("sessions", "revoke", "s-none"),
        ("receipts", "list", "--limit", "many"),
        ("workflow", "show", "/nonexistent/WORKFLOW.md"),
    ],
)
def test_every_error_says_what_and_what_to_do_and_is_an_object_with_json(
    hostside: CommandLine, words: tuple[str, ...]
) -> None:
    plainly, as_json = hostside(*words), hostside(*words, "--json")

    first, second = plainly.err.splitlines()
    assert (plainly.code, plainly.out) == (as_json.code, "")
    assert plainly.code == (1 if words[-1] == "s-none" else 2)
    assert first.startswith("error: ")
    assert second.startswith("  try: ")
    error = as_json.json["error"]
    assert as_json.json == {"ok": False, "error": error}
    assert list(error) == ["code", "message", "remedy"]
    assert [plain(f"error: {error['message']}"), plain(f"  try: {error['remedy']}")] == [first, second]


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (ConfigError("invalid_tracker_config", "no", remedy="mend it"), 2, "invalid_tracker_config"),
        (ToolRefused(FailureCode.MISSING_TRACKER_SECRET, "no", remedy="set it"), 3, "missing_tracker_secret"),
        (StoreUnavailable("the disk is full"), 1, "failed"),
        (RegistrationError("t", "name", "no name"), 1, "invalid_tool"),
        (HostsideError("no"), 1, "failed"),
        (ZeroDivisionError("hst_secret"), 1, "internal_error"),
    ],
)
def test_each_kind_of_error_has_its_exit_code_its_word_and_a_remedy(
    error: Exception, code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error, as_json=True) == code

    out, err = capsys.readouterr()
    found = json.loads(out)["error"]
    assert (found["code"], bool(found["remedy"])) == (word, True)
    assert "hst_secret" not in out + err


def test_a_start_up_failure_is_visible_and_names_the_key(hostside: CommandLine) -> None:
    hostside.world.configure("[policy]\ncalls = 1\n")

    for words in (("call", "list_dir"), ("receipts", "list"), ("runs", "list"), ("tools", "list")):
        found = hostside(*words)
        assert (found.code, "policy.calls" in found.err) == (2, True)


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_help_is_quick_since_it_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; from hostside.cli.main import main\n"
        f"code = main({words!r})\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert (done.stderr, "hostside" in done.stdout) == ("0 []\n", True)


def test_the_groups_show_their_commands_when_called_alone(hostside: CommandLine) -> None:
    for words in ((), ("tools",), ("sessions",), ("receipts",), ("runs",), ("workflow",)):
        found = hostside(*words)
        assert (found.code, "Commands:" in found.err + found.out) == (2, True)


@pytest.mark.system
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_install_completion_and_complete(hostside: CommandLine, shell: str) -> None:
    script = hostside.process(extra={"_HOSTSIDE_COMPLETE": f"source_{shell}"})
    words = {"_HOSTSIDE_COMPLETE": "complete_bash", "COMP_WORDS": "hostside tools explain read", "COMP_CWORD": "3"}
    tools = hostside.process(extra=words)

    assert (script.code, "hostside" in script.out) == (0, True)
    assert tools.out.split() == ["read_file"]


def test_colour_is_for_terminals_alone(hostside: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.cli.output.sys.stdout.isatty", lambda: True, raising=False)
    words = ("tools", "explain", "read_file")

    assert "\x1b[32m" in hostside(*words).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in hostside(*words).out


def test_ctrl_c_ends_a_short_command_quietly(hostside: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("hostside.cli.tool_commands.list_tools", interrupted)

    assert hostside("tools", "list").whole == (130, "", "")


@pytest.mark.system
def test_ctrl_c_ends_a_real_command_quietly(hostside: CommandLine) -> None:
    pipe = hostside.project / "pipe"
    os.mkfifo(pipe)
    with hostside.started("call", "list_dir", "--arguments", f"@{pipe}") as process:
        # Whoever can open this end for writing knows that the command has come to the other one.
        writer = anyio.run(_opened_for_writing, pipe)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        os.close(writer)

    assert (process.returncode, out, err) == (130, "", "")


async def _opened_for_writing(pipe: Path) -> int:
    with anyio.fail_after(30):
        while True:
            with contextlib.suppress(OSError):  # ENXIO: nobody reads yet
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            await anyio.sleep(0.02)


@pytest.mark.system
def test_a_reader_that_has_left_is_no_error(hostside: CommandLine) -> None:
    command = " ".join(hostside.world.command("tools", "list", "--json"))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        env=hostside.world.environment(),
        cwd=hostside.project,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert (done.stdout.strip(), done.stderr) in {("1", ""), ("0", "")}


def test_a_reader_that_has_left_while_something_is_printed_ends_it_quietly(
    hostside: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_line: str = "") -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("hostside.cli.tool_commands.say", broken)

    assert hostside("tools", "list").whole == (1, "", "")


def test_the_entry_point_takes_the_process_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hostside", "--version"])

    assert command_line.main() == 0
