"""Trust in a workflow: by its hash, on the host, and lost rather than believed when in doubt (D16, R-338)."""

import json
import os
import stat
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

import pytest

from hostside.config.owned_files import locked
from hostside.config.trust import TrustStore
from hostside.errors import ConfigError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
A, B = sha256(b"a").hexdigest(), sha256(b"b").hexdigest()


def trust_many(path: Path, first: int) -> None:
    for number in range(first, first + 10):
        TrustStore(path).trust(sha256(str(number).encode()).hexdigest(), source=f"{number}", at=NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trusted-workflows.json"


def test_exactly_what_was_trusted_is_trusted(path: Path) -> None:
    store = TrustStore(path)
    assert not store.is_trusted(A)
    store.trust(A, source="/w/WORKFLOW.md", at=NOW)
    later = TrustStore(path)
    assert (later.is_trusted(A), later.is_trusted(B), later.is_trusted("")) == (True, False, False)
    assert later.entries() == {A: {"source": "/w/WORKFLOW.md", "at": "2026-01-02T03:04:05+00:00"}}


def test_trust_can_be_taken_back(path: Path) -> None:
    store = TrustStore(path)
    store.trust(A, source="a", at=NOW)
    store.trust(B, source="b", at=NOW)
    assert (store.forget(A), store.forget(A), store.is_trusted(A), store.is_trusted(B)) == (True, False, False, True)


@pytest.mark.parametrize("text", ["", "x" * 64, A.upper(), A[:-1], f"{A}\n"])
def test_only_a_hash_can_be_trusted(path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        TrustStore(path).trust(text, source="a", at=NOW)
    assert not path.exists()


def test_the_file_is_the_owners_alone_and_nothing_else_is_left(path: Path) -> None:
    before = os.umask(0)
    try:
        TrustStore(path).trust(A, source="a", at=NOW)
    finally:
        os.umask(before)
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}.lock": 0o600}


def test_writers_at_once_lose_nothing(path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(trust_many, path, first) for first in (0, 10, 20, 30)]:
            done.result(timeout=60)
    assert sorted(int(entry["source"]) for entry in TrustStore(path).entries().values()) == list(range(40))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"1", b"[" * 100_000, json.dumps({A: 1}).encode(), b"x" * 4_000_001]
)
def test_a_damaged_store_trusts_nothing_and_is_not_overwritten(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    store = TrustStore(path)
    assert not store.is_trusted(A)
    for change in (lambda: store.trust(A, source="a", at=NOW), lambda: store.forget(A), store.entries):
        with pytest.raises(ConfigError, match="trusts nothing") as caught:
            change()
        assert caught.value.remedy == "Remove it and trust again."
    assert path.read_bytes() == content


def test_a_link_in_its_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    TrustStore(real).trust(A, source="a", at=NOW)
    content = real.read_bytes()
    path.symlink_to(real)
    store = TrustStore(path)
    assert not store.is_trusted(A)
    with pytest.raises(ConfigError):
        store.trust(B, source="b", at=NOW)
    assert (path.is_symlink(), real.read_bytes()) == (True, content)


def test_a_link_in_place_of_the_lock_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / f"{path.name}.lock").symlink_to(tmp_path / "made")
    with pytest.raises(ConfigError, match="cannot be written"):
        TrustStore(path).trust(A, source="a", at=NOW)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_store_that_others_can_change_trusts_nothing(path: Path, mode: int) -> None:
    store = TrustStore(path)
    store.trust(A, source="a", at=NOW)
    path.chmod(mode)
    assert not store.is_trusted(A)


def test_another_users_store_trusts_nothing(path: Path, stranger: int) -> None:
    store = TrustStore(path)
    store.trust(A, source="a", at=NOW)
    os.chown(path, stranger, stranger)
    assert not store.is_trusted(A)


def test_a_writer_that_hangs_is_not_waited_for_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostside.config.trust.LOCK_SECONDS", 0.05)
    with (
        locked(path.with_name(f"{path.name}.lock"), wait_seconds=1),
        pytest.raises(ConfigError, match="held by another process"),
    ):
        TrustStore(path).trust(A, source="a", at=NOW)


def test_a_failed_write_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TrustStore(path)
    store.trust(A, source="a", at=NOW)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        store.trust(B, source="b", at=NOW)
    assert set(store.entries()) == {A}
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]
