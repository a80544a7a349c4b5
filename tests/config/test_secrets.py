"""Secrets by reference: where they are is written down, what they are is in no message (R-229, AX-38)."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.config.secrets import SecretReference, parse_reference, resolve
from hostside.errors import ConfigError
from tests.config.conftest import WriteFile

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    "text",
    [
        "env:LINEAR_API_KEY",
        "file:/run/secrets/token",
        "file:~/token",
        'command:["pass", "show", "x"]',
        'command:["/usr/bin/pass"]',
        'command:["~/bin/token"]',
    ],
)
def test_a_reference_is_kept_as_it_was_written(text: str) -> None:
    assert str(parse_reference(text)) == text


def test_only_a_variable_has_a_name_in_the_environment() -> None:
    names = [parse_reference(text).environment_name for text in ("env:A_B", "file:/a", 'command:["a"]')]
    assert names == ["A_B", None, None]


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        "",
        "env:",
        "env:1A",
        "env:A B",
        "env:A\n",
        "ENV:A",
        "$A",
        "file:",
        "file:token",
        "file:./token",
        "file:~other/token",
        "file:/a\0b",
        "command:pass",
        "command:[]",
        'command:[""]',
        'command:["a", 1]',
        'command:["./token"]',
        'command:["bin/token"]',
        'command:["a\\u0000"]',
        "command:" + "[" * 100_000,
        "https://user:correct-horse-battery@host",
    ],
)
def test_anything_else_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_reference(text)
    error = caught.value
    assert (error.code, error.message) == (
        "invalid_configuration",
        "a secret is written as a reference, never as itself.",
    )
    assert SECRET not in error.remedy


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parsed = str(parse_reference(text))
    except ConfigError:
        return
    assert parsed == text


@pytest.mark.parametrize(
    ("given_value", "expected"), [(SECRET, SECRET), (f" {SECRET}\n", SECRET), ("", None), (" \n", None)]
)
def test_each_kind_of_reference_gives_the_secret_and_an_empty_one_is_missing(
    write: WriteFile, given_value: str, expected: str | None
) -> None:
    path = write("token", given_value)
    references = ["env:TOKEN", f"file:{path}", f'command:["/bin/cat", "{path}"]', 'command:["printenv", "TOKEN"]']
    environment = {"TOKEN": given_value, "PATH": "/usr/bin:/bin"}
    if not given_value:
        references = references[:3]
    found = [resolve(SecretReference(text), environment) for text in references]
    assert found == [expected] * len(references)


def test_what_does_not_exist_is_missing(tmp_path: Path) -> None:
    assert resolve(SecretReference("env:TOKEN"), {}) is None
    assert resolve(SecretReference(f"file:{tmp_path}/none"), {}) is None


def test_the_home_of_the_environment_is_meant_by_a_tilde(write: WriteFile, tmp_path: Path) -> None:
    write("token", SECRET)
    program = write("program", "#!/bin/sh\ncat ~/token\n", 0o700)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    found = [resolve(SecretReference(text), environment) for text in ("file:~/token", f'command:["~/{program.name}"]')]
    assert found == [SECRET, SECRET]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_is_open_to_others_is_refused(write: WriteFile, mode: int) -> None:
    path = write("token", SECRET, mode)
    with pytest.raises(ConfigError) as caught:
        resolve(SecretReference(f"file:{path}"), {})
    assert SECRET not in caught.value.message
    assert caught.value.remedy == f"Run: chmod 600 {path}"


def test_a_file_may_be_reached_through_a_link_and_its_target_decides(write: WriteFile, tmp_path: Path) -> None:
    path = write("token", SECRET)
    (tmp_path / "link").symlink_to(path)
    reference = SecretReference(f"file:{tmp_path}/link")
    assert resolve(reference, {}) == SECRET
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="read by others"):
        resolve(reference, {})


def test_another_users_file_is_refused(write: WriteFile, stranger: int) -> None:
    path = write("token", SECRET)
    os.chown(path, stranger, stranger)
    with pytest.raises(ConfigError, match="belongs to another user"):
        resolve(SecretReference(f"file:{path}"), {})


def test_a_pipe_a_folder_and_a_device_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="not a regular file"):
            resolve(SecretReference(f"file:{path}"), {})


@pytest.mark.parametrize("content", ["a\nb", "a\x00b", "a\x1bb", "a\x7fb", "a\x85b"])
def test_a_secret_with_control_characters_is_refused_unseen(write: WriteFile, content: str) -> None:
    path = write("token", f"{SECRET}{content}")
    with pytest.raises(ConfigError, match="not one line of text") as caught:
        resolve(SecretReference(f"file:{path}"), {})
    assert SECRET not in str(caught.value)


def test_bytes_that_are_no_text_are_refused_from_everywhere(write: WriteFile) -> None:
    path = write("token", b"\xff\xfe")
    references = ("env:TOKEN", f"file:{path}", f'command:["/bin/cat", "{path}"]')
    for text in references:
        with pytest.raises(ConfigError):
            resolve(SecretReference(text), {"TOKEN": "\udcff"})


def test_more_than_64_kib_is_refused(write: WriteFile) -> None:
    path = write("token", "x" * 65_537)
    for text in (f"file:{path}", f'command:["/bin/cat", "{path}"]'):
        with pytest.raises(ConfigError, match="65536 bytes"):
            resolve(SecretReference(text), {})


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo $0; exit 3", "exit code 3"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_command_that_fails_is_named_without_arguments_or_output(script: str, reason: str) -> None:
    reference = SecretReference(f'command:["/bin/sh", "-c", "{script}", "{SECRET}"]')
    with pytest.raises(ConfigError) as caught:
        resolve(reference, {})
    assert caught.value.message == f"the secret command '/bin/sh' failed ({reason})."


def test_a_command_that_is_missing_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"'no-such-program' failed \(FileNotFoundError\)"):
        resolve(SecretReference('command:["no-such-program"]'), {"PATH": "/usr/bin"})


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostside.config.secrets.COMMAND_SECONDS", 0.5)
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(ConfigError, match=r"did not end within 0\.5 s"):
        resolve(SecretReference(f'command:["/bin/sh", "-c", "{script}"]'), {"PATH": "/usr/bin:/bin"})
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while _runs(pid):
        assert time.monotonic() < deadline


def test_a_command_starts_nowhere_near_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(SecretReference('command:["/bin/pwd"]'), {}) == "/"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
