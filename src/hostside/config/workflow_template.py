"""Rendering the prompt of WORKFLOW.md: strict, and bounded whatever the template does (Symphony §5.4)."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostside.core.issue import Issue

SECONDS = 10.0
_MAX_REASON = 200
_PROGRAM = Path(__file__).with_name("template_process.py")


class TemplateError(Exception):
    """Why the prompt cannot be rendered."""


def render_template(template: str, variables: Mapping[str, Any]) -> str:
    """Return the text of `template`. Raises TemplateError: a syntax error, an unknown variable, filter or tag, another
    template, or more than 3 seconds, 512 MB, 100,000 loops or 512 KiB of text. Blocks the caller up to 10 seconds."""
    # The file, not the module: the child needs nothing of this package.
    argv = [sys.executable, "-I", "-B", "-X", "utf8", str(_PROGRAM)]
    task = json.dumps({"template": template, "variables": dict(variables)}).encode()
    try:
        done = subprocess.run(
            argv, input=task, capture_output=True, timeout=SECONDS, check=False, env={}, cwd="/", start_new_session=True
        )
    except subprocess.TimeoutExpired:
        raise TemplateError("it takes too long") from None
    except OSError as exc:
        raise TemplateError(f"{sys.executable} cannot be started ({exc.strerror})") from None
    if done.returncode != 0:
        raise TemplateError("it takes too long or too much memory")
    answer = json.loads(done.stdout)
    if "text" not in answer:
        raise TemplateError(" ".join(str(answer["error"]).split())[:_MAX_REASON])
    return str(answer["text"])


def issue_variables(issue: Issue) -> dict[str, Any]:
    """Return the fields of `issue` that a template sees (Symphony §4.1.1); times in ISO 8601."""
    return {
        "id": issue.id,
        "identifier": issue.identifier,
        "title": issue.title,
        "description": issue.description or "",
        "state": issue.state,
        "priority": issue.priority,
        "labels": list(issue.labels),
        "branch_name": issue.branch_name,
        "url": issue.url,
        "assignees": list(issue.assignees),
        "blocked_by": [
            {"id": item.id, "identifier": item.identifier, "state": item.state} for item in issue.blocked_by
        ],
        "created_at": None if issue.created_at is None else issue.created_at.isoformat(),
        "updated_at": None if issue.updated_at is None else issue.updated_at.isoformat(),
    }
