"""The agent holds nothing: isolation, port-free edges, the secondary edge of Codex, and the ends of sessions."""

from tests.proofs import Nodes, of
from tests.proofs.boundary import RESULTS
from tests.proofs.edges import (
    CLAUDE,
    CODEX,
    ENDED_SESSIONS,
    IN_NO_LOG,
    PORT_ALONE,
    TOKENS,
    claude_run,
    codex_real,
    launch,
    worker_rows,
)
from tests.proofs.modules import (
    EVERY_STAGE,
    LATE,
    ONE_ENVIRONMENT,
    TOOL_CREDENTIAL,
    checkout_refusals,
    codex_ends,
    codex_run,
    gateway,
    git_cases,
    http_cli,
    outcomes,
    pinned_runs,
    planted,
    run_life,
    sessions,
)
from tests.proofs.runs import LOGIN, RUNS, environment, hooks, isolation, walls

claude_real = of("system/test_claude_real")
codex_exec = of("worker/test_codex_exec")
codex_exec_real = of("system/test_codex_exec_real")
in_band = of("worker/test_claude_inband")

_PLANTED = planted("test_an_agent_that_reads_all_it_can_finds_no_secret_of_the_host")
_AS_AGENT = of("system/test_doctor_as_agent")(
    "test_at_the_strongest_level_nothing_beyond_the_runs_own_surface_is_reached"
)
_C_26_A = worker_rows("test_c_26_a_no_secret_of_the_host_is_in_the_environment_of_a_runs_process")

ISOLATION: dict[str, Nodes] = {
    "R-196": (
        *codex_exec(
            "test_it_is_given_one_required_server_and_no_secret_in_an_argument",
            "test_results_and_refusals_reach_it_and_leave_receipts",
            "test_without_its_tools_it_does_not_begin",
            "test_a_cancelled_run_leaves_no_process_no_edge_and_closed_receipts",
        ),
        *codex_exec_real(
            "test_every_outcome_reaches_the_model_and_leaves_its_receipt",
            "test_the_token_is_in_no_file_argument_or_inherited_variable",
        ),
    ),
    "A0-13": (
        *TOOL_CREDENTIAL,
        *_PLANTED,
        *walls("test_from_inside_nothing_of_the_host_is_found_but_the_runs_own_ports"),
    ),
    "A0-18": (
        *ENDED_SESSIONS,
        *TOKENS["R-216"],
        *gateway(
            "test_a_closed_or_expired_session_runs_nothing",
            "test_a_session_that_another_process_revoked_is_closed_from_the_next_call_on",
        ),
        *http_cli("test_a_session_is_opened_called_and_revoked_by_three_processes"),
        *of("cli/test_recorded_runs")("test_a_running_run_is_stopped_from_another_process_and_ends_cleanly"),
        *codex_exec_real("test_a_token_revoked_during_the_run_ends_its_calls"),
        *claude_real("test_a_token_revoked_during_the_run_ends_its_calls"),
        *in_band("test_a_token_that_is_dead_ends_the_session_from_the_next_call_on"),
    ),
    # The isolation half: nothing that a checkout holds or configures runs on the host. That a branch is pushed, and
    # which one, comes with the host's git transport.
    "A0-20": (
        *git_cases("test_c_22_no_marker_after_any_operation_on_the_workspace"),
        *checkout_refusals("test_what_a_checkout_configures_runs_nothing"),
        *pinned_runs("test_after_a_run_the_checkout_holds_what_was_committed_and_nothing_else"),
    ),
    "A0-21": (
        *_AS_AGENT,
        *_PLANTED,
        *LOGIN,
        *worker_rows("test_c_26_c_git_has_no_credential_for_the_tracker_inside"),
        *RUNS["R-326"],
    ),
    "A0-22": RUNS["R-331"],
    "AX-14": (
        *LATE,
        *gateway(
            "test_an_exception_leaves_a_fixed_sentence_and_ran_once",
            "test_expected_failures_and_late_refusals_keep_their_words_without_secrets",
            "test_a_call_that_hangs_is_stopped_at_its_deadline",
            "test_a_cancelled_caller_leaves_exactly_one_receipt_that_says_so",
        ),
        *outcomes("test_what_crashes_leaves_no_secret_in_the_hosts_log"),
        *RESULTS["R-133"],
        *codex_ends("test_a_turn_is_bounded_even_while_a_call_runs"),
    ),
    # The part about the environment, of every process that tools and hooks start; the shell tool is R-072.
    "AX-16": (*_C_26_A, *RUNS["R-335"], *hooks("test_the_environment_is_that_of_the_run_and_holds_no_secret")),
    "AX-32": http_cli(
        "test_a_remote_address_needs_the_flag_and_then_reaches_no_disk",
        "test_a_session_is_opened_called_and_revoked_by_three_processes",
    ),
    "AX-33": (
        *(
            node
            for number in ("184", "190", "191", "192", "193", "194", "195", "200", "201")
            for node in CODEX[f"R-{number}"]
        ),
        *codex_run("test_strange_frames_get_a_typed_refusal_and_the_edge_stays_alive"),
        *codex_real("test_every_outcome_reaches_the_model_and_leaves_its_receipt"),
    ),
    "AX-34": launch("test_a_command_is_split_into_words_and_never_expanded", "test_everything_else_is_refused"),
    # The configuration is no file: it comes through a descriptor, so there is none to be left.
    "AX-35": (
        *(node for number in ("202", "204", "206", "207", "211", "212") for node in CLAUDE[f"R-{number}"]),
        *claude_run("test_every_end_has_its_reason", "test_runs_leave_no_descriptor_open"),
        *claude_real("test_the_token_is_in_no_file_of_the_run"),
        *in_band("test_the_configuration_names_a_server_and_no_way_to_it"),
    ),
    # Each turn that begins a session has a token of its own (R-223 would let it keep one).
    "AX-36": (
        *sessions("test_10_000_tokens_differ_and_none_is_in_the_file"),
        *IN_NO_LOG,
        *PORT_ALONE,
        *TOKENS["R-219"],
        *TOKENS["R-223"],
    ),
    # There is no agent command of one's own.
    "AX-52": (
        *ONE_ENVIRONMENT,
        *isolation("test_every_kind_of_process_gets_the_one_environment"),
        *hooks("test_the_environment_is_that_of_the_run_and_holds_no_secret"),
        *environment(
            "test_a_name_that_leads_to_a_credential_is_removed_wherever_it_came_from",
            "test_the_author_identity_of_git_is_all_of_git_that_can_be_set",
        ),
        *worker_rows("test_c_26_c_git_has_no_credential_for_the_tracker_inside"),
        *of("tools/test_git_changes")("test_a_commit_tells_its_id_and_parent_and_is_verified"),
    ),
    "AX-53": (
        *RUNS["R-336"],
        *RUNS["R-337"],
        *RUNS["R-338"],
        *RUNS["R-339"],
        *hooks("test_cancelling_the_run_ends_its_hook"),
    ),
    "AX-54": (
        *EVERY_STAGE,
        *RUNS["R-341"],
        *run_life("test_a_run_says_what_it_offers_and_under_which_snapshot_but_no_token"),
    ),
}
