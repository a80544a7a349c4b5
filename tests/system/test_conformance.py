"""AX-28: the official MCP conformance suite, both eras, against the product's HTTP edge.

`fixtures`: a server of the SDK with every fixture that the suite names, behind the product's front door, whose GET answers
405. It shows that the door changes nothing that the protocol promises. `edge`: a gateway as the product serves it, for
the scenarios that need no fixture; those run the product's own listing, calls, handshake and session rules.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.clients import ROOT, find_conformance, find_node

pytestmark = pytest.mark.system

START_SECONDS = 30
SUITE_SECONDS = 240
#: What needs no fixture: each of these meets the product's own code, not only its front door.
WITHOUT_FIXTURES = {
    "2025-11-25": {
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "server-session-lifecycle",
    },
    "2026-07-28": {
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "sep-2164-resource-not-found",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
        "http-header-validation",
    },
}


@contextmanager
def served(what: str) -> Iterator[int]:
    """Run the server in its own process, since the suite wants parts of the protocol that warn; yield its port."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.conformance_server", what],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


def outcomes(what: str, revision: str, folder: Path) -> dict[str, bool]:
    """Return for each scenario that ran whether none of its checks failed."""
    node, suite = find_node(), find_conformance()
    with served(what) as port:
        url = f"http://localhost:{port}/mcp"
        subprocess.run(
            [str(node), str(suite), "server", "--url", url, "--requirements", revision, "-o", str(folder)],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SUITE_SECONDS,
            check=False,
        )
    found: dict[str, bool] = {}
    for checks in folder.glob("*/checks.json"):
        name = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", checks.parent.name)
        found[name] = all(check["status"] != "FAILURE" for check in json.loads(checks.read_text(encoding="utf-8")))
    return found


def required(revision: str) -> set[str]:
    """Return the server scenarios that the revision's frozen set scores."""
    file = find_conformance().parents[1] / "requirements" / f"{revision}.yaml"
    return set(yaml.safe_load(file.read_text(encoding="utf-8"))["server"])


@pytest.mark.parametrize("revision", sorted(WITHOUT_FIXTURES))
def test_every_scored_scenario_is_green_behind_the_front_door(revision: str, tmp_path: Path) -> None:
    found = outcomes("fixtures", revision, tmp_path)
    assert {name: found.get(name) for name in required(revision)} == dict.fromkeys(required(revision), True)


@pytest.mark.parametrize("revision", sorted(WITHOUT_FIXTURES))
def test_scenarios_that_need_no_fixture_are_green_on_the_product_itself(revision: str, tmp_path: Path) -> None:
    found = outcomes("edge", revision, tmp_path)
    wanted = WITHOUT_FIXTURES[revision]
    assert {name: found.get(name) for name in wanted} == dict.fromkeys(wanted, True)
