"""Tools with which edges are tried: quick, slow, endless, noisy and broken ones. `EdgeTools` knows what each was given."""

import logging
import os
import sys
import warnings

import anyio

from hostside.core.call import CallContext, ToolResult
from hostside.core.canonical import JsonObject
from hostside.core.spec import Tool
from hostside.errors import Effect
from tests.support.tools import a_tool, a_write_spec, schema

TEXT: dict[str, object] = {"text": {"type": "string"}}
DONE = schema({"done": {"type": "boolean"}}, ("done",))


class EdgeTools:
    """One set of tools. `calls` are `(tool, arguments)` of every execution that began, `cancelled` the tools cut short.

    `started` is set when `endless`, `stubborn` or `steady` begins; `release` lets `endless` and `steady` end.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, JsonObject]] = []
        self.cancelled: list[str] = []
        self.started = anyio.Event()
        self.release = anyio.Event()
        self.child_pid: int | None = None

    def all(self) -> list[Tool]:
        """Return the tools."""
        return [
            a_tool(self._echo, name="echo", input_schema=schema(TEXT, ("text",)), output_schema=schema(TEXT)),
            a_tool(
                self._slow_echo,
                name="slow_echo",
                input_schema=schema({**TEXT, "ms": {"type": "integer", "minimum": 0}}, ("text", "ms")),
                output_schema=schema(TEXT),
            ),
            a_tool(self._done, name="demo_noarg", output_schema=DONE),
            a_tool(
                self._done,
                name="demo_get",
                input_schema=schema({"issue": {"type": "integer"}}, ("issue",)),
                output_schema=DONE,
            ),
            a_tool(self._endless, name="endless", output_schema=DONE, timeout_seconds=60.0),
            a_tool(self._steady, name="steady", output_schema=DONE, timeout_seconds=60.0),
            a_tool(self._noisy, name="noisy", output_schema=DONE),
            a_tool(self._broken, name="broken", output_schema=DONE),
            a_tool(self._child, name="child", output_schema=DONE, timeout_seconds=60.0),
            a_tool(self._endless, spec=a_write_spec("slow_write", output_schema=DONE, timeout_seconds=60.0)),
        ]

    async def _echo(self, arguments: JsonObject, _context: CallContext) -> ToolResult:
        self.calls.append(("echo", arguments))
        return ToolResult(structured={"text": arguments["text"]})

    async def _slow_echo(self, arguments: JsonObject, _context: CallContext) -> ToolResult:
        self.calls.append(("slow_echo", arguments))
        milliseconds = arguments["ms"]
        assert isinstance(milliseconds, int)
        await anyio.sleep(milliseconds / 1_000)
        return ToolResult(structured={"text": arguments["text"]})

    async def _done(self, arguments: JsonObject, _context: CallContext) -> ToolResult:
        self.calls.append(("done", arguments))
        return ToolResult(structured={"done": True})

    async def _endless(self, arguments: JsonObject, _context: CallContext) -> ToolResult:
        self.calls.append(("endless", arguments))
        self.started.set()
        try:
            await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append("endless")
            raise
        return ToolResult(structured={"done": True}, effect=Effect.REPORTED)

    async def _steady(self, arguments: JsonObject, context: CallContext) -> ToolResult:
        """Report progress every 20 ms until released."""
        self.calls.append(("steady", arguments))
        self.started.set()
        step = 0
        try:
            while not self.release.is_set():
                step += 1
                await context.progress(step, None, f"step {step}\u2028\ud800")
                with anyio.move_on_after(0.02):
                    await self.release.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append("steady")
            raise
        return ToolResult(structured={"done": True})

    async def _noisy(self, arguments: JsonObject, _context: CallContext) -> ToolResult:
        self.calls.append(("noisy", arguments))
        print("hello from a handler")
        sys.stdout.write("unflushed")
        os.write(1, b"raw bytes\n")
        warnings.warn("a library warns", stacklevel=1)
        logging.getLogger("noisy").debug("a library logs")
        await anyio.run_process(["sh", "-c", "echo Cloning into x...; cat"], stdin=None, stdout=None, stderr=None)
        return ToolResult(structured={"done": True})

    async def _broken(self, arguments: JsonObject, _context: CallContext) -> ToolResult:
        self.calls.append(("broken", arguments))
        raise RuntimeError("CANARY inside an exception")

    async def _child(self, _arguments: JsonObject, _context: CallContext) -> ToolResult:
        async with await anyio.open_process(["sleep", "600"]) as child:
            self.child_pid = child.pid
            sys.stderr.write(f"child {child.pid}\n")
            sys.stderr.flush()
            self.started.set()
            await child.wait()
        return ToolResult(structured={"done": True})
