"""cargo, Maven, apt, git and curl, as they are, inside a sandbox without any other way out."""

import hashlib
import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from hostside.worker.egress.presets import upstream
from hostside.worker.sandbox_args import Bind
from tests.worker.conftest import IsolationFactory
from tests.worker.egress.inside import make, told
from tests.worker.egress.packages import sha256, tar
from tests.worker.egress.world import Page, Site, World

pytestmark = [pytest.mark.anyio, pytest.mark.system, pytest.mark.usefixtures("bwrap")]


def cargo_binds() -> list[Bind]:
    """The toolchain itself: what `cargo` names in PATH is often a shim of rustup."""
    program = shutil.which("cargo")
    if program is None:
        pytest.skip("cargo is not installed on this machine: cargo inside a sandbox cannot be tried")
    if Path(program).resolve().name == "rustup":
        asked = subprocess.run(["rustup", "which", "cargo"], capture_output=True, text=True, check=False, timeout=60)
        if asked.returncode != 0:
            pytest.skip(f"rustup has no toolchain: {asked.stderr.strip()}")
        program = asked.stdout.strip()
    return [Bind(source=Path(program).resolve().parents[1], target="/opt/rust")]


async def test_cargo_reads_crates_and_its_lock_file_keeps_the_registrys_name(
    isolate: IsolationFactory, world: World
) -> None:
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tar({"tiny-1.0.0/Cargo.toml": manifest, "tiny-1.0.0/src/lib.rs": "pub fn hello() {}\n"})
    line = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": sha256(crate), "features": {}, "yanked": False}
    config = {"dl": "http://crates.test/{lowerprefix}/{crate}-{version}.crate", "api": "http://api.test"}
    index = Site(
        {
            "/config.json": Page(body=json.dumps(config).encode(), content_type="application/json"),
            "/ti/ny/tiny": Page(body=json.dumps(line).encode() + b"\n", content_type="text/plain"),
        }
    )
    files = Site({"/ti/ny/tiny-1.0.0.crate": Page(body=crate)})
    with index.serving() as index_port, files.serving() as files_port:
        world.place("index.test", index_port)
        world.place("crates.test", files_port)
        world.know(upstream("crates", "http://index.test/"))
        inside = make(isolate, world, cargo_binds())
        inside.write(
            "Cargo.toml", '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ntiny = "1"\n'
        )
        (inside.isolation.workspace / "src").mkdir()
        inside.write("src/main.rs", "fn main() { tiny::hello() }\n")
        done = await inside.run(
            "export PATH=/opt/rust/bin:$PATH; cargo fetch && cargo metadata --offline -q >/dev/null", "crates"
        )
    assert done.exit_code == 0, told(done)
    tiny = next(one for one in tomllib.loads(inside.read("Cargo.lock"))["package"] if one["name"] == "tiny")
    assert (tiny["checksum"], tiny["source"].partition("+")[0]) == (sha256(crate), "registry")
    assert "127.0.0.1" not in inside.read("Cargo.lock")
    assert [one.path for one in files.asked] == ["/ti/ny/tiny-1.0.0.crate"]


def maven_binds() -> list[Bind]:
    """Distributions keep parts of Maven and of Java below /etc, which a sandbox does not show."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed on this machine: Maven inside a sandbox cannot be tried")
    folders = [Path("/etc/maven"), *Path("/etc").glob("java-*-openjdk")]
    return [Bind(source=folder, target=str(folder)) for folder in folders if folder.is_dir()]


async def test_maven_reads_through_the_mirror(isolate: IsolationFactory, world: World) -> None:
    site = Site({})
    with site.serving() as port:
        world.place("central.test", port)
        world.know(upstream("maven", "http://central.test/maven2"))
        inside = make(isolate, world, maven_binds())
        names = "<groupId>a</groupId><artifactId>b</artifactId><version>1</version>"
        pom = f"<project><modelVersion>4.0.0</modelVersion>{names}</project>"
        inside.write("pom.xml", pom)
        done = await inside.run("mvn -B -q validate clean || true", "maven")
        listed = list(world.decisions)
        refused = await inside.run("rm -rf ~/.m2/repository; mvn -B -q clean || true")
    # No plugin is there to be had: that it was looked for at the mirror is what this machine can show.
    assert {one.host for one in listed} == {"central.test"}, told(done)
    assert all(one.path.startswith("/registry/maven/org/apache/maven/") for one in listed)
    assert [one.path.startswith("/maven2/org/apache/maven/") for one in site.asked[:1]] == [True]
    assert b"maven is not in network.agent. To allow it: add" in refused.stdout + refused.stderr, told(refused)


async def test_apt_reads_an_archive_by_its_own_address(isolate: IsolationFactory, world: World, tmp_path: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("apt is not installed on this machine: apt inside a sandbox cannot be tried")
    root = tmp_path / "tiny"
    (root / "DEBIAN").mkdir(parents=True)
    fields = "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: tiny\n"
    (root / "DEBIAN" / "control").write_text(fields)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", root, tmp_path / "tiny.deb"], check=True, capture_output=True
    )
    package = (tmp_path / "tiny.deb").read_bytes()
    packages = f"{fields}Filename: pool/tiny_1.0_all.deb\nSize: {len(package)}\nSHA256: {sha256(package)}\n".encode()
    digest = hashlib.sha256(packages).hexdigest()
    listed = [f" {digest} {len(packages)} main/binary-{cpu}/Packages" for cpu in ("all", "amd64")]
    head = ["Suite: stable", "Codename: stable", "Architectures: all amd64", "Components: main", "SHA256:"]
    release = "\n".join([*head, *listed, ""])
    archive = "/debian/dists/stable"
    site = Site(
        {
            f"{archive}/Release": Page(body=release.encode()),
            f"{archive}/main/binary-all/Packages": Page(body=packages),
            f"{archive}/main/binary-amd64/Packages": Page(body=packages),
            "/debian/pool/tiny_1.0_all.deb": Page(body=package),
        }
    )
    with site.serving() as port:
        world.place("archive.test", port)
        world.know(upstream("debian", {"debian": "http://archive.test/debian"}))
        inside = make(isolate, world)
        sources = {"main.list": b"deb [trusted=yes] http://archive.test/debian stable main\n"}
        script = "apt-get -q update && apt-get -q download tiny && cat *.deb | sha256sum"
        done = await inside.run(script, "debian", apt_sources=sources)
    assert (done.exit_code, sha256(package) in told(done)[1]) == (0, True), told(done)
    assert {(one.preset, one.way) for one in world.decisions} == {("debian", "registry")}


async def test_git_and_curl_read_a_listed_host_and_say_why_another_is_refused(
    isolate: IsolationFactory, world: World, tmp_path: Path
) -> None:
    work, bare = tmp_path / "work", tmp_path / "bare.git"
    for command in (
        f"git init -q -b main {work}",
        f"git -C {work} -c user.name=a -c user.email=a@b commit -q --allow-empty -m one",
        f"git clone -q --bare {work} {bare}",
        f"git -C {bare} update-server-info",
    ):
        subprocess.run(command.split(), check=True, capture_output=True, timeout=60)

    def page(path: str) -> Page | None:
        file = bare / path.removeprefix("/a.git/")
        return Page(body=file.read_bytes()) if path.startswith("/a.git/") and file.is_file() else None

    with Site(page).serving() as port:
        world.place("code.test", port)
        inside = make(isolate, world)
        script = "set +e; git clone -q http://code.test/a.git cloned && git -C cloned log --format=%s; "
        script += "git ls-remote https://other.test/a.git; curl -sS https://other.test/; curl -s http://other.test/"
        done = await inside.run(script + "; true", "code.test:80", "code.test:443")
    code, said = told(done)
    assert (code, said.startswith("one\n")) == (0, True), said
    assert 'hostside: other.test:80 is not in network.agent. To allow it: add "other.test:80"' in said
    assert {one.reason for one in world.decisions if one.host == "other.test"} == {"not_listed"}
    assert world.wires.private() == []
