"""Which tests prove which requirement, by subject. `tests/requirements.py` puts them together and says what is claimed."""

from collections.abc import Callable

Nodes = tuple[str, ...]


def of(module: str) -> Callable[..., Nodes]:
    """Return a function from names (`test_x` or `TestClass::test_x`) to pytest nodes of `tests/<module>.py`."""

    def nodes(*names: str) -> Nodes:
        return tuple(f"tests/{module}.py::{name}" for name in names)

    return nodes
