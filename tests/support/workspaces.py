"""A workspace folder with the gateway of the file tools over it."""

from pathlib import Path

from hostside.core.call import ToolResult, Workspace
from hostside.core.gateway import Gateway
from hostside.core.receipt import ReceiptLog
from hostside.errors import Effect, FailureCode
from hostside.tools.files import file_tools
from hostside.tools.git import git_tools
from hostside.tools.search import search_tools
from tests.support.gateways import make_gateway
from tests.support.system_git import SystemGit


def a_workspace(root: Path, *, branch: str | None = None) -> Workspace:
    """Return the workspace of an existing folder, by its real path as the host finds it."""
    return Workspace(id="ws-1", root=str(root.resolve(strict=True)), branch=branch)


def workspace_gateway(
    root: Path, *, branch: str | None = None, runner: SystemGit | None = None, receipts: ReceiptLog | None = None
) -> Gateway:
    """Return a real gateway with the file, search and git tools of the folder."""
    workspace = a_workspace(root, branch=branch)
    git_runner = runner or SystemGit(Path(workspace.root))
    tools = (*file_tools(workspace), *search_tools(workspace), *git_tools(git_runner, workspace))
    return make_gateway(tools, workspace=workspace, receipts=receipts)


def refusal(result: ToolResult) -> tuple[FailureCode, Effect] | None:
    """Return the code and effect of a failure, None for a success."""
    return None if result.failure is None else (result.failure.code, result.failure.effect)


def tree(root: Path) -> dict[str, bytes | str]:
    """Return every path below a folder but git's own, with content, `dir` or `-> target`."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if ".git" in path.relative_to(root).parts:
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "dir" if path.is_dir() else path.read_bytes() if path.is_file() else "special"
    return found
