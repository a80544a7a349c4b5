"""`serve --http`: opened in one process, called in another, revoked in a third (D6, D10, D11, AX-32)."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from hostside.app.server_records import ServerFolder
from hostside.config.paths import host_paths
from tests.cli.conftest import CommandLine, Ended
from tests.support.http_edges import ACCEPT, answer_of, modern_body, modern_headers

pytestmark = pytest.mark.system

WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """One running server and what it said of itself."""

    facts: dict[str, Any]
    process: subprocess.Popen[str]

    def ask(self, token: str, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        """Send one request of 2026-07-28 with a token."""
        body = modern_body(method, params)
        names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
        headers = {"authorization": f"Bearer {token}", "accept": ACCEPT, **names}
        return httpx.post(self.facts["url"], json=body, headers=headers, timeout=WITHIN, trust_env=False)

    def call(self, token: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return the result of the answer."""
        answer = self.ask(token, "tools/call", {"name": tool, "arguments": arguments})
        found: dict[str, Any] = answer_of(answer)["result"]
        return found


@contextmanager
def _serving(hostside: CommandLine, *words: str) -> Iterator[Served]:
    with hostside.started("http", *words, "--json") as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.communicate(timeout=WITHIN)
            text += line
        yield Served(json.loads(text), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WITHIN) == 0


def _open(hostside: CommandLine, *words: str) -> dict[str, Any]:
    opened = hostside.process("sessions", "open", *words, "--json")
    assert opened.code == 0, opened.err
    found: dict[str, Any] = opened.json
    return found


def test_a_session_is_opened_called_and_revoked_by_three_processes(hostside: CommandLine) -> None:
    with _serving(hostside, "0", "--profile", "workspace") as served:
        opened = _open(hostside, "--issue", "DEMO-1")
        token = opened["token"]

        moved = served.call(token, "file_issue_move", {"target_state": "In Progress"})
        revoked = hostside.process("sessions", "revoke", opened["session_id"], "--json")
        after = served.ask(token, "tools/list")

    assert moved["structuredContent"]["state"] == hostside.world.issue("DEMO-1")["state"] == "In Progress"
    assert revoked.json == {"ok": True, "session_id": opened["session_id"], "revoked": True}
    assert (after.status_code, after.headers["www-authenticate"]) == (401, "Bearer")
    (receipt,) = hostside.world.receipts()
    assert (receipt["edge"], receipt["session_id"], receipt["effect"]) == ("http", opened["session_id"], "verified")
    assert hostside("receipts", "verify").code == 0


def test_the_opened_object_has_the_promised_keys_and_the_token_is_nowhere_else(hostside: CommandLine) -> None:
    with _serving(hostside, "0") as served:
        url = served.facts["url"]
        opened = _open(hostside)
        shown: list[Ended] = [
            hostside.process("sessions", "list"),
            hostside.process("sessions", "list", "--json"),
            hostside.process("doctor", "--json"),
        ]

    token = opened["token"]
    assert opened == {
        "session_id": opened["session_id"],
        "url": url,
        "token": token,
        "expires_at": opened["expires_at"],
        "mcp_config": {
            "mcpServers": {"hostside": {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}}}
        },
        "codex_args": [
            "-c",
            f'mcp_servers.hostside.url="{url}"',
            "-c",
            'mcp_servers.hostside.bearer_token_env_var="HOSTSIDE_TOKEN"',
        ],
    }
    assert token.startswith("hst_")
    assert token not in "".join(item.out + item.err for item in shown)
    files = [file for file in hostside.world.state.rglob("*") if file.is_file()]
    assert files
    assert not [file.name for file in files if token.encode() in file.read_bytes()]


def test_an_http_session_reaches_no_disk_and_says_why(hostside: CommandLine) -> None:
    with _serving(hostside, "0", "--profile", "workspace") as served:
        token = _open(hostside, "--workspace", ".")["token"]

        listed = answer_of(served.ask(token, "tools/list"))["result"]["tools"]
        refused = served.call(token, "read_file", {"path": "greeting.py"})

    assert listed == []
    failure = json.loads(refused["content"][0]["text"])["failure"]
    assert (refused["isError"], failure["code"]) == (True, "locality_refused")
    assert failure["details"] == [{"blocker": "disk_unproven"}, {"class": "caller_filesystem"}]


def test_a_session_has_at_most_the_servers_profile_and_needs_its_configuration(hostside: CommandLine) -> None:
    with _serving(hostside, "0") as served:
        wider = hostside.process("sessions", "open", "--profile", "workspace", "--json")
        token = _open(hostside, "--issue", "DEMO-1")["token"]
        denied = served.call(token, "file_issue_move", {"target_state": "Done"})
        hostside.world.configure("[policy]\ncalls_per_minute = 5\n")
        other = hostside.process("sessions", "open", "--json")

    assert [wider.code, other.code] == [2, 2]
    assert "--profile readonly" in wider.json["error"]["message"]
    assert "another configuration" in other.json["error"]["message"]
    assert json.loads(denied["content"][0]["text"])["failure"]["code"] == "capability_denied"
    assert hostside.world.issue("DEMO-1")["state"] == "Todo"


def test_sessions_end_with_their_server_stopped_or_killed(hostside: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    tokens = []
    for _ in range(2):
        with _serving(hostside, port, "--profile", "workspace") as served:
            tokens.append(_open(hostside, "--issue", "DEMO-1")["token"])
            assert [served.ask(token, "tools/list").status_code for token in tokens] == [401] * (len(tokens) - 1) + [
                200
            ]
    listed = hostside.process("sessions", "list", "--json").json["sessions"]
    assert [bool(session["revoked_at"]) for session in listed] == [True, True]


def test_a_session_opened_with_other_tools_is_not_served(hostside: CommandLine) -> None:
    with _serving(hostside, "0") as served:
        opened = _open(hostside)
        with hostside.opened() as app, app.database.write() as connection:
            connection.exec_driver_sql("UPDATE sessions SET registry_fingerprint = 'another'")

        assert served.ask(opened["token"], "tools/list").status_code == 401


def test_a_session_whose_issue_is_gone_is_not_served(hostside: CommandLine) -> None:
    with _serving(hostside, "0") as served:
        opened = _open(hostside, "--issue", "DEMO-1")
        hostside.world.tracker.write_text("[]", encoding="utf-8")

        assert served.ask(opened["token"], "tools/list").status_code == 401


def test_an_issue_that_two_trackers_have_is_not_guessed(hostside: CommandLine) -> None:
    copy = hostside.world.folder / "copy.json"
    copy.write_bytes(hostside.world.tracker.read_bytes())
    hostside.world.configure(f'[trackers.copy]\nkind = "file"\npath = "{copy}"\n')
    with _serving(hostside, "0"):
        found = hostside.process("sessions", "open", "--issue", "DEMO-1", "--tracker", "main", "--json")

    assert (found.code, found.json["error"]["message"]) == (
        2,
        "more than one configured tracker has an issue DEMO-1 with the same id.",
    )


def test_an_expired_session_is_refused(hostside: CommandLine) -> None:
    with _serving(hostside, "0") as served:
        opened = _open(hostside, "--minutes", "1")
        assert served.ask(opened["token"], "tools/list").status_code == 200
        with hostside.opened() as app, app.database.write() as connection:
            connection.exec_driver_sql("UPDATE sessions SET expires_at = '2026-01-01T00:00:00.000000Z'")

        assert served.ask(opened["token"], "tools/list").status_code == 401


def test_with_two_servers_one_has_to_be_named_and_a_token_is_good_on_its_own_alone(hostside: CommandLine) -> None:
    with _serving(hostside, "0") as one, _serving(hostside, "0") as two:
        ambiguous = hostside.process("sessions", "open", "--json")
        token = _open(hostside, "--server", two.facts["server_id"])["token"]
        codes = [served.ask(token, "tools/list").status_code for served in (one, two)]

    assert (ambiguous.code, "Name one with --server." in ambiguous.err) == (2, True)
    assert codes == [401, 200]


def test_a_remote_address_needs_the_flag_and_then_reaches_no_disk(hostside: CommandLine) -> None:
    without = hostside.process("serve", "--http", "0.0.0.0:0", "--json")
    hostside.world.configure('[serve]\nallowed_hosts = ["tools.example.org"]\n')
    with hostside.started("serve", "--http", "0.0.0.0:0", "--allow-remote", "--json") as process:
        assert process.stdout is not None
        facts = json.loads("".join(process.stdout.readline() for _ in range(7)))
        paths = host_paths(hostside.world.environment())
        (record,) = ServerFolder(paths).live()
        local = f"http://127.0.0.1:{record.address.rpartition(':')[2]}/mcp"
        opened = _open(hostside)
        body = modern_body("tools/call", {"name": "list_dir", "arguments": {}})
        names = {name.replace("_", "-"): value for name, value in modern_headers(body).items()}
        headers = {"accept": ACCEPT, "host": "tools.example.org", **names}
        anonymous = httpx.post(local, json=body, headers=headers, trust_env=False)
        headers["authorization"] = f"Bearer {opened['token']}"
        answer = httpx.post(local, json=body, headers=headers, trust_env=False)

    assert (without.code, "--allow-remote" in without.json["error"]["remedy"]) == (2, True)
    assert (facts["remote"], facts["url"], opened["url"]) == (True, *["https://tools.example.org/mcp"] * 2)
    assert anonymous.status_code == 401
    failure = json.loads(answer_of(answer)["result"]["content"][0]["text"])["failure"]
    assert failure["details"] == [{"blocker": "no_caller_disk"}, {"class": "caller_filesystem"}]


def test_a_taken_port_is_an_error_with_a_remedy(hostside: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = hostside.process("serve", "--http", str(taken.getsockname()[1]), "--json")

    assert (found.code, "cannot be listened on" in found.json["error"]["message"]) == (2, True)
