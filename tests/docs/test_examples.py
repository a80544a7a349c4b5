"""What the guides show runs."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import hostside
from hostside import Registry
from hostside.core.call import Workspace
from tests.support.gateways import call, make_gateway

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.anyio
async def test_the_tool_of_the_guide_works_and_stays_inside(tmp_path: Path) -> None:
    registry = Registry()
    example("word_count").register(registry)
    (tmp_path / "a.txt").write_text("one two  three\n", encoding="utf-8")
    gateway = make_gateway(registry, workspace=Workspace(id="w", root=str(tmp_path)))
    assert (await call(gateway, "word_count", {"path": "a.txt"})).structured == {"words": 3}
    codes = []
    (tmp_path / "away").symlink_to("/etc")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "binary").write_bytes(b"\xff")
    for path in ("missing.txt", "binary", "../a.txt", "away/passwd", "passwd", 1):
        failure = (await call(gateway, "word_count", {"path": path})).failure
        assert failure is not None
        codes.append(failure.code.value)
    assert codes == ["tool_failed"] * 2 + ["outside_workspace"] * 3 + ["invalid_arguments"]


def test_every_exported_name_is_there_and_every_name_is_exported() -> None:
    source = ast.parse(Path(hostside.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hostside.")
        for alias in node.names
    }
    assert imported == set(hostside.__all__)
    assert [name for name in hostside.__all__ if getattr(hostside, name, None) is None] == []
    with pytest.raises(AttributeError):
        hostside.Nothing  # noqa: B018
