"""One script form for every scripted model: what the model does, turn by turn, whichever client asks.

    script = [
        [Call("read_issue"), Call("list_comments", {"limit": 5})],         # one turn, two calls
        lambda answers: [Call("add_comment", {"body": answers[0].text})],  # a turn that has read the answers
        HttpError(500),                                                    # a fault; the retry takes the next turn
        Say("done"),                                                       # the final message
    ]

`StubAnthropic(script)` plays it to Claude Code, `StubOpenAI(script)` to Codex. Names in a script are the host's own
(`read_issue`); each stub spells them as its client must see them and answers are reported under the same names.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

SPENT = "(the script has ended)"
_NESTED_TURNS = 8


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `arguments` given as text go out verbatim, so that a script can send broken JSON.

    `native` marks a tool of the client itself (Claude's `Read`, Codex's `exec_command`), whose name is sent as it is.
    `call_id` is chosen by the stub unless the script fixes it, for instance to send one twice.
    """

    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    _: KW_ONLY
    native: bool = False
    call_id: str | None = None

    @property
    def json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the model. A turn without a call is the final message: the client ends its own turn there."""

    text: str


class ToolAnswer(NamedTuple):
    """A tool's answer as the model read it, equal to the plain tuple `(tool, content, is_error)`.

    `content` is the text when there is one text item, else the list of the protocol's own content items.
    `is_error` is None where the protocol has no error mark for the model (Codex).
    """

    tool: str
    content: str | list[JsonObject]
    is_error: bool | None

    @property
    def text(self) -> str:
        """All text items, joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(item["text"] for item in self.content if isinstance(item.get("text"), str))

    def json(self) -> Any:
        """The text, parsed. Raises `ValueError` where it is not JSON."""
        return json.loads(self.text)


class OfferedTool(NamedTuple):
    """A tool as the client offered it to the model, under the name that a script uses for it."""

    name: str
    description: str
    input_schema: JsonObject


@dataclass(frozen=True, slots=True)
class HttpError:
    """The request is answered with this HTTP status. The client's next request, a retry too, takes the next turn."""

    status: int
    message: str = "scripted fault"
    _: KW_ONLY
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection drops after the first `events` events of `then`."""

    then: "Turn"
    events: int = 1


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing is sent until `release` is set, then `then`. After `at_most` seconds the connection drops instead."""

    release: asyncio.Event
    then: "Turn"
    at_most: float = 60.0


@dataclass(frozen=True, slots=True)
class Slow:
    """`then`, with its first byte `seconds` late."""

    then: "Turn"
    seconds: float


Part: TypeAlias = Call | Say
Fault: TypeAlias = HttpError | Cut | Hang | Slow
Step: TypeAlias = Part | Sequence[Part] | Fault
Turn: TypeAlias = Step | Callable[[list[ToolAnswer]], "Turn"]
Script: TypeAlias = Iterable[Turn]


def settle(turn: Turn, answers: list[ToolAnswer]) -> Step:
    """The step that `turn` stands for: a callable is given the answers to the calls of the model's previous turn."""
    for _ in range(_NESTED_TURNS):
        if not callable(turn):
            return turn
        turn = turn(answers)
    raise RecursionError(f"a turn was still a callable after {_NESTED_TURNS} calls")


def parts_of(step: Step) -> tuple[Part, ...]:
    """The parts of a step without a fault. Raises `TypeError` for a fault: only `Hang`, `Slow` and `Cut` wrap one."""
    if isinstance(step, Call | Say):
        return (step,)
    if isinstance(step, HttpError | Cut | Hang | Slow):
        raise TypeError(f"{type(step).__name__} cannot stand inside this fault")
    return tuple(step)
