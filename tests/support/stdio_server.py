"""A stdio server in its own process, as noisy as it can be: `python -m tests.support.stdio_server`.

On its way out it writes one line to standard error for each receipt: outcome, code, effect.
"""

from hostside.edges.descriptors import move_away

WIRE = move_away()  # before anything that could print

import logging  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402

import anyio  # noqa: E402

from hostside.edges.mcp_stdio import serve_stdio  # noqa: E402
from tests.support.edge_tools import EdgeTools  # noqa: E402
from tests.support.gateways import make_gateway  # noqa: E402
from tests.support.memory_receipts import MemoryReceipts  # noqa: E402

print("printed at import")
warnings.warn("warned at import", stacklevel=1)
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
logging.getLogger("a.library").debug("logged at import")
sys.excepthook = lambda *exc: traceback.print_exception(*exc, file=sys.stdout)


def main() -> None:
    """Serve until the input ends."""
    receipts = MemoryReceipts()
    gateway = make_gateway(EdgeTools().all(), receipts=receipts)
    anyio.run(lambda: serve_stdio(gateway, stdin_fd=WIRE.read_fd, stdout_fd=WIRE.write_fd))
    for end in receipts.ends:
        sys.stderr.write(f"receipt {end.outcome} {end.code} {end.effect}\n")


if __name__ == "__main__":
    main()
