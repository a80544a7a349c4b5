"""MCP, Codex, Claude, and the tokens of sessions (sections 1.8 to 1.11)."""

from tests.proofs import Nodes, of
from tests.proofs.modules import (
    EQUAL,
    EVERY_STAGE,
    RAW,
    TWIN,
    apart,
    codex_edge,
    codex_ends,
    codex_run,
    door,
    edge_cases,
    equal,
    gateway,
    http_cli,
    limits,
    mcp,
    sessions,
    source,
    stdio,
    stdio_cli,
)

both = of("worker/test_both_agents")
calls = of("edges/test_mcp_http_calls")
claude_run = of("worker/test_claude_runtime")
claude_real = of("system/test_claude_real")
codex_real = of("system/test_codex_real")
conformance = of("system/test_conformance")
killed = of("system/test_killed_host")
launch = of("worker/test_codex_launch")
recorded = of("cli/test_recorded_runs")
runs_apart = of("worker/test_runs_apart")
stdio_process = of("edges/test_mcp_stdio_process")
stdio_rows = of("cases/test_stdio_cases")
worker_rows = of("cases/test_worker_cases")

ENDED_SESSIONS = of("worker/test_ended_sessions")(
    "test_over_http_the_next_request_is_refused",
    "test_without_a_port_the_next_call_is_refused_and_nothing_is_done",
)
IN_NO_LOG = of("worker/test_run_tokens")("test_the_tokens_of_a_run_are_in_no_log_no_event_and_no_file")
PORT_ALONE = of("worker/test_run_tokens")("test_whoever_knows_the_port_alone_is_refused")
DOOR = door("test_the_door_answers_as_agreed_and_stays_open")
AFTER_THE_END = runs_apart("test_after_the_end_nobody_answers_and_on_a_reused_port_the_token_is_refused")
TWO_RUNS = runs_apart("test_of_two_runs_each_has_its_own_loopback_port_and_its_token_opens_no_other")
_TOKENS = sessions("test_10_000_tokens_differ_and_none_is_in_the_file")
_THREAD = codex_run("test_a_thread_starts_with_exactly_the_listed_tools_and_the_key_is_in_no_argument")
_REFUSED = codex_run("test_refused_calls_are_answered_and_the_thread_goes_on")
_NOBODY = codex_run("test_what_nobody_can_decide_is_answered_at_once")
_SERVED = claude_run("test_the_edge_is_served_before_the_child_and_after_it")

MCP: dict[str, Nodes] = {
    "R-157": mcp(
        "test_a_tool_is_described_with_its_safety_facts",
        "test_the_list_is_the_session_s_own_in_name_order_and_twice_the_same",
    ),
    "R-158": RAW[:2],
    "R-159": (
        *mcp(
            "test_an_unknown_tool_is_a_protocol_error_and_still_has_a_receipt", "test_an_unknown_method_is_minus_32601"
        ),
        *stdio("test_broken_frames_get_one_error_each_and_the_loop_goes_on"),
    ),
    "R-160": EQUAL,
    "R-161": limits("test_no_code_of_the_reserved_range_is_made_up_here"),
    "R-162": mcp("test_the_server_says_who_it_is_and_what_is_bound"),
    "R-163": (
        *stdio("test_both_eras_list_and_call"),
        *door("test_the_handshake_of_each_known_revision_is_answered_and_an_unknown_one_gets_the_latest"),
        *calls("test_the_version_header_says_which_era_answers"),
    ),
    "R-164": limits("test_every_answer_of_the_newest_revision_says_its_kind_and_a_listing_how_long_it_keeps"),
    "R-165": limits("test_a_call_that_needs_a_person_ends_at_once_where_nobody_can_answer"),
    "R-166": limits("test_the_hosts_limit_counts_each_session_by_itself_and_names_the_host"),
    "R-167": EQUAL,
    "R-168": stdio_rows("test_every_line_on_standard_output_is_a_frame"),
    "R-169": stdio_process("test_the_end_of_input_ends_the_process_and_its_children"),
    "R-171": stdio_cli(
        "test_a_client_reads_its_own_folder_and_is_offered_no_tracker_and_no_write",
        "test_the_server_resolves_no_secret_at_all",
    ),
    "R-172": stdio("test_a_cancel_notification_suppresses_the_answer"),
    "R-173": (*TWO_RUNS, *runs_apart("test_the_listener_of_a_run_is_on_one_address_of_this_machine")),
    "R-174": (*DOOR, *door("test_a_token_is_checked_before_the_body_is_read")),
    "R-175": (*DOOR, *edge_cases("test_host_origin_and_the_place_of_the_token")),
    "R-176": DOOR,
    "R-177": (
        *DOOR,
        *door("test_a_body_without_a_length_is_cut_off_at_the_limit", "test_a_body_of_just_the_limit_is_read"),
    ),
    "R-178": DOOR,
    "R-179": (*DOOR, *calls("test_a_modern_body_under_another_version_header_is_a_header_mismatch")),
    "R-180": calls("test_a_client_that_leaves_cancels_its_call_and_the_receipt_says_what_is_known"),
    "R-181": (
        *runs_apart("test_the_listener_of_a_run_is_on_one_address_of_this_machine"),
        *http_cli("test_a_remote_address_needs_the_flag_and_then_reaches_no_disk"),
        *limits("test_the_endpoint_neither_forwards_nor_serves_a_file"),
    ),
    "R-182": http_cli("test_a_remote_address_needs_the_flag_and_then_reaches_no_disk"),
    "R-183": (
        *calls("test_fifty_parallel_calls_of_two_runs_with_the_same_ids_each_get_their_own_answer"),
        *apart("test_changes_of_one_workspace_follow_each_other_and_those_of_two_do_not"),
    ),
}
CODEX: dict[str, Nodes] = {
    "R-184": _THREAD,
    "R-185": _THREAD,
    "R-186": codex_run("test_without_tools_the_field_is_absent"),
    "R-187": (*_REFUSED, *codex_real("test_every_outcome_reaches_the_model_and_leaves_its_receipt")),
    "R-188": codex_edge(
        "test_a_result_is_one_text_item_with_the_json_of_the_outcome",
        "test_a_failure_says_in_its_text_what_the_protocol_cannot",
    ),
    "R-189": (*_REFUSED, *both("test_each_failure_is_the_same_on_each_edge_and_the_conversation_goes_on")),
    "R-190": _NOBODY,
    "R-191": codex_ends("test_an_answer_after_the_agent_closed_its_input_is_dropped_and_the_receipt_stands"),
    "R-192": codex_ends("test_a_call_in_flight_is_no_silence_but_silence_is_a_stall"),
    "R-193": codex_run("test_a_slow_call_does_not_hold_up_another_and_each_is_answered_on_its_id"),
    "R-194": _NOBODY,
    "R-195": (
        *codex_run("test_a_thread_is_resumed_by_its_id_and_keeps_the_tools_it_has"),
        *codex_real("test_a_resumed_thread_keeps_its_history_and_its_tools"),
    ),
    "R-198": launch("test_a_command_is_split_into_words_and_never_expanded", "test_everything_else_is_refused"),
    "R-199": (*_NOBODY, *source("test_a_replaced_design_is_gone")),
    "R-200": (*_THREAD, *codex_ends("test_a_cancelled_run_leaves_no_process_and_closes_its_receipts")),
    "R-201": codex_run("test_ten_megabytes_in_a_line_and_noise_on_stderr_disturb_nothing"),
}
CLAUDE: dict[str, Nodes] = {
    "R-202": _SERVED,
    "R-203": claude_run("test_the_configuration_holds_one_server_with_a_url_and_one_header"),
    # There is no file at all: the configuration comes through a descriptor.
    "R-204": (
        *claude_run("test_token_and_prompt_are_in_no_argument_variable_or_file"),
        *worker_rows("test_c_26_e_the_configuration_is_no_file_anywhere_and_holds_no_secret_but_the_token"),
        *claude_real("test_the_token_is_in_no_file_of_the_run"),
    ),
    "R-206": claude_run(
        "test_the_command_line_is_the_one_that_reads_nothing_but_the_host", "test_settings_become_arguments"
    ),
    "R-207": claude_run("test_the_environment_holds_the_model_token_and_no_secret"),
    "R-208": both("test_a_tool_gets_the_issue_with_its_reference_whatever_the_arguments_say"),
    "R-209": (
        *TWIN,
        *both("test_each_failure_is_the_same_on_each_edge_and_the_conversation_goes_on"),
        *equal("test_every_edge_lists_the_same_tools_with_the_same_schemas"),
    ),
    "R-210": (
        *door("test_the_handshake_of_each_known_revision_is_answered_and_an_unknown_one_gets_the_latest"),
        *calls("test_a_client_that_always_counts_from_one_is_answered_each_time"),
    ),
    "R-211": _SERVED,
    "R-212": (
        *of("worker/test_claude_outcome")("test_the_end_is_told_from_typed_fields_and_the_exit_code_alone"),
        *claude_run("test_every_end_has_its_reason"),
    ),
}
TOKENS: dict[str, Nodes] = {
    "R-213": (*_TOKENS, *IN_NO_LOG),
    "R-214": (*TWO_RUNS, *sessions("test_a_token_opens_its_own_server_and_kind_alone")),
    "R-215": (
        *_TOKENS,
        *IN_NO_LOG,
        *sessions("test_the_list_shows_tokens_without_anything_to_use"),
        *door("test_a_token_that_cannot_be_checked_opens_nothing"),
    ),
    "R-216": (
        *sessions("test_a_token_ends_with_its_session_or_after_24_hours"),
        *http_cli("test_an_expired_session_is_refused"),
        *ENDED_SESSIONS,
    ),
    "R-217": (
        *AFTER_THE_END,
        *ENDED_SESSIONS,
        *calls(
            "test_an_open_stream_ends_with_its_token",
            "test_a_silent_call_ends_too_when_its_token_is_revoked_elsewhere",
        ),
        *recorded("test_a_running_run_is_stopped_from_another_process_and_ends_cleanly"),
    ),
    # A call that had begun is cancelled with its receipt; one that had not is refused with `session_closed`.
    "R-218": (
        *AFTER_THE_END,
        *of("edges/test_http_server")("test_stopping_ends_calls_in_flight_with_their_receipts"),
        *apart("test_a_change_that_waited_while_its_session_ended_is_refused_and_not_made"),
        *gateway("test_a_closed_or_expired_session_runs_nothing"),
    ),
    "R-219": (
        *killed("test_whatever_is_killed_at_a_random_moment_leaves_nothing_behind"),
        *EVERY_STAGE,
        *recorded("test_a_run_whose_host_is_gone_is_ended_before_anything_is_shown"),
    ),
    "R-220": _TOKENS,
    "R-221": (*DOOR, *TWO_RUNS, *PORT_ALONE),
    "R-222": (
        *AFTER_THE_END,
        *worker_rows("test_c_27_d_another_server_on_the_port_refuses_the_token_of_the_first"),
    ),
    "R-223": runs_apart("test_a_continuation_gets_a_token_of_its_own_and_the_late_end_of_the_first_spares_it"),
}
