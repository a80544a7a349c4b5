"""The hooks of a workspace's life: only trusted ones, inside the run's isolation, bounded in time and words (R-336..R-339)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hostside.config.workflow import Workflow
from hostside.core.gateway import EventSink
from hostside.core.redaction import Redactor
from hostside.errors import HostsideError
from hostside.worker.isolation import RunIsolation
from hostside.worker.process import Completed, LaunchError

OUTPUT_BYTES = 20_000
LOGGED_CHARACTERS = 2_000
#: Left out after redaction where output was cut: the cut may have gone through a secret, and half of one stays visible.
CUT_MARGIN = 1_024


class HookName(StrEnum):
    """In the order of a run. The first two stop it when they fail; the last two are logged and passed over."""

    AFTER_CREATE = "after_create"
    BEFORE_RUN = "before_run"
    AFTER_RUN = "after_run"
    BEFORE_REMOVE = "before_remove"


FATAL = frozenset({HookName.AFTER_CREATE, HookName.BEFORE_RUN})


class HookFailed(HostsideError):
    """A fatal hook failed or ran out of time. The message names the hook and how it ended."""


def trusted_scripts(workflow: Workflow) -> dict[HookName, str]:
    """Return the scripts that may run: none of content that the operator has not trusted (R-338)."""
    if not workflow.trusted:
        return {}
    scripts = {name: getattr(workflow.hooks, name.value) for name in HookName}
    return {name: script for name, script in scripts.items() if script and script.strip()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRunner:
    """Runs the scripts of one workflow. `scripts` holds only what the operator has trusted (`trusted_scripts`)."""

    isolation: RunIsolation
    scripts: Mapping[HookName, str]
    timeout_seconds: float
    redactor: Redactor
    event: EventSink

    async def run(self, name: HookName) -> None:
        """Run a hook with `/bin/sh` in the workspace, if there is one. Raises HookFailed for a fatal one that does not
        exit with 0; one that is not fatal raises nothing.

        Events: `hook_started`, then `hook_finished` with `exit_code` (None: it did not start), `timed_out` and
        `output`, the redacted end of what it printed, at most 2,000 characters. At the deadline its whole process
        group is killed, and cancellation does the same.
        """
        script = self.scripts.get(name)
        if not script:
            return
        self.event("hook_started", {"hook": name.value})
        try:
            done = await self.isolation.run(
                ["/bin/sh", "-c", script], timeout_seconds=self.timeout_seconds, output_limit_bytes=OUTPUT_BYTES
            )
        except (LaunchError, TimeoutError, ValueError) as exc:
            self._finished(name, exit_code=None, timed_out=False, output="")
            self._fail(name, f"could not be started ({type(exc).__name__})")
            return
        output = _said(done, self.redactor)[-LOGGED_CHARACTERS:]
        self._finished(name, exit_code=done.exit_code, timed_out=done.timed_out, output=output)
        if done.timed_out:
            self._fail(name, f"did not end within {self.timeout_seconds:g} s and was killed")
        elif done.exit_code != 0:
            last = output.splitlines()[-1] if output else "it said nothing"
            self._fail(name, f"exited with {done.exit_code}: {last[:300]}")

    def _finished(self, name: HookName, *, exit_code: int | None, timed_out: bool, output: str) -> None:
        self.event(
            "hook_finished", {"hook": name.value, "exit_code": exit_code, "timed_out": timed_out, "output": output}
        )

    def _fail(self, name: HookName, how: str) -> None:
        if name in FATAL:
            raise HookFailed(f"the hook {name} {how}")


def _said(done: Completed, redactor: Redactor) -> str:
    """Return the beginning of stdout, then the end of stderr, redacted."""
    stdout, stderr = (redactor.text(part.decode("utf-8", "replace")) for part in (done.stdout, done.stderr))
    if done.truncated and len(done.stdout) >= OUTPUT_BYTES:
        stdout = stdout[:-CUT_MARGIN]
    if done.truncated and len(done.stderr) >= OUTPUT_BYTES:
        stderr = stderr[CUT_MARGIN:]
    return "\n".join((stdout.strip(), stderr.strip())).strip()
