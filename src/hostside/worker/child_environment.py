"""The environment of every process of a run, declared once (R-324 to R-330).

Built from nothing: no caller ever copies `os.environ`. The agent, workspace git, hooks and shell tools all get
their variables from `build_environment`, whose last step takes away what may never be there.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hostside.errors import ConfigError

PORTABLE_NAMES = frozenset(
    {"PATH", "LANG", "TERM", "COLORTERM", "SHELL", "USER", "LOGNAME", "TMPDIR", "TEMP", "TMP", "TZ", "SYSTEMROOT"}
)
"""Names taken over from the host (with every `LC_*`): none of them carries a secret by its nature (R-324)."""

GIT_NAMES = frozenset(
    {
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_DATE",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_DATE",
        "GIT_CEILING_DIRECTORIES",
        "GIT_LITERAL_PATHSPECS",
        "GIT_OPTIONAL_LOCKS",
        "GIT_PAGER",
    }
)
"""The only `GIT_*` names an extra may set. The rest select a repository, a configuration, a program or a credential."""

_FORBIDDEN = re.compile(
    r"GIT_.*"  # GIT_NAMES are exempt
    r"|SSH_.*"  # agent sockets, ask-pass programs
    r"|.*_ASKPASS"
    r"|(?:.*_)?BROKER(?:_.*)?"  # broker and agent-credential-broker variables
    r"|.*(?:TOKEN|CREDENTIALS?)_CACHE(?:_.*)?"
    r"|DBUS_SESSION_BUS_ADDRESS"  # the desktop's key ring answers there
    r"|GNOME_KEYRING_.*"
    r"|DOCKER_HOST"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A shorter value is a word like "main": inside another value it proves nothing, so it must be the whole value.
_SUBSTRING_SECRET_LENGTH = 8


def build_environment(
    *,
    home: str,
    declared_secrets: Collection[str],
    run_facts: Mapping[str, str],
    extras: Mapping[str, str],
    base: Mapping[str, str],
    secret_values: Collection[str] = (),
) -> dict[str, str]:
    """The complete environment of one process.

    `home`: the run's home as that process sees it. `base`: the host's variables, of which only `PORTABLE_NAMES` and
    `LC_*` are read. `run_facts`: non-secret context (R-325). `extras`: what the process needs beyond that, e.g. the
    run's own token. Later wins over earlier: base, run facts, extras, home.

    Removal is the last step (R-329): declared secret names, names that lead to a credential (R-328), and every
    variable whose value contains one of `secret_values`. Only then is `GIT_TERMINAL_PROMPT=0` set.

    Raises `ConfigError` when the removal would take `HOME` or a configuration folder away (a program without `HOME`
    falls back to the real one, C-26), and `ValueError` for a name or value that is no environment variable.
    """
    composed = {name: value for name, value in base.items() if name in PORTABLE_NAMES or name.startswith("LC_")}
    composed |= run_facts
    composed |= extras
    folders = _home_folders(home)
    composed |= folders
    _check_form(composed)

    secrets = _SecretValues(secret_values)
    removed_names = frozenset(declared_secrets)
    environment = {
        name: value
        for name, value in composed.items()
        if name not in removed_names and not _is_forbidden(name) and not secrets.appear_in(value)
    }
    lost = sorted(folders.keys() - environment.keys())
    if lost:
        raise ConfigError(
            "invalid_configuration",
            f"a configured secret has the name or is part of the value of {', '.join(lost)}",
            remedy="Rename the secret's variable, or move the state folder to a path that does not contain the secret.",
        )
    environment["GIT_TERMINAL_PROMPT"] = "0"
    return environment


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSource:
    """What is the same for all processes of one run; `build` adds what one process needs."""

    base: Mapping[str, str]
    declared_secrets: frozenset[str] = frozenset()
    secret_values: frozenset[str] = field(default=frozenset(), repr=False)
    run_facts: Mapping[str, str] = field(default_factory=dict)

    def build(self, *, home: str, extras: Mapping[str, str], base: Mapping[str, str] | None = None) -> dict[str, str]:
        """`build_environment` for one process; `base` stands in for the host's portable names where isolation must."""
        return build_environment(
            home=home,
            declared_secrets=self.declared_secrets,
            secret_values=self.secret_values,
            run_facts=self.run_facts,
            extras=extras,
            base=self.base if base is None else base,
        )


def _home_folders(home: str) -> dict[str, str]:
    return {
        "HOME": home,
        "USERPROFILE": home,
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "GH_CONFIG_DIR": f"{home}/.config/gh",
    }


def _is_forbidden(name: str) -> bool:
    return name not in GIT_NAMES and _FORBIDDEN.fullmatch(name) is not None


def _check_form(composed: Mapping[str, str]) -> None:
    for name, value in composed.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"not an environment variable: {name!r}")


class _SecretValues:
    def __init__(self, values: Collection[str]) -> None:
        present = [value for value in values if value]
        self._long = tuple(value for value in present if len(value) >= _SUBSTRING_SECRET_LENGTH)
        self._short = frozenset(value for value in present if len(value) < _SUBSTRING_SECRET_LENGTH)

    def appear_in(self, text: str) -> bool:
        return text in self._short or any(value in text for value in self._long)
