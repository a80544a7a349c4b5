"""C-01 to C-05: arguments; C-07 to C-09: what is published. `reject_or_repair` means reject here (D1)."""

import json
from typing import Any

import pytest

from hostside.core.call import ToolCall
from hostside.core.registry import Registry
from hostside.errors import RegistrationError
from tests.cases.rows import Row, rows
from tests.support.gateways import make_gateway
from tests.support.memory_receipts import MemoryReceipts
from tests.support.tools import Recorder, a_tool

pytestmark = pytest.mark.anyio

#: What holds here where the row leaves a choice, or where a value has another type than the row's wording.
ADAPTED = {"accept_as_empty_or_reject": "reject", "reject_or_repair": "reject"}


def validated() -> list[Row]:
    return [row for row in rows("C-01", "C-02", "C-03", "C-04", "C-05") if row.component == "registry.validation"]


@pytest.mark.parametrize("row", validated(), ids=lambda row: row.id)
async def test_arguments_are_taken_as_sent_or_refused(row: Row) -> None:
    execute, log = Recorder(), MemoryReceipts()
    aliases = row.input.get("aliases")
    gateway = make_gateway([a_tool(execute, input_schema=row.input["schema"], argument_aliases=aliases)], receipts=log)
    params = row.input.get("params", row.input)
    result = await gateway.call(ToolCall(name="demo_get", arguments=params.get("arguments", {})))
    outcome = ADAPTED.get(row.expect["outcome"], row.expect["outcome"])
    assert len(log.ends) == 1
    if outcome == "accept":
        assert execute.arguments == [row.expect["handler_args"]]
        for name, kind in row.expect.get("type_of", {}).items():
            assert type(execute.arguments[0][name]).__name__ == kind
        return
    assert outcome == "reject"
    assert execute.arguments == []
    assert result.failure is not None
    assert result.failure.code.value == "invalid_arguments"
    for word in row.expect.get("error_mentions", []):
        assert word in result.failure.message


def names_of(given: dict[str, Any]) -> list[list[str]]:
    if "name" in given:
        return [[given["name"]]]
    if "names" in given and "max_length" in given:
        return [given["names"]]
    if "names" in given:
        return [[name] for name in given["names"]]
    return [pair.split(" with ")[0].split("|") for pair in given["pairs"]]


@pytest.mark.parametrize("row", rows("C-08"), ids=lambda row: row.id)
def test_names_that_some_layer_would_change_are_refused_at_start_up(row: Row) -> None:
    for names in names_of(row.input):
        with pytest.raises(RegistrationError) as caught:
            Registry([a_tool(name=name) for name in names])
        assert caught.value.tool in names


def documents(row: Row) -> list[tuple[str, dict[str, Any]]]:
    given = row.input
    if "tools" in given:
        return [(tool["name"], {"input_schema": tool["schema"]}) for tool in given["tools"]]
    if "output_schema" in given:
        return [(given["tool"], {"output_schema": given["output_schema"]})]
    return [(given.get("tool", "demo_bad"), {"input_schema": given["schema"]})]


@pytest.mark.parametrize("row", rows("C-07", "C-09"), ids=lambda row: row.id)
async def test_a_bad_schema_stops_the_start_and_a_kept_format_is_enforced(row: Row) -> None:
    if "arguments" in row.input:  # a format that has a checker here: enforced at the call
        gateway = make_gateway([a_tool(Recorder(), input_schema=row.input["schema"])])
        result = await gateway.call(ToolCall(name="demo_get", arguments=row.input["arguments"]))
        assert result.failure is not None
        assert all(word in result.failure.message for word in row.expect["error_mentions"])
        return
    registry = Registry()
    with pytest.raises(RegistrationError) as caught:
        registry.register(*(a_tool(name=name, **changes) for name, changes in documents(row)))
    assert registry.names() == ()
    assert caught.value.tool == "demo_bad"
    assert all(word in str(caught.value) for word in row.expect.get("error_mentions", []))


def test_rows_are_json_objects_with_one_id_each() -> None:
    ids = [row.id for row in rows(*{f"C-{number:02}" for number in range(1, 29)})]
    assert len(ids) == len(set(ids)) == sum(1 for _ in map(json.dumps, ids))
