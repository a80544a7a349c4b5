"""The model of one run: its access, and the proxy that stands between its agent and the provider (D10)."""

import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import anyio.to_thread

from hostside.core.session import Session
from hostside.store.sessions import SessionStore, TokenKind
from hostside.worker.agent import AgentOutcome, AgentSettings, AgentTask, EndState
from hostside.worker.model_provider import ModelProvider
from hostside.worker.model_proxy import ModelAccess, ModelProxy, ModelUpstream
from hostside.worker.model_usage import ModelMeter


def model_upstream(settings: AgentSettings, provider: ModelProvider) -> ModelUpstream:
    """Return where the agent's model is. Raises `ConfigError` as `ModelUpstream` does."""
    return ModelUpstream(
        provider=provider,
        url=settings.model_base_url or provider.default_upstream,
        key=settings.model_key,
        login=settings.model_login,
    )


def run_model(
    task: AgentTask, listener: socket.socket, address: tuple[str, int], upstream: ModelUpstream
) -> ModelProxy:
    """Return the proxy of the task's agent, to be entered; its events are the run's."""
    return ModelProxy(listener, address=address, upstream=upstream, access=task.model, event=task.event)


async def issue_model_access(
    sessions: SessionStore, session: Session, meter: ModelMeter, *, now: Callable[[], datetime]
) -> ModelAccess:
    """Mint the session's model token. It opens the model and nothing else, for this session alone, and dies with it."""
    token = await anyio.to_thread.run_sync(
        lambda: sessions.mint_token(
            session.session_id, TokenKind.MODEL, server_id=session.server_id, expires_at=session.expires_at
        )
    )

    async def authenticate(text: str) -> bool:
        record = sessions.authenticate(text, server_id=session.server_id, kind=TokenKind.MODEL, now=now())
        return record is not None and record.session_id == session.session_id

    return ModelAccess(token=token, authenticate=authenticate, meter=meter)


def with_budget(outcome: AgentOutcome, meter: ModelMeter) -> AgentOutcome:
    """Return the outcome with the host's own count in its usage; a failure after a refused request is the budget's."""
    counted = meter.as_object()
    if not counted:
        return outcome
    outcome = replace(outcome, usage={**outcome.usage, "model": counted})
    if meter.exhausted is None or outcome.state is not EndState.FAILED:
        return outcome
    return replace(outcome, reason="budget_exhausted", detail=f"the run's budget is used up: {meter.exhausted}")
