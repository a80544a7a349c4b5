"""Function calling, for people who own their agent loop: what to offer the model, and what to answer to its calls.

The loop and its HTTP stay the owner's; this edge sits between a model's response and the boundary, in three dialects
(`function_shapes`). Decisions, results and receipts are those of every other edge (R-167, R-209).
"""

from collections.abc import Sequence
from itertools import groupby

import anyio

from hostside.core.call import ToolCall, ToolResult
from hostside.core.canonical import JsonObject, digest
from hostside.core.gateway import Gateway
from hostside.edges.function_shapes import SHAPES, AskedCall, Dialect

EDGE = "functions"
MAX_PARALLEL = 16


class FunctionEdge:
    """The tools of one session in one dialect: `responses` and `chat` (OpenAI), `messages` (Anthropic).

    One edge may serve many conversations in turn or at once; it keeps nothing between two responses.
    """

    def __init__(self, gateway: Gateway, dialect: Dialect) -> None:
        """Raises ValueError for another dialect, or a session opened for another edge: its receipts would name that."""
        if dialect not in SHAPES:
            raise ValueError(f"there is no dialect {dialect!r}; use one of {', '.join(SHAPES)}")
        if gateway.session.edge != EDGE:
            raise ValueError(f"this session was opened for the edge {gateway.session.edge!r}, not {EDGE!r}")
        self._gateway = gateway
        self._shape = SHAPES[dialect]

    def instructions(self) -> str:
        """Return text for the system prompt: what is bounded here, and why some tools are missing (D5)."""
        return self._gateway.session.instructions()

    def tools(self) -> list[JsonObject]:
        """Return the value of a request's `tools`: the session's listing in name order, names and schemas verbatim.

        A fresh copy with the same content each time. Empty when the session offers nothing; leave the field out then.
        """
        return [self._shape.tool(item) for item in self._gateway.session.listing()]

    async def answer(self, response: object, *, delivery: str | None = None) -> list[JsonObject]:
        """Run every function call of one model response and return one answer for each, in the order of the calls.

        `response` is decoded JSON: the list of items (`output`, `tool_calls`, `content`) or the object that holds it (a
        response, an assistant message, a message). Items that are no function call are passed over; no call, no answer.

        Calls of tools that change nothing run at once, up to `MAX_PARALLEL`; a call that may change something waits for
        those before it and runs alone. A failure stops nothing that comes after it. Whatever the model asked for, a
        failure is an answer; raised are TypeError for what is no response, and cancellation: calls that began then have
        their receipts. A call without an id is not run, and its answer has the id "".

        Each call is a new one, also under an id that was used before: providers and servers repeat them (D23). A loop
        that may hand the same response in twice says so itself with `delivery`, its own name for this response, unique
        in the session: what such a response has changed before is not changed again but answered from the journal.
        """
        asked = self._shape.calls(response)
        results = await self._run([_to_call(call, position, delivery) for position, call in enumerate(asked)])
        return [self._shape.answer(call.id, result) for call, result in zip(asked, results, strict=True)]

    async def _run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        results: dict[int, ToolResult] = {}
        limit = anyio.CapacityLimiter(MAX_PARALLEL)

        async def run(position: int) -> None:
            async with limit:
                results[position] = await self._gateway.call(calls[position])

        for together, positions in groupby(range(len(calls)), key=lambda position: self._reads(calls[position])):
            if not together:
                for position in positions:
                    await run(position)
                continue
            async with anyio.create_task_group() as tasks:
                for position in positions:
                    tasks.start_soon(run, position)
        return [results[position] for position in range(len(calls))]

    def _reads(self, call: ToolCall) -> bool:
        """Return whether nothing can depend on this call's turn; an unknown tool does no work at all."""
        item = self._gateway.session.registry.tools.get(call.name)
        return item is None or item.spec.read_only


def _to_call(asked: AskedCall, position: int, delivery: str | None) -> ToolCall:
    key = None if delivery is None else digest([delivery, position, asked.id])
    return ToolCall(name=asked.name, arguments=asked.arguments, delivery_key=key)
