"""What reviewers would have to remember, kept by loops over the source (AX-01, A0-10, A0-19, R-156)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "hostside"
FILES = sorted(SOURCE.rglob("*.py"))

#: Foreign code or a foreign fault ends here, each with its reason beside it. Anything else catches what it expects.
BROAD = {
    "app/serving.py",
    "cli/main.py",
    "config/template_process.py",
    "core/approval.py",
    "core/explain.py",
    "core/gateway.py",
    "core/observers.py",
    "edges/mcp_http.py",
    "store/writer.py",
    "worker/egress/proxy.py",
    "worker/probe_program.py",
    "worker/run_events.py",
}
#: Names of designs that this one replaced: they must not come back.
DEAD = ("dynamic_tool_call", "tool_subprocess", "stringify_arguments", "arguments_to_string", "mcp_string_result")


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in FILES:
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def receiver(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return ast.unparse(call.func.value)


def test_only_the_gateway_calls_an_executor() -> None:
    callers = {
        where
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "execute"
        # The database's own `execute` has another receiver.
        if not (
            where.startswith("store/") and receiver(node).split(".")[-1] in {"connection", "op", "cursor", "_lookups"}
        )
    }
    assert callers == {"core/gateway.py"}


def test_there_is_one_registry_and_one_way_in() -> None:
    classes = [
        (where, node.name) for where, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    assert [where for where, name in classes if name == "Registry"] == ["core/registry.py"]
    assert [where for where, name in classes if name == "Gateway"] == ["core/gateway.py"]


def test_only_adapters_open_a_native_ref() -> None:
    openers = {
        where
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "open" and "native_ref" in ast.unparse(node.value)
    }
    assert {where for where in openers if not where.startswith("trackers/")} == set()


def test_broad_handlers_stand_only_where_foreign_code_ends() -> None:
    broad = {
        where
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}))
        # Cleaning up and raising again hides nothing.
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
    }
    assert broad - BROAD == set()


def test_edges_import_nothing_that_decides() -> None:
    allowed = ("hostside.core.", "hostside.edges.", "hostside.errors")
    wrong = [
        (where, node.module)
        for where, tree in trees()
        if where.startswith("edges/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hostside.")
        if not (node.module or "").startswith(allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("word", DEAD)
def test_a_replaced_design_is_gone(word: str) -> None:
    assert [str(path) for path in FILES if word in path.read_text(encoding="utf-8")] == []


def test_nothing_is_left_undone_in_the_source() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error", "# st" + "ub")
    assert [
        (str(path.relative_to(ROOT)), mark)
        for path in FILES
        for mark in marks
        if mark in path.read_text(encoding="utf-8")
    ] == []


def test_no_module_reads_the_environment_but_where_the_host_is_opened() -> None:
    readers = {
        where
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}
    }
    # The probe runs inside a run's isolation and reads what an agent would.
    assert {where for where in readers if not where.startswith(("app/", "cli/", "worker/probe_"))} == set()
