"""Where the host keeps its files: configuration and state, never in a workspace or an agent's home (D8, D16)."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostside.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPaths:
    """`config_file` may not exist yet; `state` exists, belongs to this user and nobody else can enter it."""

    config_file: Path
    state: Path

    @property
    def database(self) -> Path:
        """The database of receipts, sessions and runs."""
        return self.state / "hostside.db"

    @property
    def runs(self) -> Path:
        """One folder a run: the agent's home and generated files."""
        return self.state / "runs"

    @property
    def workspaces(self) -> Path:
        """The default root of workspaces."""
        return self.state / "workspaces"

    @property
    def trust(self) -> Path:
        """The hashes of workflows that the operator trusts."""
        return self.state / "trusted-workflows.json"

    @property
    def host_key(self) -> Path:
        """The key that signs what only this host may say (D8, D13)."""
        return self.state / "host.key"


def host_paths(environment: Mapping[str, str], *, config: Path | None = None) -> HostPaths:
    """Return the paths of this user, and make the state folder (0700).

    Raises ConfigError when the state folder is a link, another user's, or open to others and cannot be closed.
    """
    home = Path(environment.get("HOME") or Path.home())
    config_home = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    state_home = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state")
    state = state_home / "hostside"
    make_private(state)
    return HostPaths(config_file=(config or config_home / "hostside" / "hostside.toml"), state=state)


def make_private(folder: Path) -> Path:
    """Make `folder` a directory of this user alone (0700) and return it. Raises ConfigError where that cannot be had."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(
                "invalid_configuration",
                f"{folder} is not a folder of this user.",
                remedy="Remove it, or set XDG_STATE_HOME to a folder of your own.",
            )
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as exc:
        raise ConfigError(
            "invalid_configuration",
            f"{folder} cannot be used: {exc.strerror}.",
            remedy="Free the path, or set XDG_STATE_HOME to a folder that you can write to.",
        ) from None
    return folder
