"""One open host: the store, the boundary's ports, trackers and secrets of this user."""

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from hostside.config.host import FileTrackerSection, HostSettings, load_settings
from hostside.config.paths import HostPaths, host_paths
from hostside.config.secrets import resolve
from hostside.config.trust import TrustStore
from hostside.core.call import Workspace
from hostside.core.canonical import digest
from hostside.core.gateway import Gateway, Host
from hostside.core.issue import Issue
from hostside.core.locality import Reach
from hostside.core.observers import ObserverQueue
from hostside.core.policy import Policy, Profile
from hostside.core.receipt import NobodyToAsk, Observer
from hostside.core.redaction import Redactor
from hostside.core.registry import Registry
from hostside.core.serialization import KeyedLocks
from hostside.core.session import Session, open_session
from hostside.core.spec import Tool
from hostside.errors import ConfigError
from hostside.store.database import Database, open_database
from hostside.store.receipts import ReceiptStore
from hostside.store.runs import RunStore
from hostside.store.sessions import SessionStore
from hostside.store.writer import GroupWriter
from hostside.tools.files import file_tools
from hostside.tools.git import git_tools
from hostside.tools.git_runner import GitRunner
from hostside.tools.search import search_tools
from hostside.trackers.base import TrackerAdapter
from hostside.trackers.file import FileTracker, FileTrackerSettings
from hostside.worker.host_hardening import leave_session_keyring, make_undumpable
from hostside.worker.run_events import EventHub

SESSION_LIFE = timedelta(hours=4)
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def new_id(prefix: str) -> str:
    """Return a new id: receipts get 80 bits, what a person types gets 40."""
    length = 16 if prefix == "rc" else 8
    return f"{prefix}-{''.join(secrets.choice(_ALPHABET) for _ in range(length))}"


def utc_now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC)


def workspace_tools(git: GitRunner) -> tuple[Tool, ...]:
    """Return the tools of a workspace: files, search and git."""
    return (*file_tools(), *search_tools(), *git_tools(git))


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Configured secrets, resolved. `names` are the variables they come from; `missing` the keys without a value."""

    values: Mapping[str, str]
    names: frozenset[str]
    missing: tuple[str, ...]


class App:
    """One open host. Close it: what waits is written then."""

    def __init__(
        self,
        paths: HostPaths,
        settings: HostSettings,
        environment: Mapping[str, str],
        *,
        database: Database,
        resolved: Secrets,
        observers: Iterable[Observer] = (),
    ) -> None:
        self.paths = paths
        self.settings = settings
        self.environment = environment
        self.database = database
        self.secrets = resolved
        self.server_id = new_id("srv")
        self.hub = EventHub()
        self.redactor = Redactor(resolved.values.values())
        self.writer = GroupWriter(database)
        self.receipts = ReceiptStore(database, self.writer)
        self.sessions = SessionStore(database, now=utc_now)
        self.runs = RunStore(database, self.writer, now=utc_now)
        self.trust = TrustStore(paths.trust)
        self.host = Host(
            receipts=self.receipts,
            approver=NobodyToAsk(),
            redactor=self.redactor,
            locks=KeyedLocks(),
            observers=ObserverQueue(observers),
            now=utc_now,
            monotonic=time.monotonic,
            new_id=new_id,
            event=self.hub.publish,
            is_open=lambda session_id: self.sessions.is_open(session_id, now=utc_now()),
        )

    @classmethod
    def open(
        cls,
        *,
        config: Path | None = None,
        environment: Mapping[str, str] | None = None,
        settings: HostSettings | None = None,
        observers: Iterable[Observer] = (),
    ) -> Self:
        """Open the host of this user. Raises ConfigError that names what is wrong and what to do.

        `settings` stands in for the file (the demo brings its own).
        """
        world = dict(os.environ if environment is None else environment)
        with contextlib.suppress(OSError):
            make_undumpable()
        with contextlib.suppress(OSError):  # `doctor --as-agent` finds a key that stayed in reach
            leave_session_keyring()
        paths = host_paths(world, config=config)
        chosen = load_settings(paths.config_file) if settings is None else settings
        if config is not None and settings is None and not config.exists():
            raise ConfigError(
                "invalid_configuration", f"{config} does not exist.", remedy="Give the path of a hostside.toml."
            )
        return cls(
            paths,
            chosen,
            world,
            database=open_database(paths.database),
            resolved=resolve_secrets(chosen, world),
            observers=observers,
        )

    def close(self) -> None:
        """Write what waits and close the store. Safe to repeat."""
        self.host.observers.close()
        self.receipts.close()
        self.writer.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def host_key(self) -> bytes:
        """Return the key that signs what only this host may say; it is made once (0600)."""
        return _host_key(self.paths.host_key)

    def tracker(self, kind_or_name: str | None = None) -> tuple[str, TrackerAdapter]:
        """Return the tracker that WORKFLOW.md or a person names, by name or by kind; None means the only one.

        Raises ConfigError when there is none, or more than one answers.
        """
        found = {
            name: section
            for name, section in self.settings.trackers.items()
            if kind_or_name in (None, name, section.kind)
        }
        if len(found) != 1:
            known = ", ".join(f"{name} ({section.kind})" for name, section in self.settings.trackers.items())
            raise ConfigError(
                "invalid_tracker_config",
                f"{len(found)} configured trackers answer to {kind_or_name or 'the default'}; configured: {known or 'none'}.",
                remedy=f"Name one in {self.paths.config_file} under [trackers.NAME].",
            )
        ((name, section),) = found.items()
        if not isinstance(section, FileTrackerSection):
            raise ConfigError(
                "unsupported_tracker_kind",
                f"trackers.{name}: the kind {section.kind} is not supported by this version.",
                remedy="Use the kind file.",
            )
        settings = FileTrackerSettings(
            path=Path(section.path).expanduser().absolute(),
            states=tuple(section.states),
            key=self.host_key(),
            author=section.author,
            lock_seconds=section.lock_seconds,
        )
        return name, FileTracker(settings)

    def policy(self) -> Policy:
        """Return the policy of every session of this host."""
        return policy_of(self.settings)

    def policy_sha256(self) -> str:
        """Return the hash of the whole configuration; it holds references, never secrets."""
        return digest(self.settings.model_dump(mode="json"))

    def open_session(
        self,
        tools: Iterable[Tool],
        *,
        edge: str,
        profile: Profile,
        reach: Reach,
        issue: Issue | None = None,
        workspace: Workspace | None = None,
        life: timedelta = SESSION_LIFE,
        principal: str | None = None,
        server_id: str | None = None,
    ) -> Gateway:
        """Open and record a session that is no run's: `call`, `serve` and `sessions open`.

        `server_id` names another process that serves it; its tokens are good there alone.
        """
        now = utc_now()
        session: Session = open_session(
            session_id=new_id("s"),
            registry=Registry(tools).snapshot(),
            edge=edge,
            server_id=server_id or self.server_id,
            principal=principal or new_id("user"),
            profile=profile,
            reach=reach,
            opened_at=now,
            expires_at=now + life,
            issue=issue,
            workspace=workspace,
            policy=self.policy(),
        )
        self.sessions.open(session)
        return Gateway(session, self.host)


def policy_of(settings: HostSettings) -> Policy:
    """Return the policy that the configuration sets for every session."""
    section = settings.policy
    return Policy(
        confirm=frozenset(section.confirm),
        calls_per_minute=section.calls_per_minute,
        list_unreachable=section.list_unreachable,
    )


def resolve_secrets(settings: HostSettings, environment: Mapping[str, str]) -> Secrets:
    """Resolve every configured reference. A missing secret is no error here: what needs it says so."""
    values: dict[str, str] = {}
    missing: list[str] = []
    names: set[str] = set()
    for key, reference in settings.secret_references().items():
        if reference.environment_name is not None:
            names.add(reference.environment_name)
        value = resolve(reference, environment)
        if value is None:
            missing.append(key)
        else:
            values[key] = value
    return Secrets(values=values, names=frozenset(names), missing=tuple(missing))


def _host_key(path: Path) -> bytes:
    made = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    if not path.exists():
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(made, path)  # whole or not at all, and the first of two processes wins
        finally:
            made.unlink()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        key = file.read()
    if len(key) != 32:
        raise ConfigError("invalid_configuration", f"{path} is not a host key.", remedy="Remove it; a new one is made.")
    return key
