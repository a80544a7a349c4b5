"""A Python with this package's dependencies that any user can start: the tests' own may be in a private home."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def reachable_python(folder: Path, *, uid: int) -> Path:
    """The tests' own Python where `uid` can start it, else one made in `folder`, which others may walk through.

    The made one is the system's of the same version, with links to the packages that hostside needs. Skips the test where
    neither can be had.
    """
    ours = Path(sys.executable)
    if _starts(ours, uid) and _starts(Path(sys.base_prefix), uid, probe=("/usr/bin/test", "-r")):
        return ours
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = Path("/usr/bin") / version
    if not _starts(system, uid):
        pytest.skip(f"another user cannot start {ours}, and there is no {system}")
    made = folder / "venv"
    packages = made / "lib" / version / "site-packages"
    (made / "bin").mkdir(parents=True)
    packages.mkdir(parents=True)
    (made / "bin" / "python").symlink_to(system)
    (made / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name in sorted(_needed("hostside", {"hostside"})):
        _link(name, packages)
    (packages / "hostside-here.pth").write_text(f"{ROOT / 'src'}\n")
    for path in (made, *made.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    return made / "bin" / "python"


def _starts(path: Path, uid: int, *, probe: tuple[str, ...] = ()) -> bool:
    command = [*probe, str(path)] if probe else [str(path), "-c", ""]
    try:
        done = subprocess.run(command, check=False, timeout=30, cwd="/", user=uid, group=uid, extra_groups=[])
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _needed(name: str, known: set[str]) -> set[str]:
    """`known` and the distributions here that `name` can require; extras too, since one may ask another for them."""
    for requirement in importlib.metadata.requires(name) or ():
        found = _NAME.match(requirement)
        if found is None or found[0].lower() in known:
            continue
        try:
            importlib.metadata.distribution(found[0])
        except importlib.metadata.PackageNotFoundError:  # for another machine or Python
            continue
        known.add(found[0].lower())
        _needed(found[0], known)
    return known


def _link(name: str, packages: Path) -> None:
    for file in importlib.metadata.files(name) or ():
        source = Path(str(file.locate()))
        if ".." in file.parts or file.is_absolute() or not source.is_file():
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            continue
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
