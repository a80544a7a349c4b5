"""kill -9 of the host at any moment of a run: nothing runs on, no token works, receipts verify, no comment twice."""

import json
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

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


@pytest.mark.parametrize("half", [0, 1])
def test_a_host_killed_at_a_random_moment_leaves_nothing_behind(half: int, tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.configure(f'[agent]\nkind = "scripted"\nscript = "{tmp_path / "script.json"}"\n')
    began = time.monotonic()
    whole = start(world, "whole run")
    out, err = whole.communicate(timeout=LONGEST_SECONDS)
    took = time.monotonic() - began
    assert whole.returncode == 0, out + err
    drawn = random.Random(20_260 + half)
    bodies, killed_live = [], 0
    for number in range(MOMENTS):
        body = f"body {half}-{number}"
        bodies.append(body)
        run = start(world, body)
        try:
            run.communicate(timeout=drawn.uniform(0.15, took))
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.communicate(timeout=LONGEST_SECONDS)
            killed_live += 1
        listed = world.run("runs", "list", "--json").json()["runs"]
        assert {row["state"] for row in listed} <= {"succeeded", "interrupted", "failed"}, body
        wait_until_gone(world)
        assert live_tokens(world) == 0, body
    assert killed_live > MOMENTS // 2
    database = open_database(world.state / "hostside.db")
    try:
        report = verify(database)
    finally:
        database.close()
    assert report.ok, report
    comments = [comment["body"] for comment in world.issue("DEMO-1")["comments"]]
    doubled = {body for body in comments if comments.count(body) > 1}
    assert doubled == set()
    assert not [folder for folder in (tmp_path / "workspaces").iterdir() if folder.name.startswith(".new-")]
    assert world.run("run", "DEMO-1", "--json").exit_code == 0
