"""kill -9 of the host, of the agent, of both, at any moment of a run: nothing runs on, no token works, no port is open,
receipts verify, no comment is there twice."""

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hostside.store.database import open_database
from hostside.store.verify import verify
from tests.support.host_world import HostWorld, make_world

pytestmark = pytest.mark.system
MOMENTS = 25
LONGEST_SECONDS = 30.0


def start(world: HostWorld, body: str) -> "subprocess.Popen[bytes]":
    script = [
        {"tool": "file_issue_get"},
        {"tool": "write_file", "arguments": {"path": "note.txt", "content": body}},
        {"tool": "file_issue_comment_add", "arguments": {"body": body}},
        {"tool": "git_add", "arguments": {"paths": ["note.txt"]}},
        {"tool": "git_commit", "arguments": {"message": body}},
        {"tool": "file_issue_comment_add", "arguments": {"body": f"{body} again"}},
    ]
    (world.folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    return subprocess.Popen(
        world.command("run", "DEMO-1", "--json"),
        env=world.environment(),
        cwd=world.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def processes_of(world: HostWorld) -> list[str]:
    """Command lines of living processes that know this world's folder."""
    needle = str(world.folder).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if needle in said and state != "Z":
            found.append((entry / "comm").read_text().strip())
    return found


def wait_until_gone(world: HostWorld) -> None:
    deadline = time.monotonic() + 10
    while (left := processes_of(world)) and time.monotonic() < deadline:
        subprocess.run(["true"], check=True)  # lets the scheduler work; the condition itself is what is awaited
    assert left == []


def live_tokens(world: HostWorld) -> int:
    connection = sqlite3.connect(world.state / "hostside.db")
    try:
        (count,) = connection.execute("SELECT count(*) FROM tokens WHERE revoked_at IS NULL").fetchone()
        return int(count)
    finally:
        connection.close()


def children_of(pid: int) -> list[int]:
    """Every descendant, youngest last."""
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        found += [int(child), *children_of(int(child))]
    return found


def strike(run: "subprocess.Popen[bytes]", victim: str) -> None:
    """Kill what the test is about; a process that has just gone is as dead as wanted."""
    try:
        agents = children_of(run.pid) if victim != "host" else []
    except OSError:
        agents = []
    for pid in [*agents, *([run.pid] if victim != "agent" else [])]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def listening(world: HostWorld) -> list[str]:
    """Addresses that runs of this world told, and that still accept a connection."""
    open_ports = []
    for event in world.events("edge_started"):
        address = urlsplit(str(event["url"]))
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port or 0), timeout=0.2):
            open_ports.append(address.netloc)
    return open_ports


@pytest.mark.parametrize(("victim", "half"), [("host", 0), ("host", 1), ("agent", 0), ("both", 0)])
def test_whatever_is_killed_at_a_random_moment_leaves_nothing_behind(victim: str, half: int, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.configure(f'[agent]\nkind = "scripted"\nscript = "{tmp_path / "script.json"}"\n')
    began = time.monotonic()
    whole = start(world, "whole run")
    out, err = whole.communicate(timeout=LONGEST_SECONDS)
    took = time.monotonic() - began
    assert whole.returncode == 0, out + err
    drawn = random.Random(f"{victim}-{half}")
    bodies, killed_live = [], 0
    for number in range(MOMENTS):
        body = f"body {victim}-{half}-{number}"
        bodies.append(body)
        run = start(world, body)
        try:
            run.communicate(timeout=drawn.uniform(0.15, took))
        except subprocess.TimeoutExpired:
            strike(run, victim)
            run.communicate(timeout=LONGEST_SECONDS)
            killed_live += 1
        listed = world.run("runs", "list", "--json").json()["runs"]
        assert {row["state"] for row in listed} <= {"succeeded", "interrupted", "failed"}, body
        wait_until_gone(world)
        assert live_tokens(world) == 0, body
        assert listening(world) == [], body
    assert killed_live > MOMENTS // 2
    database = open_database(world.state / "hostside.db")
    try:
        report = verify(database)
    finally:
        database.close()
    assert report.ok, report
    assert world.open_calls() == 0
    comments = [comment["body"] for comment in world.issue("DEMO-1")["comments"]]
    doubled = {body for body in comments if comments.count(body) > 1}
    assert doubled == set()
    assert not [folder for folder in (tmp_path / "workspaces").iterdir() if folder.name.startswith(".new-")]
    assert world.run("run", "DEMO-1", "--json").exit_code == 0
