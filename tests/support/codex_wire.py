"""A minimal client of `codex app-server`: one JSON object a line over standard input and output."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.agent_script import JsonObject

Answerer = Callable[[JsonObject], Awaitable[JsonObject]]

_LINE_LIMIT = 16 * 1024 * 1024
_STOP_WITHIN = 5.0


class WireError(Exception):
    """The server answered a request with an error, or went away before it answered."""


class CodexWire:
    """An initialised app-server. `answers` maps each request of the server to a function from params to result."""

    def __init__(self, process: asyncio.subprocess.Process, answers: Mapping[str, Answerer]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._writer, self._reader = process.stdin, process.stdout
        self._answers = answers
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._changed = asyncio.Condition()
        self._ended = False
        self.notifications: deque[JsonObject] = deque(maxlen=10_000)
        self.asked: list[JsonObject] = []

    async def request(self, method: str, params: JsonObject, *, within: float = 30.0) -> Any:
        """The result. Raises `WireError` or `TimeoutError`."""
        number = len(self._waiting) + 1
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        async with asyncio.timeout(within):
            return await self._waiting[number]

    async def until(self, method: str, *, within: float = 30.0) -> Any:
        """The params of the first notification of that name, past ones included. Raises as `request` does."""
        async with asyncio.timeout(within), self._changed:
            while True:
                for note in self.notifications:
                    if note["method"] == method:
                        return note["params"]
                if self._ended:
                    raise WireError(f"the app-server ended before {method}")
                await self._changed.wait()

    async def turn(self, thread_id: str, text: str, *, within: float = 60.0) -> Any:
        """Run one turn to its end; the finished `turn` object."""
        self.notifications.clear()
        await self.request("turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": text}]})
        return (await self.until("turn/completed", within=within))["turn"]

    async def _initialise(self) -> None:
        info = {"name": "tests", "title": "Tests", "version": "0"}
        capabilities = {"experimentalApi": True, "requestAttestation": False}
        await self.request("initialize", {"clientInfo": info, "capabilities": capabilities})
        await self._send({"method": "initialized"})

    async def _send(self, message: JsonObject) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()

    async def _read(self) -> None:
        async with asyncio.TaskGroup() as answering:
            async for line in self._reader:
                message: JsonObject = json.loads(line)
                if "method" not in message:
                    self._settle(message)
                elif "id" in message:
                    self.asked.append(message)
                    answering.create_task(self._answer(message))
                else:
                    self.notifications.append(message)
                    await self._wake()
        self._ended = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WireError("the app-server ended"))
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _settle(self, message: JsonObject) -> None:
        future = self._waiting[message["id"]]
        if future.done():  # the request timed out here meanwhile
            return
        if "error" in message:
            future.set_exception(WireError(message["error"]["message"]))
        else:
            future.set_result(message["result"])

    async def _answer(self, message: JsonObject) -> None:
        answerer = self._answers.get(message["method"])
        if answerer is None:
            error = {"code": -32601, "message": f"the test does not answer {message['method']}"}
            await self._send({"id": message["id"], "error": error})
        else:
            await self._send({"id": message["id"], "result": await answerer(message["params"])})


@asynccontextmanager
async def codex_app_server(
    command: Sequence[str], *, environment: Mapping[str, str], cwd: Path, answers: Mapping[str, Answerer]
) -> AsyncIterator[CodexWire]:
    """Start it, initialise it with the experimental interface, stop it. Its log lines go to the test's stderr."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
    )
    wire = CodexWire(process, answers)
    reading = asyncio.create_task(wire._read())
    try:
        await wire._initialise()
        yield wire
    finally:
        wire._writer.close()
        try:
            await asyncio.wait_for(process.wait(), _STOP_WITHIN)
        except TimeoutError:
            process.kill()
            await process.wait()
        async with asyncio.timeout(_STOP_WITHIN):
            await reading
