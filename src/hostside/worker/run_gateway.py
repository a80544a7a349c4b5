"""The run's gateway as its edges see it: calls hold the clock, and only while the run's token is good (R-192, R-217)."""

from hostside.core import failures
from hostside.core.call import ToolCall, ToolFailure, ToolResult
from hostside.core.gateway import Gateway
from hostside.errors import HostsideError
from hostside.worker.agent import AgentTask
from hostside.worker.run_clock import Clock


class WatchedGateway(Gateway):
    """The gateway of `task`, whose calls hold `clock`."""

    def __init__(self, task: AgentTask, clock: Clock) -> None:
        self._task = task
        self._inner = task.gateway
        self._clock = clock
        self.session = task.gateway.session
        self.called = False
        """A call came."""

    async def resolve(self, token: str) -> Gateway | None:
        """This gateway, when `token` stands for it. As `AgentTask.resolve_token` in everything else."""
        gateway = await self._task.resolve_token(token)
        # The way in is this run's: another session's token, good as it may be elsewhere, is none here.
        if gateway is None or gateway.session.session_id != self.session.session_id:
            return None
        return self

    async def call(self, call: ToolCall) -> ToolResult:
        self.called = True
        with self._clock.calling():
            return await self._inner.call(call)

    def close(self, reason: str) -> None:
        self._inner.close(reason)


class TokenlessGateway(WatchedGateway):
    """For a client that shows no token: the run's own, which nobody was given, must be good at each call.

    So a revocation ends an in-band session from the next call on too, whichever process made it.
    """

    async def call(self, call: ToolCall) -> ToolResult:
        try:
            good = await self.resolve(self._task.token) is not None
        except HostsideError:
            # It cannot be looked up, nor could a receipt be written.
            return ToolResult(failure=ToolFailure.of_refusal(failures.unrecordable()))
        if not good:
            self.close("its token is revoked or has expired")
        return await super().call(call)
