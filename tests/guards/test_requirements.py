"""Every claim has a test and every named test exists (`tests/requirements.py`)."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests import requirements
from tests.cases.rows import all_rows
from tests.support.shared_data import shared

ROOT = Path(__file__).resolve().parents[2]
CLAIMED = frozenset(chain.from_iterable(requirements.CLOSED.values()))
NODES = sorted({node for nodes in chain(requirements.PROOF.values(), requirements.ROWS.values()) for node in nodes})


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def functions(body: list[ast.stmt]) -> set[str]:
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def imported_from(module: str, name: str) -> str | None:
    """The module of this repository from which `module` takes `name`."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return (node.module or "").replace(".", "/") + ".py"
    return None


def methods(module: str, class_name: str) -> set[str]:
    """The methods of a class, with those that it has from a class named in its bases."""
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            found = functions(node.body)
            for base in node.bases:
                name = ast.unparse(base)
                found |= methods(imported_from(module, name) or module, name)
            return found
    return set()


def exists(node: str) -> bool:
    module, *names = node.split("::")
    if not (ROOT / module).is_file() or not Path(module).name.startswith("test_"):
        return False
    found = functions(tree_of(module).body) if len(names) == 1 else methods(module, names[0])
    return names[-1] in found and names[-1].startswith("test_")


def test_every_claimed_id_is_proved_and_nothing_else_is_listed_as_proved() -> None:
    assert sorted(CLAIMED - requirements.PROOF.keys()) == []
    assert sorted(requirements.PROOF.keys() - CLAIMED) == []
    assert [id for id, nodes in requirements.PROOF.items() if not nodes] == []


def test_what_is_left_to_later_parts_is_claimed_by_none_and_says_why() -> None:
    assert sorted(CLAIMED & requirements.LATER.keys()) == []
    assert [id for id, why in {**requirements.LATER, **requirements.ROWS_LATER}.items() if len(why) < 10] == []


@pytest.mark.parametrize("node", NODES)
def test_every_test_that_proves_something_exists(node: str) -> None:
    assert exists(node), f"{node} is named in tests/proofs and does not exist"


def known_ids() -> set[str]:
    """Every id that the requirements define: `- **R-001** ...` and the first cell of a matrix row."""
    text = shared("requirements.md").read_text(encoding="utf-8")
    return set(re.findall(r"^- \*\*(R-\d{3})\*\*", text, re.M)) | set(re.findall(r"^\| (A[X0-3]-\d{2}) \|", text, re.M))


def test_every_id_is_one_of_the_requirements() -> None:
    known = known_ids()
    assert len(known) > 400
    named = CLAIMED | requirements.PROOF.keys() | requirements.LATER.keys()
    assert sorted(named - known) == []


def entry(row: str, table: dict[str, object]) -> str | None:
    """The key under which a row stands: its own, else its case's."""
    return next((key for key in (row, row.partition(".")[0]) if key in table), None)


def test_every_public_row_is_taken_by_a_test_or_left_with_a_reason() -> None:
    taken, later = dict[str, object](requirements.ROWS), dict[str, object](requirements.ROWS_LATER)
    places = {row.id: (entry(row.id, taken), entry(row.id, later)) for row in all_rows()}
    assert [row for row, (own, other) in places.items() if (own is None) is (other is None)] == []
    used = {key for pair in places.values() for key in pair}
    assert sorted((taken.keys() | later.keys()) - used) == []
    left = {row.id for row in all_rows() if row.component in requirements.ROW_COMPONENTS and entry(row.id, later)}
    assert left == {"C-21.a"}  # receipts, but of git with a credential


def constants(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


#: Read from no file: it says what the real client must not load, and has no values.
WITHOUT_VALUES = {"C-26.d"}


@pytest.mark.parametrize("row", sorted(requirements.ROWS.keys() - WITHOUT_VALUES))
def test_the_tests_that_take_a_row_name_it(row: str) -> None:
    case = row.partition(".")[0]
    nodes = requirements.ROWS[row]
    by_name = any(case.lower().replace("-", "_") in node.rpartition("::")[2] for node in nodes)
    assert by_name or any(text in (row, case) for node in nodes for text in constants(node.partition("::")[0]))


def test_the_copied_rows_are_the_public_ones() -> None:
    assert (ROOT / "tests/cases/cases.jsonl").read_bytes() == shared("cases/cases.jsonl").read_bytes()
