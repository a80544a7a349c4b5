"""The command that starts a process of a run on another machine, e.g. over ssh (R-331).

A remote login shell brings an environment of its own, secrets of that machine included. So the remote command begins from
nothing, and names besides every declared secret to unset: whoever reads the command sees that they are gone.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence

from hostside.worker.child_environment import EnvironmentSource

_EMPTY: Mapping[str, str] = {}


def remote_command(
    argv: Sequence[str], source: EnvironmentSource, *, home: str, extras: Mapping[str, str] = _EMPTY
) -> str:
    """Return one shell command for a remote `sh -c`: `argv` with exactly the environment contract of a local process.

    `home` is the run's home on that machine. Every word is quoted, so no value can become a command. Values are visible
    in the remote process list: `extras` must hold no secret, and ValueError is raised when one of `source` is among them.
    """
    environment = source.build(home=home, extras=extras)
    lost = sorted(extras.keys() - environment.keys())
    if lost:
        raise ValueError(f"a secret cannot travel in a command: {', '.join(lost)}")
    words = ["env", "-i"]
    for name in unset_names(source.declared_secrets):
        words += ["-u", name]
    words += [f"{name}={value}" for name, value in sorted(environment.items())]
    return shlex.join([*words, *argv])


def unset_names(declared: Collection[str]) -> tuple[str, ...]:
    """Return every name that the remote side must not keep, sorted: the declared ones, indirections included."""
    return tuple(sorted(set(declared)))
