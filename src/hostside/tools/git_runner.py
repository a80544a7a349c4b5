"""How tools start git: a port that the worker implements inside the run's isolation (D9)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from hostside.errors import HostsideError

#: What a runner sets for git, and all it may set of `GIT_*` besides an author (`GIT_AUTHOR_*`, `GIT_COMMITTER_*`).
#: System and user configuration are not read, no transport is allowed, no editor, pager or prompt can start.
GIT_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_EDITOR": ":",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
)


class GitUnavailable(HostsideError):
    """git could not be started: it is not installed, or the run's isolation could not be entered. None of it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCompleted:
    """The end of one git command. `stdout` is its beginning, `stderr` its end; `truncated` says one of them was cut."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool


class GitRunner(Protocol):
    """Runs git for one workspace.

    It starts `argv` (whose first word is `git`) in the workspace root, inside the run's isolation, with an environment
    built from nothing: PATH, HOME, `GIT_ENVIRONMENT`, and the author. An inherited `GIT_DIR` would beat the working
    folder (C-23). One runner never serves two workspaces (R-016).
    """

    async def run(
        self, argv: Sequence[str], *, timeout_seconds: float, output_limit_bytes: int, stdin: bytes | None = None
    ) -> GitCompleted:
        """Run to the end, or kill it at the limit (`timed_out`). Without `stdin` it reads an empty input; that git ends
        without having read all of it is no error.

        Raises GitUnavailable.
        """
