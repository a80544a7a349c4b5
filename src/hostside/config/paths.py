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

    A relative `XDG_*` value is ignored, as the XDG specification asks: it would make the current directory decide
    (D16). Raises ConfigError when `HOME` is relative, or when the state folder is a link, another user's, or open to
    others and cannot be closed.
    """
    home = Path(environment.get("HOME") or Path.home())
    if not home.is_absolute():
        raise ConfigError(
            "invalid_configuration", "HOME is not an absolute path.", remedy="Set HOME to your home folder."
        )
    config_home = _absolute(environment.get("XDG_CONFIG_HOME")) or home / ".config"
    state_home = _absolute(environment.get("XDG_STATE_HOME")) or home / ".local" / "state"
    config_file = config_home / "hostside" / "hostside.toml" if config is None else config.absolute()
    return HostPaths(config_file=config_file, state=make_private(state_home / "hostside"))


def make_private(folder: Path) -> Path:
    """Make `folder` a directory of this user alone (0700) and return it. Raises ConfigError where that cannot be had.

    Missing parents are made 0700 too. `folder` itself may not be a link; nothing is changed through one.
    """
    try:
        _make(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (NotADirectoryError, FileExistsError):
        raise _not_ours(folder) from None
    except OSError as exc:
        raise _unusable(folder, exc) from None
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid():
            raise _not_ours(folder)
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(handle, 0o700)
    except OSError as exc:
        raise _unusable(folder, exc) from None
    finally:
        os.close(handle)
    return folder


def _make(folder: Path) -> None:
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        try:
            missing.mkdir(mode=0o700)
        except FileExistsError:
            # Another process made it meanwhile, or a link leads nowhere; the open that follows tells them apart.
            if not missing.is_dir():
                raise


def _absolute(value: str | None) -> Path | None:
    return Path(value) if value and Path(value).is_absolute() else None


def _not_ours(folder: Path) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"{folder} is not a folder of this user.",
        remedy="Remove it, or set XDG_STATE_HOME to a folder of your own.",
    )


def _unusable(folder: Path, exc: OSError) -> ConfigError:
    return ConfigError(
        "invalid_configuration",
        f"{folder} cannot be used: {exc.strerror}.",
        remedy="Free the path, or set XDG_STATE_HOME to a folder that you can write to.",
    )
