"""The host's side of a coding agent's tool calls.

A custom tool is one `ToolSpec`, one `execute` and one line that registers it (docs/guides/write-a-tool.md). The names are
the public library; they are loaded when first used, so that the command line starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostside.core.call import CallContext, ToolCall, ToolFailure, ToolResult
    from hostside.core.gateway import Gateway, Host
    from hostside.core.issue import Issue
    from hostside.core.locality import Locality, Reach
    from hostside.core.registry import Registry
    from hostside.core.scope import IssueTarget, PathTarget, RepositoryTarget
    from hostside.core.session import Session, open_session
    from hostside.core.spec import Capability, Risk, SideEffect, Tool, ToolSpec, touches_nothing
    from hostside.edges.functions import FunctionEdge
    from hostside.errors import Effect, FailureCode, ToolFailed, ToolRefused
    from hostside.tools.workspace_fs import read_file_bytes

_HOMES = {
    "CallContext": "core.call",
    "Capability": "core.spec",
    "Effect": "errors",
    "FailureCode": "errors",
    "FunctionEdge": "edges.functions",
    "Gateway": "core.gateway",
    "Host": "core.gateway",
    "Issue": "core.issue",
    "IssueTarget": "core.scope",
    "Locality": "core.locality",
    "PathTarget": "core.scope",
    "Reach": "core.locality",
    "Registry": "core.registry",
    "RepositoryTarget": "core.scope",
    "Risk": "core.spec",
    "Session": "core.session",
    "SideEffect": "core.spec",
    "Tool": "core.spec",
    "ToolCall": "core.call",
    "ToolFailed": "errors",
    "ToolFailure": "core.call",
    "ToolRefused": "errors",
    "ToolResult": "core.call",
    "ToolSpec": "core.spec",
    "open_session": "core.session",
    "read_file_bytes": "tools.workspace_fs",
    "touches_nothing": "core.spec",
}

__all__ = [
    "CallContext",
    "Capability",
    "Effect",
    "FailureCode",
    "FunctionEdge",
    "Gateway",
    "Host",
    "Issue",
    "IssueTarget",
    "Locality",
    "PathTarget",
    "Reach",
    "Registry",
    "RepositoryTarget",
    "Risk",
    "Session",
    "SideEffect",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolFailure",
    "ToolRefused",
    "ToolResult",
    "ToolSpec",
    "open_session",
    "read_file_bytes",
    "touches_nothing",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hostside' has no attribute {name!r}")
    return getattr(import_module(f"hostside.{_HOMES[name]}"), name)
