"""Which workflow contents the operator trusts: by hash, on the host, never in a repository (D16, C-25)."""

import json
import os
from datetime import datetime
from pathlib import Path

from hostside.errors import ConfigError


class TrustStore:
    """A small file of hashes, owner-only, replaced by rename."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_trusted(self, sha256: str) -> bool:
        """Return whether exactly this content was trusted. An unreadable store trusts nothing."""
        try:
            return sha256 in self._read()
        except ConfigError:
            return False

    def trust(self, sha256: str, *, source: str, at: datetime) -> None:
        """Trust this content from now on. Raises ConfigError when the store cannot be written."""
        entries = self._read()
        entries[sha256] = {"source": source, "at": at.isoformat()}
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as exc:
            raise ConfigError(
                "invalid_configuration", f"{self._path} cannot be written: {exc.strerror}.", remedy="Check the folder."
            ) from None

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            value = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise ConfigError(
                "invalid_configuration", f"{self._path} cannot be read.", remedy="Remove it and trust again."
            ) from None
        return value if isinstance(value, dict) else {}
