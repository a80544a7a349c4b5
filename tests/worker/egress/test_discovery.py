"""Where the operator's own clients find their registries."""

import stat
import zipfile
from pathlib import Path

import pytest

from hostside.errors import ConfigError
from hostside.worker.egress.discovery import Clients, apt_sources, discover
from hostside.worker.egress.presets import PRESETS, upstream

MODEL = """<project xmlns="http://maven.apache.org/POM/4.0.0"><repositories><repository>
<id>central</id><url>https://central.test/maven2</url></repository></repositories></project>"""
MIRROR = "<settings><mirrors><mirror><mirrorOf>central</mirrorOf><url>https://mirror.test/m</url></mirror></mirrors></settings>"


class Machine:
    """A machine with made-up clients in its PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.clients = Clients(environment={"PATH": str(folder / "bin")}, home=folder / "home", apt=folder / "apt")

    def program(self, name: str, script: str) -> Path:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def found(self, preset: str) -> dict[str, str]:
        registry = discover([preset], {}, self.clients).upstream(preset)
        return {name: str(root) for name, root in registry.roots.items()}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_npm_says_where_its_registry_is(machine: Machine) -> None:
    machine.program("npm", '[ "$*" = "config get registry" ] && echo https://npm.test/base')
    assert machine.found("npm") == {"": "https://npm.test/base/"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", "https://default.test/simple/"),
        ("global.index-url='https://mirror.test/simple'", "https://mirror.test/simple/"),
        ("global.index-url='https://g.test/s'\n:env:.index-url='https://e.test/s'", "https://e.test/s/"),
    ],
)
def test_pip_says_where_its_index_is(machine: Machine, settings: str, expected: str) -> None:
    help_text = "Base URL of the Python Package Index (default\n  https://default.test/simple). This"
    machine.file("help", help_text)
    machine.file("settings", settings)
    folder = machine.folder
    # The machine has no `cat`: its PATH holds the made-up clients alone.
    machine.program(
        "python3",
        'show() { while IFS= read -r line || [ -n "$line" ]; do echo "$line"; done; }\n'
        f'case "$*" in *--version) echo pip 1;; *"config list") show <{folder}/settings;; '
        f'*"help install") show <{folder}/help;; '
        """-I*) echo '["https://default.test/simple", "files.test"]';; *) exit 1;; esac""",
    )
    assert machine.found("pypi") == {"": expected}
    hosts = discover(["pypi"], {}, machine.clients).upstream("pypi").artifact_hosts
    assert [str(host) for host in hosts] == (["files.test:443"] if not settings else [])


def test_cargo_holds_the_address_of_its_index(machine: Machine) -> None:
    machine.program("cargo", "exit 0 # sparse+https://index.test/ and sparse+https://index.test/")
    assert machine.found("crates") == {"": "https://index.test/"}


def test_a_replaced_source_of_cargo_comes_first(machine: Machine) -> None:
    machine.program("cargo", "exit 0 # sparse+https://index.test/")
    text = '[source.crates-io]\nreplace-with = "m"\n[source.m]\nregistry = "sparse+https://mirror.test/i/"\n'
    machine.file("home/.cargo/config.toml", text)
    assert machine.found("crates") == {"": "https://mirror.test/i/"}


def test_go_says_its_proxy_and_falls_back_to_nothing(machine: Machine) -> None:
    machine.program("go", "echo https://go.test,direct")
    assert machine.found("go") == {"": "https://go.test/"}
    machine.program("go", "echo off")
    with pytest.raises(ConfigError):
        machine.found("go")


def test_maven_is_read_from_its_model_and_a_mirror_comes_first(machine: Machine) -> None:
    (machine.folder / "maven" / "lib").mkdir(parents=True)
    with zipfile.ZipFile(machine.folder / "maven" / "lib" / "maven-model-builder-3.x.jar", "w") as jar:
        jar.writestr("org/apache/maven/model/pom-4.0.0.xml", MODEL)
    machine.program("mvn", f"echo 'Apache Maven 3'; echo 'Maven home: {machine.folder}/maven'")
    assert machine.found("maven") == {"": "https://central.test/maven2/"}
    machine.file("home/.m2/settings.xml", MIRROR)
    assert machine.found("maven") == {"": "https://mirror.test/m/"}


def test_apt_names_its_archives_by_their_last_segment(machine: Machine) -> None:
    machine.file(
        "apt/sources.list.d/d.sources", "Types: deb\nURIs: http://a.test/debian https://b.test/debian-security/\n"
    )
    machine.file("apt/sources.list", "# deb http://no.test/x\ndeb [arch=amd64] http://c.test/debian stable main\n")
    machine.file("apt/sources.list.d/private.list", "deb https://me:secret@d.test/x stable main\n")
    assert set(apt_sources(machine.clients)) == {"main.list", "d.sources"}
    with pytest.raises(ConfigError) as caught:
        machine.found("debian")
    assert "secret" not in f"{caught.value} {caught.value.remedy}"
    (machine.folder / "apt/sources.list.d/private.list").unlink()
    assert machine.found("debian") == {
        "debian": "http://a.test/debian/",
        "debian-security": "https://b.test/debian-security/",
        "debian-2": "http://c.test/debian/",
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_that_no_client_knows_is_refused_with_the_line_to_set(machine: Machine, preset: str) -> None:
    with pytest.raises(ConfigError) as caught:
        machine.found(preset)
    assert (
        caught.value.message == f"the registry of the preset {preset} is not known: no client of this machine names it"
    )
    assert caught.value.remedy.startswith(f"Set it in hostside.toml: [network.registries] {preset} = ")


def test_what_is_configured_is_not_asked_for(machine: Machine) -> None:
    machine.program("npm", "exit 1")
    configured = {"npm": upstream("npm", "https://corp.test/npm")}
    assert discover(["npm"], configured, machine.clients).upstreams == configured
