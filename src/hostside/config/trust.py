"""Which workflow contents the operator trusts: by hash, on the host, never in a repository (D16, C-25)."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from hostside.config.owned_files import WRITABLE_BY_OTHERS, UnsafeFileError, locked, read_owned
from hostside.errors import ConfigError

MAX_BYTES = 4_000_000
LOCK_SECONDS = 10.0
_SHA256 = re.compile(r"[0-9a-f]{64}")

Entries = dict[str, dict[str, str]]


class TrustStore:
    """A small file of hashes, owner-only, replaced by rename under a lock: no writer loses another's entry."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_trusted(self, sha256: str) -> bool:
        """Return whether exactly this content was trusted. A store that cannot be believed trusts nothing."""
        try:
            return sha256 in self._read()
        except ConfigError:
            return False

    def entries(self) -> Entries:
        """Return `source` and `at` of each trusted hash. Raises ConfigError for a store that cannot be believed."""
        return self._read()

    def trust(self, sha256: str, *, source: str, at: datetime) -> None:
        """Trust this content from now on. Raises ConfigError when the store cannot be read or written; then it is as
        it was. Raises ValueError for anything but a SHA-256 in lower-case hexadecimal digits."""
        if _SHA256.fullmatch(sha256) is None:
            raise ValueError("not a SHA-256")
        with self._alone():
            self._replace({**self._read(), sha256: {"source": source, "at": at.isoformat()}})

    def forget(self, sha256: str) -> bool:
        """Trust this content no longer; False when it was not trusted. Raises ConfigError as `trust` does."""
        with self._alone():
            entries = self._read()
            if entries.pop(sha256, None) is None:
                return False
            self._replace(entries)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with locked(self._path.with_name(f"{self._path.name}.lock"), wait_seconds=LOCK_SECONDS):
                yield
        except OSError as exc:
            raise ConfigError(
                "invalid_configuration",
                f"{self._path} cannot be written: {exc.strerror or exc}.",
                remedy="Check its folder, and that no other hostside process hangs.",
            ) from None

    def _replace(self, entries: Entries) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self) -> Entries:
        try:
            raw = read_owned(self._path, max_bytes=MAX_BYTES, forbidden=WRITABLE_BY_OTHERS, follow=False)
        except UnsafeFileError as exc:
            raise self._unbelievable(exc.message) from None
        if raw is None:
            return {}
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            raise self._unbelievable("it is not JSON") from None
        if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
            raise self._unbelievable("it is not a trust store")
        return value

    def _unbelievable(self, why: str) -> ConfigError:
        return ConfigError(
            "invalid_configuration",
            f"{self._path} trusts nothing: {why}.",
            remedy="Remove it and trust again.",
        )
