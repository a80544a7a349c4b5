"""`hostside tools`: every tool with its facts, and whether it would run (R-353, R-354, A3-11)."""

import pytest

from hostside.app.catalogue import TRANSPORTS
from tests.cli.conftest import CommandLine

TOOLS = [
    "edit_file",
    "file_issue_comment_add",
    "file_issue_comment_update",
    "file_issue_comments",
    "file_issue_get",
    "file_issue_move",
    "file_issue_states",
    "find_files",
    "git_add",
    "git_commit",
    "git_diff",
    "git_status",
    "list_dir",
    "read_file",
    "search_files",
    "write_file",
]
KEYS = (
    "name title capability side_effect risk locality destructive idempotent open_world approval aliases "
    "argument_aliases source version schema_bytes"
).split()


def test_the_list_has_the_promised_shape_with_and_without_a_configuration(hostside: CommandLine) -> None:
    configured = hostside("tools", "list", "--json").json
    hostside.world.config.unlink()
    bare = hostside("tools", "list", "--json").json

    assert bare == configured
    assert list(bare) == ["fingerprint", "tools"]
    assert [tool["name"] for tool in bare["tools"]] == TOOLS
    assert all(list(tool) == KEYS for tool in bare["tools"])


def test_the_list_says_class_capability_effect_and_approval_of_every_tool(hostside: CommandLine) -> None:
    hostside.world.configure('[policy]\nconfirm = ["file_issue_move"]\n')

    lines = hostside("tools", "list").out.splitlines()

    assert lines[0].split() == ["NAME", "CLASS", "CAPABILITY", "EFFECT", "RISK", "APPROVAL", "TITLE"]
    rows = {line.split()[0]: line.split()[1:6] for line in lines[1:]}
    assert list(rows) == TOOLS
    assert rows["file_issue_move"] == ["remotable", "write", "external", "normal", "all"]
    assert rows["read_file"] == ["caller_filesystem", "read", "read", "normal", "-"]


def test_a_tracker_kind_without_tools_is_named_not_hidden(hostside: CommandLine) -> None:
    hostside.world.configure('[trackers.l]\nkind = "linear"\ntoken = "env:L"\nproject = "p"\n')

    found = hostside("tools", "list", "--json")

    assert [tool["name"] for tool in found.json["tools"]] == TOOLS
    assert found.err == "not listed: tools of linear (not supported by this version)\n"


def test_showing_a_tool_tells_its_arguments_and_facts(hostside: CommandLine) -> None:
    found = hostside("tools", "show", "edit_file")

    assert found.code == 0
    for part in ("Edit a file", "ARGUMENT", "expected_sha256", 'pattern `"^[0-9a-f]{64}$"`', "caller_filesystem"):
        assert part in found.out
    shown = hostside("tools", "show", "edit_file", "--json").json
    assert set(shown) == {*KEYS, "description", "input_schema", "output_schema"}


def test_a_file_tool_over_http_is_explained_as_the_boundary_would_refuse_it(hostside: CommandLine) -> None:
    assert hostside("tools", "explain", "edit_file", "--transport", "http").whole == (
        0,
        "edit_file over serve --http: would be refused\n"
        "  class     caller_filesystem: needs the caller's own disk\n"
        "  blocker   disk_unproven: This tool needs the caller's own disk, and this session has not proven that it shares "
        "one with the host.\n"
        "  instead   Run it through `hostside serve --stdio` on the caller's machine, or prove the workspace.\n"
        "  checks    resolve ok · locality refused (validate, authorize, narrow, approve not reached)\n",
        "",
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_transport_reaches_what_its_edge_was_built_to_reach(hostside: CommandLine, transport: str) -> None:
    words = ("--transport", transport, "--profile", "full", "--json")
    found = {
        name: hostside("tools", "explain", name, *words).json for name in ("read_file", "git_commit", "file_issue_get")
    }

    expected = {
        "stdio": [(True, None), (True, None), (False, "not_offered")],
        "http": [(False, "disk_unproven"), (False, "disk_unproven"), (True, None)],
    }.get(transport, [(True, None)] * 3)
    assert [(item["would_run"], item["blocker"]) for item in found.values()] == expected


def test_a_run_does_not_offer_what_its_agent_has_unless_configured(bare: CommandLine) -> None:
    found = bare("tools", "explain", "read_file", "--transport", "inband", "--json").json

    assert found == {
        "tool": "read_file",
        "transport": "inband",
        "would_run": False,
        "code": "unknown_tool",
        "blocker": "not_offered",
        "alternative": 'Name its family in hostside.toml: [run] tools = ["files", "git"].',
        "checks": [
            {"step": "resolve", "outcome": "refused"},
            *(
                {"step": step, "outcome": "not_reached"}
                for step in "locality validate authorize narrow approve".split()
            ),
        ],
        "message": "read_file is not offered in runs: the agent has its own, and every listed tool costs context.",
    }


def test_arguments_and_profile_are_part_of_an_explanation(hostside: CommandLine) -> None:
    outside = hostside("tools", "explain", "read_file", "--arguments", '{"path": "../x"}', "--json").json
    readonly = hostside("tools", "explain", "write_file", "--json").json

    assert (outside["code"], outside["checks"][4]) == ("outside_workspace", {"step": "narrow", "outcome": "refused"})
    assert (readonly["code"], readonly["blocker"]) == ("capability_denied", "profile_readonly")


def test_explaining_and_listing_open_no_store(hostside: CommandLine) -> None:
    hostside("tools", "list")
    hostside("tools", "explain", "read_file")

    assert not (hostside.world.state / "hostside.db").exists()
