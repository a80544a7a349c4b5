"""`hostside doctor`: what this installation can and cannot do, each finding with what to do about it (R-357).

Looks and probes; changes nothing but what opening the host makes. No secret is printed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from hostside.app.doctor_findings import Finding, failed, ok, unreadable, warning
from hostside.app.doctor_machine import agents, bubblewrap, git, isolation, machine, port
from hostside.app.doctor_network import network
from hostside.app.host import App, utc_now
from hostside.config.host import HostSettings, load_settings
from hostside.config.paths import HostPaths, host_paths
from hostside.config.secrets import resolve
from hostside.errors import ConfigError, HostsideError, ToolFailed, ToolRefused
from hostside.store.instants import to_instant
from hostside.store.verify import verify
from hostside.worker.process_identity import started_at
from hostside.worker.workspace import check_repository

NEWEST_SESSIONS = 20
_AHEAD = timedelta(minutes=5)


async def examine(environment: Mapping[str, str], config: Path | None) -> tuple[Finding, ...]:
    """Return every finding, in the order of a run: machine, files, isolation, agents, trackers, what is left over."""
    findings = [*machine()]
    paths, found = _paths(environment, config)
    findings += found
    if paths is None:
        return tuple(findings)
    settings, found = _settings(paths, explicit=config is not None)
    findings += found
    configured = settings is not None and paths.config_file.exists()
    chosen = settings or HostSettings()
    findings += [*_safely("state", lambda: _state(paths)), *git(environment), *bubblewrap(), *isolation(chosen)]
    findings += _safely("network", lambda: network(chosen, environment))
    findings += [*agents(chosen, environment, configured=configured), *_secrets(chosen, environment)]
    findings += [*_safely("repository", lambda: _repository(chosen)), *_safely("port", lambda: port(paths, chosen))]
    return (*findings, *await _opened(environment, config, chosen))


def _paths(environment: Mapping[str, str], config: Path | None) -> tuple[HostPaths | None, list[Finding]]:
    try:
        return host_paths(environment, config=config), []
    except ConfigError as error:
        return None, [failed("state", error.message, error.remedy)]


def _settings(paths: HostPaths, *, explicit: bool) -> tuple[HostSettings | None, list[Finding]]:
    file = paths.config_file
    try:
        settings = load_settings(file)
        if file.exists():
            return settings, [ok("configuration", f"{file} · {len(settings.trackers)} tracker(s)")]
    except ConfigError as error:
        return None, [failed("configuration", error.message, error.remedy)]
    if explicit:
        return settings, [failed("configuration", f"{file} does not exist", "Give the path of a hostside.toml.")]
    return settings, [
        warning("configuration", f"no {file}: embedded defaults, no tracker", "Write one; `hostside demo` needs none.")
    ]


def _safely(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what a check finds; one that cannot be made is itself a finding."""
    try:
        return list(check())
    except ConfigError as error:
        return [failed(name, error.message, error.remedy)]
    except (HostsideError, OSError) as error:
        return [unreadable(name, error)]


def _state(paths: HostPaths) -> Iterator[Finding]:
    open_files = [
        file.name
        for file in (paths.database, paths.host_key, paths.trust)
        if file.exists() and file.stat().st_mode & 0o077
    ]
    probe = paths.state / ".doctor"
    probe.write_bytes(b"")
    probe.unlink()
    if open_files:
        files = " ".join(str(paths.state / name) for name in open_files)
        yield failed("state", f"open to other users: {', '.join(open_files)}", f"Run: chmod 600 {files}")
    else:
        yield ok("state", f"{paths.state} · 0700 · writable")


def _secrets(settings: HostSettings, environment: Mapping[str, str]) -> Iterator[Finding]:
    for key, reference in settings.secret_references().items():
        try:
            value = resolve(reference, environment)
        except ConfigError as error:
            yield failed(key, error.message, error.remedy)
            continue
        if value is None:
            yield failed(key, f"{reference} is not set", "Set it where hostside is started, or name another reference.")
        else:
            yield ok(key, f"{reference} is set (not shown)")


def _repository(settings: HostSettings) -> Iterator[Finding]:
    if settings.run.repository is not None:
        yield ok("repository", str(check_repository(settings.run.repository)))


async def _opened(environment: Mapping[str, str], config: Path | None, settings: HostSettings) -> list[Finding]:
    """Return what only an open host tells. It is opened without any secret: a broken one is a finding of its own."""
    open_with = HostSettings.model_validate(
        {
            "trackers": {name: item for name, item in settings.trackers.items() if item.kind == "file"},
            "run": settings.run,
            "policy": settings.policy,
        }
    )
    try:
        app = App.open(config=config, environment=environment, settings=open_with)
    except ConfigError as error:
        return [failed("store", error.message, error.remedy)]
    with app:
        findings = [ok("store", f"{app.paths.database} · readable and writable")]
        findings += await _trackers(app, settings)
        checks = (("clock", _clock), ("workflows", _workflows), ("runs", _runs), ("receipts", _receipts))
        for name, check in checks:
            findings += _safely(name, lambda check=check: check(app))  # type: ignore[misc]
    return findings


async def _trackers(app: App, settings: HostSettings) -> list[Finding]:
    found = []
    for name, section in settings.trackers.items():
        label = f"trackers.{name}"
        if section.kind != "file":
            found.append(warning(label, f"{section.kind}: not supported by this version", "Use the kind file."))
            continue
        try:
            _, adapter = app.tracker(name)
            adapter.check_credential()
            issues = await adapter.fetch_by_states(section.states)
        except ConfigError as error:
            found.append(failed(label, error.message, error.remedy))
        except (ToolRefused, ToolFailed) as error:
            found.append(failed(label, str(error), error.remedy))
        else:
            found.append(_read_tracker(label, Path(section.path).expanduser(), len(issues)))
    return found


def _read_tracker(label: str, file: Path, issues: int) -> Finding:
    if not file.exists():
        return warning(label, f"{file} does not exist: no issues", "Write the file, or mend trackers.*.path.")
    return ok(label, f"file · {file} · {issues} issue(s)")


def _clock(app: App) -> Iterator[Finding]:
    newest = app.sessions.list(limit=1)
    now = utc_now()
    if newest and to_instant(str(newest[0]["opened_at"])) > now + _AHEAD:
        yield failed(
            "clock",
            f"it is {now:%Y-%m-%d %H:%M} UTC here, and the newest session was opened later than that",
            "Set the clock (timedatectl set-ntp true): tokens and receipts depend on it.",
        )
    else:
        yield ok("clock", f"{now:%Y-%m-%d %H:%M} UTC · not before the newest record")


def _workflows(app: App) -> Iterator[Finding]:
    entries = app.trust.entries()
    named = ", ".join(sorted({entry.get("source", "?") for entry in entries.values()}))
    yield ok("workflows", f"{len(entries)} trusted" + (f": {named}" if named else ""))


def _runs(app: App) -> Iterator[Finding]:
    live = app.runs.live_runs()
    left = [run.run_id for run in live if run.pid is None or started_at(run.pid) != run.pid_started_at]
    if left:
        yield warning("runs", f"left over by a dead host: {', '.join(left)}", "Run `hostside runs list`; it ends them.")
    else:
        yield ok("runs", f"{len(live)} running, none left over")


def _receipts(app: App) -> Iterator[Finding]:
    sessions = [str(row["session_id"]) for row in app.sessions.list(limit=NEWEST_SESSIONS)]
    reports = [verify(app.database, session_id) for session_id in sessions]
    broken = [fault.session_id for report in reports for fault in report.broken]
    count = sum(report.receipts for report in reports)
    if broken:
        yield failed(
            "receipts",
            f"the chain of {', '.join(broken)} does not hold",
            "Run `hostside receipts verify`; someone or something changed the store.",
        )
    else:
        yield ok("receipts", f"{count} in the newest {len(sessions)} session(s), chain verified")
