"""Tiny packages and the registries that serve them, made in the test."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping

from tests.worker.egress.world import Page

TINY = "1.0.0"


def tar(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(buffer.getvalue(), mtime=0)


def npm_package(name: str = "tiny") -> bytes:
    return tar(
        {
            "package/package.json": json.dumps({"name": name, "version": TINY, "main": "index.js"}),
            "package/index.js": f"module.exports = {json.dumps(f'hello from {name}')};\n",
        }
    )


def integrity(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def npm_registry(host: str, name: str = "tiny") -> dict[str, Page]:
    """A registry at `http://host/`, whose documents name its files by that address."""
    package = npm_package(name)
    path = f"/{name}/-/{name.rpartition('/')[2]}-{TINY}.tgz"
    version = {
        "name": name,
        "version": TINY,
        "dist": {"tarball": f"{host}{path}", "integrity": integrity(package)},
    }
    document = {"name": name, "dist-tags": {"latest": TINY}, "versions": {TINY: version}}
    pages = {path: Page(body=package)}
    for written in (f"/{name}", "/" + name.replace("/", "%2f")):
        pages[written] = Page(body=json.dumps(document).encode(), content_type="application/json")
    return pages


def wheel(name: str = "tiny") -> bytes:
    buffer = io.BytesIO()
    info = f"{name}-{TINY}.dist-info"
    files = {
        f"{name}.py": f"hello = 'hello from {name}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {TINY}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_record_hash(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def simple_index(files: str, content: bytes, name: str = "tiny") -> Page:
    """The HTML page of a project whose file is at the absolute address `files`/..."""
    link = f'<a href="{files}/{name}-{TINY}-py3-none-any.whl#sha256={sha256(content)}" data-x="1">{name}</a>'
    return Page(body=f"<!DOCTYPE html><html><body>{link}</body></html>".encode(), content_type="text/html")


def simple_json(files: str, content: bytes, name: str = "tiny") -> Page:
    """The same as JSON."""
    filename = f"{name}-{TINY}-py3-none-any.whl"
    file = {
        "filename": filename,
        "url": f"{files}/{filename}",
        "hashes": {"sha256": sha256(content)},
        "size": len(content),
    }
    document = {"meta": {"api-version": "1.1"}, "name": name, "versions": [TINY], "files": [file]}
    return Page(body=json.dumps(document).encode(), content_type="application/vnd.pypi.simple.v1+json")
