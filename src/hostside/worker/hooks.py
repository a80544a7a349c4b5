"""The hooks of a workspace's life: only trusted ones, inside the run's isolation, bounded in time and words (R-336..R-339)."""

from dataclasses import dataclass
from enum import StrEnum

from hostside.core.gateway import EventSink
from hostside.core.redaction import Redactor
from hostside.errors import HostsideError
from hostside.worker.isolation import RunIsolation
from hostside.worker.process import LaunchError

OUTPUT_BYTES = 20_000
LOGGED_CHARACTERS = 2_000


class HookName(StrEnum):
    """In the order of a run. The first two stop it when they fail; the last two are logged and passed over."""

    AFTER_CREATE = "after_create"
    BEFORE_RUN = "before_run"
    AFTER_RUN = "after_run"
    BEFORE_REMOVE = "before_remove"


FATAL = frozenset({HookName.AFTER_CREATE, HookName.BEFORE_RUN})


class HookFailed(HostsideError):
    """A fatal hook failed or ran out of time. The message names the hook and how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRunner:
    """Runs the scripts of one workflow. `scripts` holds only what the operator has trusted."""

    isolation: RunIsolation
    scripts: dict[HookName, str]
    timeout_seconds: float
    redactor: Redactor
    event: EventSink

    async def run(self, name: HookName) -> None:
        """Run a hook in the workspace, if there is one. Raises HookFailed for a fatal one that does not exit with 0."""
        script = self.scripts.get(name)
        if not script:
            return
        self.event("hook_started", {"hook": name.value})
        try:
            done = await self.isolation.run(
                ["/bin/sh", "-c", script], timeout_seconds=self.timeout_seconds, output_limit_bytes=OUTPUT_BYTES
            )
        except (LaunchError, TimeoutError) as exc:
            self.event("hook_finished", {"hook": name.value, "exit_code": None, "timed_out": False})
            self._fail(name, f"could not be started ({type(exc).__name__})")
            return
        said = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").strip()
        output = self.redactor.text(said)[-LOGGED_CHARACTERS:]
        self.event(
            "hook_finished",
            {"hook": name.value, "exit_code": done.exit_code, "timed_out": done.timed_out, "output": output},
        )
        if done.timed_out:
            self._fail(name, f"did not end within {self.timeout_seconds:g} s and was killed")
        elif done.exit_code != 0:
            last = output.splitlines()[-1] if output else "it said nothing"
            self._fail(name, f"exited with {done.exit_code}: {last[:300]}")

    def _fail(self, name: HookName, how: str) -> None:
        if name in FATAL:
            raise HookFailed(f"the hook {name} {how}")
