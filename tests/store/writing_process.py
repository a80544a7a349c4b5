"""A process that writes calls until it is killed, and says so line by line: `python -m tests.store.writing_process`.

Arguments: the file, a session id, the prefix of its receipt ids, how many calls (0: without end).
"""

import asyncio
import itertools
import sys
from pathlib import Path

from tests.store.rows import OUTCOME, finished, open_store, record, started


async def write(path: Path, session_id: str, prefix: str, count: int) -> None:
    """Start and end calls; print the id of each whose `started` has returned, before anything else is done."""
    store = open_store(path)
    for number in itertools.count() if count == 0 else range(count):
        receipt_id = f"{prefix}-{number}"
        record(store, f"{receipt_id}-read", session_id)
        await store.receipts.started(started(receipt_id, session_id), journal_keys=(f"key:{receipt_id}",))
        print(receipt_id, flush=True)
        if number % 3:
            await store.receipts.finished(finished(receipt_id, session_id), outcome=OUTCOME)
    store.close()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
