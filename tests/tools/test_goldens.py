"""The contracts of the file, search and git tools, as agents and operators see them (D19)."""

from pathlib import Path

from hostside.tools.files import file_tools
from hostside.tools.git import git_tools
from hostside.tools.search import search_tools
from tests.support.goldens import check_goldens
from tests.support.system_git import SystemGit


def test_each_workspace_tool_has_its_golden() -> None:
    check_goldens((*file_tools(), *search_tools(), *git_tools(SystemGit(Path("/")))))
