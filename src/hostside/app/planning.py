"""From configuration and a person's words to the plan of one run. Nothing is started here."""

import getpass
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hostside.app.host import App, new_id, utc_now, workspace_tools
from hostside.app.network import plan_network
from hostside.config.host import HostSettings
from hostside.config.paths import HostPaths
from hostside.config.workflow import Workflow, default_workflow, parse_workflow, workflow_digest
from hostside.config.workflow import read_workflow as read_operator_workflow
from hostside.core.canonical import JsonValue
from hostside.core.policy import Profile
from hostside.core.spec import Tool
from hostside.errors import ConfigError
from hostside.tools.git_runner import GitRunner
from hostside.worker.agent import AgentRuntime, AgentSettings
from hostside.worker.agent_discovery import find_agent
from hostside.worker.checkout import read_committed
from hostside.worker.child_environment import EnvironmentSource
from hostside.worker.claude import ClaudeRuntime
from hostside.worker.claude_command import KEY_VARIABLES, claude_binds
from hostside.worker.codex import CodexRuntime
from hostside.worker.codex_exec import CodexExecRuntime
from hostside.worker.codex_launch import codex_binds
from hostside.worker.demo_world import DemoWorld, script
from hostside.worker.isolation import RunIsolation
from hostside.worker.isolation_level import IsolationLevel, choose, probe_levels
from hostside.worker.model_usage import ModelBudget
from hostside.worker.process import RunUser
from hostside.worker.run_places import DEFAULT_HOMES, DEFAULT_WORKSPACES, check_reach, scratch
from hostside.worker.run_plan import RunPlan, RunServices
from hostside.worker.run_user import explained, own_environment, refuse_at_home, resolve_run_user
from hostside.worker.run_user_claim import claimed
from hostside.worker.sandbox_args import Bind
from hostside.worker.scripted import ScriptedRuntime, read_script, scripted_binds
from hostside.worker.workspace import check_repository

START_SECONDS = 30.0
_CLAUDE_EDGES = {"auto": "auto", "inband": "inband", "http": "run-http"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWishes:
    """What a person asked for on the command line; None leaves it to the configuration."""

    identifier: str
    agent: str | None = None
    workflow_file: Path | None = None
    isolation: str | None = None
    strict: bool = False


def isolation_level(
    settings: HostSettings, wished: str | None, *, demo: bool, secrets_configured: bool
) -> IsolationLevel:
    """Return the level of a run; `auto` tries what this machine can do (D9). Raises ConfigError with the remedy."""
    requested = wished or settings.run.isolation
    if requested not in ("auto", "bwrap", "user", "home"):
        raise ConfigError(
            "invalid_configuration",
            f"there is no isolation level {requested}.",
            remedy="Use auto, bwrap, user or home.",
        )
    user = None if demo else run_user_of(settings)
    if requested == "home":
        refuse_at_home(user)
    report = explained(probe_levels(user), user) if requested != "home" else None
    return choose(requested, secrets_configured=secrets_configured, demo=demo, report=report)  # type: ignore[arg-type]


def run_user_of(settings: HostSettings) -> RunUser | None:
    """Return the operating system user of runs; None where none is configured. Raises ConfigError for one that cannot be."""
    return None if settings.run.user is None else resolve_run_user(settings.run.user)


def run_folders(settings: HostSettings, paths: HostPaths, user: RunUser | None) -> tuple[Path, Path]:
    """Return the folder of run homes and that of workspaces: in the host's state, or where `user` can get to (D8)."""
    run = settings.run
    homes, workspaces = (paths.runs, paths.workspaces) if user is None else (DEFAULT_HOMES, DEFAULT_WORKSPACES)
    return (
        homes if run.homes is None else Path(run.homes).expanduser(),
        workspaces if run.workspaces is None else Path(run.workspaces).expanduser(),
    )


def isolation_maker(
    app: App, level: IsolationLevel, home: Path, user: RunUser | None = None
) -> Callable[[Path, Sequence[Bind]], RunIsolation]:
    """Return a function that makes the isolation of one folder for the host's own set-up, at the run's level."""
    source = environment_source(app, base=own_environment(app.environment, user, level))

    def make(folder: Path, binds: Sequence[Bind]) -> RunIsolation:
        return RunIsolation(
            level=level, workspace=folder, home=home, environment=source, ro_binds=tuple(binds), user=user
        )

    return make


def environment_source(
    app: App, facts: Mapping[str, str] | None = None, *, base: Mapping[str, str] | None = None
) -> EnvironmentSource:
    """Return the environment contract of this host's runs; `base` stands in for the host's own variables."""
    return EnvironmentSource(
        base=app.environment if base is None else base,
        declared_secrets=app.secrets.names,
        secret_values=frozenset(app.secrets.values.values()),
        run_facts=dict(facts or {}),
    )


def agent_of(app: App, kind: str, workflow: Workflow) -> AgentSettings:
    """Return how the agent is started: its executable found, its key resolved. Raises ConfigError."""
    section = app.settings.agent
    configured = section.executable if section.kind == kind else None
    found = None if kind == "scripted" else find_agent(kind, configured, app.environment)
    part = workflow.codex if kind == "codex" else workflow.claude
    own = section.kind == kind
    limit = app.settings.run.max_minutes * 60.0
    key = _model_key(app) if own else None
    return AgentSettings(
        kind=kind,
        executable=None if found is None else found.executable,
        version=None if found is None else found.version,
        model=part.model or (section.model if own else None),
        model_base_url=section.base_url if own else None,
        model_key=key,
        model_login=key is not None and section.key_kind == "login",
        model_budget=ModelBudget(max_requests=section.max_requests, max_tokens=section.max_tokens),
        native_tools="off" if kind == "scripted" else section.native_tools,
        turn_timeout_seconds=min(part.turn_timeout_ms / 1000, limit),
        stall_timeout_seconds=part.stall_timeout_ms / 1000,
        start_timeout_seconds=START_SECONDS,
        max_turns=workflow.agent.max_turns,
    )


def _model_key(app: App) -> str | None:
    section, key = app.settings.agent, app.secrets.values.get("agent.key")
    if section.key is not None and key is None:
        raise ConfigError(
            "invalid_configuration",
            "agent.key refers to a secret that has no value.",
            remedy=f"Provide {section.key}; leave the key out where the model needs none.",
        )
    return key


def runtime_of(kind: str, script_bytes: bytes | None, *, edge: str = "auto") -> AgentRuntime:
    """Return the runtime of an agent kind. Raises ConfigError for an unknown kind, or a script that is missing.

    `edge` is `agent.edge` of the settings; the scripted agent has one alone, over HTTP.
    """
    if kind == "claude":
        return ClaudeRuntime(_CLAUDE_EDGES[edge])
    if kind == "codex":
        return CodexExecRuntime() if edge == "http" else CodexRuntime()
    if kind != "scripted":
        raise ConfigError(
            "invalid_configuration", f"there is no agent {kind}.", remedy="Use claude, codex or scripted."
        )
    if script_bytes is None:
        raise ConfigError(
            "invalid_configuration",
            "the scripted agent has no script.",
            remedy="Set agent.script in hostside.toml to a file of steps.",
        )
    return ScriptedRuntime(script_bytes)


def binds_of(settings: AgentSettings) -> tuple[Bind, ...]:
    """Return what a sandbox must show of the agent."""
    if settings.kind == "scripted" or settings.executable is None:
        return scripted_binds()
    return claude_binds(settings.executable) if settings.kind == "claude" else codex_binds(settings.executable)


def offered_tools(settings: HostSettings, native_tools: str) -> Callable[[GitRunner], Sequence[Tool]]:
    """Return the families of workspace tools that a run offers: what the agent lacks, and what is configured (D26)."""
    families = frozenset(settings.run.tools)
    unknown = families - {"files", "git"}
    if unknown:
        raise ConfigError(
            "invalid_configuration",
            f"run.tools: there is no tool family {sorted(unknown)[0]}.",
            remedy="Use files and git.",
        )
    if native_tools == "off":
        families |= {"files", "git"}

    def make(git: GitRunner) -> Sequence[Tool]:
        return [tool for tool in workspace_tools(git) if _family(tool) in families]

    return make


def _family(tool: Tool) -> str:
    return "git" if tool.spec.name.startswith("git_") else "files"


async def read_workflow(
    app: App, wishes: RunWishes, repository: Path | None, level: IsolationLevel, user: RunUser | None = None
) -> Workflow:
    """Return the workflow: the operator's file, else the one committed on the repository's default branch, else a default.

    Read once, from the operator's path or a commit, never from a workspace (D16). With `strict` a key that is not
    trusted stops the run instead of being ignored.
    """
    raw = await _workflow_bytes(app, wishes, repository, level, user)
    if raw is None:
        return default_workflow()
    trusted = app.trust.is_trusted(workflow_digest(raw))
    workflow = parse_workflow(raw, trusted=trusted, limits=app.settings.workflow_limits())
    if wishes.strict and workflow.ignored:
        raise ConfigError(
            "invalid_configuration",
            f"WORKFLOW.md sets keys that need trust: {', '.join(workflow.ignored)}.",
            remedy="Read the file, then run `hostside workflow trust FILE`; without --strict they are ignored.",
        )
    return workflow


async def _workflow_bytes(
    app: App, wishes: RunWishes, repository: Path | None, level: IsolationLevel, user: RunUser | None
) -> bytes | None:
    if wishes.workflow_file is not None:
        return read_operator_workflow(wishes.workflow_file)
    if repository is None:
        return None
    homes, _ = run_folders(app.settings, app.paths, user)
    # Claimed already here: a live run of the same user could change what this git prints.
    async with claimed(user, level, homes):
        with scratch(user, homes) as (home, folder):
            make = isolation_maker(app, level, home, user)
            isolation = make(folder, (Bind(source=repository, target=str(repository)),))
            return await read_committed(isolation, repository, app.settings.run.base_branch or "HEAD", "WORKFLOW.md")


async def plan_run(app: App, wishes: RunWishes, *, demo: bool = False) -> RunPlan:
    """Return the plan of a run on a configured tracker. Raises ConfigError for whatever a person has to mend first.

    `demo`: the embedded world, whose script comes with it and which alone may fall back to isolation `home`.
    """
    settings = app.settings
    level = isolation_level(
        settings, wishes.isolation, demo=demo, secrets_configured=bool(settings.secret_references())
    )
    kind = wishes.agent or settings.agent.kind
    user = None if demo else run_user_of(settings)
    repository = repository_of(settings)
    check_reach(user, [] if repository is None else [repository])
    workflow = await read_workflow(app, wishes, repository, level, user)
    tracker_name, adapter = app.tracker(workflow.tracker.name or workflow.tracker.kind)
    agent = agent_of(app, kind, workflow)
    runtime = runtime_of(kind, script() if demo else _script_of(settings), edge=settings.agent.edge)
    binds = binds_of(agent)
    check_reach(user, [bind.source for bind in binds])
    homes, workspaces = run_folders(settings, app.paths, user)
    return RunPlan(
        run_id=new_id("r"),
        identifier=wishes.identifier,
        tracker_name=tracker_name,
        adapter=adapter,
        runtime=runtime,
        agent=agent,
        agent_binds=binds,
        workflow=workflow,
        repository=repository,
        base_branch=settings.run.base_branch,
        workspaces=workspaces,
        runs_folder=homes,
        level=level,
        network=await plan_network(app, level),
        user=user,
        profile=Profile(settings.run.profile),
        policy=app.policy(),
        policy_sha256=app.policy_sha256(),
        workspace_tools=offered_tools(settings, agent.native_tools),
        host_environment=own_environment(app.environment, user, level),
        # By name the agent's own variable passes: what it holds in the run is the run's token, and values are looked at too.
        secret_names=(app.secrets.names | adapter.secret_environment_names()) - frozenset(KEY_VARIABLES),
        secret_values=frozenset(app.secrets.values.values()),
        git_identity=git_identity(settings.run.author_name, settings.run.author_email),
        max_duration=timedelta(minutes=settings.run.max_minutes),
        started_by=getpass.getuser(),
    )


def demo_settings(world: DemoWorld, states: Sequence[str], base: HostSettings) -> HostSettings:
    """Return the settings of the embedded world; the agent's section is the operator's own."""
    return HostSettings.model_validate(
        {
            "trackers": {"demo": {"kind": "file", "path": str(world.tracker), "states": tuple(states)}},
            "agent": base.agent,
            "run": {
                "repository": str(world.origin),
                "workspaces": str(world.workspaces),
                "tools": ("files", "git"),
                "author_name": "Hostside Demo",
                "author_email": "demo@hostside.invalid",
            },
        }
    )


def _script_of(settings: HostSettings) -> bytes | None:
    file = settings.agent.script
    return None if file is None else read_script(Path(file).expanduser())


def repository_of(settings: HostSettings) -> Path | None:
    """Return the local repository of runs, or None: the workspace then begins empty."""
    configured = settings.run.repository
    if configured is None and settings.code is not None and settings.code.kind == "local":
        configured = settings.code.repository
    return None if configured is None else check_repository(configured)


def git_identity(name: str, email: str) -> dict[str, str]:
    """Return the author of every commit in a run's workspace (R-327)."""
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }


def services_of(app: App, tell: Callable[[str, Mapping[str, JsonValue]], None]) -> RunServices:
    """Return the host behind a run of this process."""
    return RunServices(
        host=app.host,
        database=app.database,
        receipts=app.receipts,
        sessions=app.sessions,
        runs=app.runs,
        redactor=app.redactor,
        server_id=app.server_id,
        now=utc_now,
        monotonic=app.host.monotonic,
        new_id=new_id,
        tell=tell,
    )
