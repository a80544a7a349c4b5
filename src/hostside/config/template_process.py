"""Renders one Liquid template; runs as a program of its own (`workflow_template`), which holds nothing worth having.

Reads `{"template", "variables"}` from stdin, writes `{"text"}` or `{"error"}` to stdout. It imports nothing of the
package: a template is whatever the repository's authors wrote, and Liquid's own limits count neither the parser's time
nor what one filter makes. The kernel does.
"""

import json
import resource
import sys
from typing import Any

from liquid import Environment, StrictUndefined
from liquid.exceptions import LiquidError, ResourceLimitError

CPU_SECONDS = 3
MEMORY_BYTES = 512 * 1024 * 1024
OUTPUT_BYTES = 524_288
LOOPS = 100_000
NAMESPACE_BYTES = 2_000_000


class Bounded(Environment):
    """Liquid with every limit that it has; no template can name another one."""

    context_depth_limit = 20
    block_nesting_limit = 20
    loop_iteration_limit = LOOPS
    local_namespace_limit = NAMESPACE_BYTES
    output_stream_limit = OUTPUT_BYTES


def main() -> int:
    """Bound this process, then render."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # No file grows: output goes to a pipe.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    task = json.load(sys.stdin)
    json.dump(_render(task["template"], task["variables"]), sys.stdout)
    return 0


def _render(template: str, variables: dict[str, Any]) -> dict[str, str]:
    try:
        environment = Bounded(undefined=StrictUndefined, strict_filters=True)
        for name in ("include", "render"):
            environment.tags.pop(name, None)
        return {"text": environment.from_string(template).render(**variables)}
    except ResourceLimitError as exc:
        return {"error": f"it does too much: {exc.message}"}
    except LiquidError as exc:
        return {"error": str(exc.message)}
    except (MemoryError, RecursionError, OverflowError) as exc:
        return {"error": f"it does too much ({type(exc).__name__})"}
    except Exception as exc:  # the engine's own faults are the template's, too
        return {"error": f"it cannot be rendered ({type(exc).__name__})"}


if __name__ == "__main__":
    sys.exit(main())
