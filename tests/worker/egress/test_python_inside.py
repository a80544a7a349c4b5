"""pip and uv, as they are, inside a sandbox without any other way out."""

import shutil
import tomllib
from pathlib import Path

import pytest

from hostside.worker.egress.presets import upstream
from hostside.worker.sandbox_args import Bind
from tests.worker.conftest import IsolationFactory
from tests.worker.egress.inside import make, python_binds, python_prefix, told
from tests.worker.egress.packages import sha256, simple_index, simple_json, wheel
from tests.worker.egress.world import Page, Site, World

pytestmark = [pytest.mark.anyio, pytest.mark.system, pytest.mark.usefixtures("bwrap")]

FILES = "http://files.test/packages/ab"
FILE = "/packages/ab/tiny-1.0.0-py3-none-any.whl"
INDEX = "http://index.test/simple"
SAY = 'python3 -c "import tiny; print(tiny.hello)"'


def pip() -> str:
    return f"export PATH={python_prefix()}/bin:$PATH PYTHONPATH=out; "


def uv() -> str:
    return f"export PATH=/opt/uv:{python_prefix()}/bin:$PATH UV_PYTHON_DOWNLOADS=never; "


def uv_binds() -> list[Bind]:
    """uv's own program in a folder; a shim of a version manager is no use inside."""
    found = shutil.which("uv", path=f"{python_prefix() / 'bin'}:/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("uv is not installed on this machine: uv inside a sandbox cannot be tried")
    return [Bind(source=Path(found).resolve(), target="/opt/uv/uv")]


@pytest.mark.parametrize("kind", ["html", "json"])
async def test_pip_installs_by_hash_through_an_index_whose_files_are_elsewhere(
    isolate: IsolationFactory, world: World, kind: str
) -> None:
    content = wheel()
    page = simple_index(FILES, content) if kind == "html" else simple_json(FILES, content)
    index, files = Site({"/simple/tiny/": page}), Site({FILE: Page(body=content)})
    with index.serving() as index_port, files.serving() as files_port:
        world.place("index.test", index_port)
        world.place("files.test", files_port)
        world.know(upstream("pypi", INDEX))
        inside = make(isolate, world, python_binds())
        inside.write("requirements.txt", f"tiny==1.0.0 --hash=sha256:{sha256(content)}\n")
        install = "python3 -m pip install --no-cache-dir --require-hashes --target out -r requirements.txt && "
        good = await inside.run(pip() + install + SAY, "pypi")
        inside.write("requirements.txt", f"tiny==1.0.0 --hash=sha256:{'0' * 64}\n")
        bad = await inside.run(pip() + "rm -rf out; " + install + SAY, "pypi")
    assert (good.exit_code, b"hello from tiny" in good.stdout) == (0, True), told(good)
    assert (bad.exit_code != 0, b"DO NOT MATCH THE HASHES" in bad.stderr) == (True, True), told(bad)
    assert {one.preset for one in world.decisions} == {"pypi"}
    assert {one.host for one in world.decisions} == {"index.test", "files.test"}
    assert world.wires.private() == []


async def test_uv_installs_by_hash(isolate: IsolationFactory, world: World) -> None:
    content = wheel()
    index, files = Site({"/simple/tiny/": simple_json(FILES, content)}), Site({FILE: Page(body=content)})
    with index.serving() as index_port, files.serving() as files_port:
        world.place("index.test", index_port)
        world.place("files.test", files_port)
        world.know(upstream("pypi", INDEX))
        inside = make(isolate, world, [*python_binds(), *uv_binds()])
        inside.write("requirements.txt", f"tiny==1.0.0 --hash=sha256:{sha256(content)}\n")
        script = "uv venv -q .venv && uv pip install --require-hashes -r requirements.txt && .venv/bin/" + SAY
        done = await inside.run(uv() + script, "pypi")
    assert (done.exit_code, b"hello from tiny" in done.stdout) == (0, True), told(done)


async def test_uv_writes_the_registrys_addresses_into_its_lock_file_and_installs_from_them(
    isolate: IsolationFactory, world: World
) -> None:
    content = wheel()
    index, files = Site({"/simple/tiny/": simple_json(FILES, content)}), Site({FILE: Page(body=content)})
    with index.serving() as index_port, files.serving() as files_port:
        world.place("index.test", index_port)
        world.place("files.test", files_port)
        world.know(upstream("pypi", INDEX, files=["files.test:80"]))
        inside = make(isolate, world, [*python_binds(), *uv_binds()])
        project = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["tiny"]\n'
        inside.write("pyproject.toml", project)
        first = await inside.run(uv() + "uv lock", "pypi")
        lock = inside.read("uv.lock")
        second = await inside.run(uv() + "rm -rf ~/.cache; uv sync --locked && .venv/bin/" + SAY, "pypi")
    assert (first.exit_code, second.exit_code) == (0, 0), (told(first), told(second))
    assert (b"hello from tiny" in second.stdout, inside.read("uv.lock")) == (True, lock)
    tiny = next(one for one in tomllib.loads(lock)["package"] if one["name"] == "tiny")
    assert (tiny["source"], tiny["wheels"][0]["url"]) == ({"registry": INDEX}, f"{FILES}/tiny-1.0.0-py3-none-any.whl")
    assert tiny["wheels"][0]["hash"] == f"sha256:{sha256(content)}"
