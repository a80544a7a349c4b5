"""The checks of the acceptance matrix (A0, AX), and the public cases by row."""

from tests.proofs import Nodes, of
from tests.proofs.edges import (
    AFTER_THE_END,
    DOOR,
    TWO_RUNS,
    both,
    calls,
    claude_run,
    codex_real,
    conformance,
    killed,
    runs_apart,
    stdio_process,
    stdio_rows,
    worker_rows,
)
from tests.proofs.modules import (
    BAD_SCHEMA,
    ONE_REGISTRY,
    PINNED,
    RAW,
    TWIN,
    apart,
    built_in,
    codex_ends,
    codex_run,
    content,
    door,
    edge_cases,
    execution,
    facts,
    file_scope,
    fuzz,
    gateway,
    git_cases,
    limits,
    mcp,
    pinned_runs,
    planted,
    registry,
    rows,
    schema,
    source,
    stdio,
    stdio_cli,
    store,
    workspace,
    workspace_rows,
)
from tests.proofs.runs import TRACKERS

codex_frames = of("worker/test_codex_frames")
doctor = of("cli/test_doctor")
ends = of("cli/test_ends")
explain = of("core/test_explain")
frames = of("edges/test_frames")
gateway_store = of("store/test_gateway_store")
kept_rows = of("cases/test_kept_cases")
receipt_commands = of("cli/test_receipt_commands")
recorded = of("cli/test_recorded_runs")
tool_commands = of("cli/test_tool_commands")

_REFUSED = codex_run("test_refused_calls_are_answered_and_the_thread_goes_on")
_ROWS = rows("test_arguments_are_taken_as_sent_or_refused")

ACCEPTANCE: dict[str, Nodes] = {
    "A0-01": TWIN,
    "A0-02": (
        *of("config/test_no_tool_processes")(
            "test_a_server_that_the_agent_would_start_cannot_be_configured",
            "test_no_key_of_the_settings_speaks_of_servers_or_of_tools_without_the_host",
            "test_a_repository_cannot_bring_a_server_even_when_it_is_trusted",
        ),
        *source("test_a_replaced_design_is_gone"),
    ),
    "A0-03": codex_run(
        "test_a_thread_starts_with_exactly_the_listed_tools_and_the_key_is_in_no_argument",
        "test_without_tools_the_field_is_absent",
    ),
    "A0-04": (*_REFUSED, *codex_real("test_every_outcome_reaches_the_model_and_leaves_its_receipt"), *TWIN),
    "A0-05": (*_REFUSED, *mcp("test_an_unknown_tool_is_a_protocol_error_and_still_has_a_receipt")),
    "A0-06": (
        *claude_run("test_the_configuration_holds_one_server_with_a_url_and_one_header"),
        *planted("test_an_agent_that_reads_all_it_can_finds_no_secret_of_the_host"),
    ),
    "A0-07": (
        *AFTER_THE_END,
        *killed("test_whatever_is_killed_at_a_random_moment_leaves_nothing_behind"),
        *worker_rows("test_c_27_d_another_server_on_the_port_refuses_the_token_of_the_first"),
    ),
    "A0-08": (
        *both("test_a_tool_gets_the_issue_with_its_reference_whatever_the_arguments_say"),
        *file_scope("test_the_reference_reaches_the_adapters_tool_as_it_is_and_leaves_by_no_result"),
    ),
    "A0-10": source("test_a_replaced_design_is_gone"),
    "A0-12": PINNED,
    # The rows that need a provider behind an adapter come with the adapters; here each code is raised by a tool.
    "A0-16": (*both("test_each_failure_is_the_same_on_each_edge_and_the_conversation_goes_on"), *_REFUSED, *TWIN),
    "A0-17": (*TWO_RUNS, *runs_apart("test_the_listener_of_a_run_is_on_one_address_of_this_machine")),
    "A0-19": (
        *source("test_only_adapters_open_a_native_ref"),
        *file_scope("test_a_scrambled_reference_changes_nothing_outside_the_adapter"),
    ),
    "AX-01": (*ONE_REGISTRY, *source("test_edges_import_nothing_that_decides")),
    "AX-02": (
        *facts("test_anything_but_one_of_them_is_refused_and_changes_nothing"),
        *registry(
            "test_a_spec_with_a_bad_fact_is_refused_and_changes_nothing",
            "test_facts_that_contradict_each_other_are_refused",
            "test_names_and_aliases_collide_whatever_their_case",
            "test_a_name_that_an_agent_would_change_or_shadow_is_refused",
        ),
    ),
    "AX-03": (
        *registry("test_what_the_registry_hands_out_cannot_change_it"),
        *built_in("test_mcp_and_codex_show_each_built_in_with_the_schema_of_the_catalogue"),
        *mcp("test_the_list_is_the_session_s_own_in_name_order_and_twice_the_same"),
    ),
    "AX-05": apart(
        "test_two_workspaces_have_their_own_tools_and_their_own_executors",
        "test_a_filtered_view_can_neither_be_widened_nor_used_to_change_the_registry",
    ),
    "AX-06": gateway("test_what_is_no_result_is_a_broken_contract", "test_no_argument_can_stand_for_a_host_fact"),
    "AX-08": (
        *BAD_SCHEMA,
        *schema("test_a_schema_of_200_levels_is_refused", "test_a_catastrophic_pattern_cannot_hang_a_call"),
    ),
    "AX-09": (
        *RAW,
        *DOOR,
        *frames("test_what_is_not_strict_json_is_a_parse_error_of_no_request"),
        *stdio("test_a_frame_of_several_mebibytes_works_and_one_over_the_limit_gets_one_error"),
        *codex_run("test_strange_frames_get_a_typed_refusal_and_the_edge_stays_alive"),
    ),
    "AX-10": (
        *gateway("test_arguments_arrive_equal_with_defaults_and_the_receipt_shows_them"),
        *schema("test_a_default_is_applied_at_every_level_and_copied"),
    ),
    "AX-19": (
        *workspace(
            "test_a_safe_identifier_is_its_own_key",
            "test_identifiers_that_look_alike_get_keys_of_their_own",
            "test_empty_dotted_reserved_and_endless_identifiers_are_refused",
            "test_a_link_or_a_file_in_place_of_the_workspace_is_refused",
        ),
        *of("worker/test_isolation")("test_a_cwd_outside_is_refused_before_anything_starts"),
        *codex_ends("test_a_command_outside_the_workspace_stops_the_run"),
    ),
    "AX-20": pinned_runs("test_after_a_run_the_checkout_holds_what_was_committed_and_nothing_else"),
    "AX-25": (
        *gateway_store("test_each_call_leaves_one_receipt_whatever_its_end"),
        *store(
            "test_a_start_and_an_end_are_in_the_file_when_they_return",
            "test_an_event_can_neither_be_changed_nor_deleted",
        ),
        *registry("test_derived_facts_follow_from_the_spec"),
    ),
    "AX-28": (
        *conformance(
            "test_every_scored_scenario_is_green_behind_the_front_door",
            "test_scenarios_that_need_no_fixture_are_green_on_the_product_itself",
        ),
        *mcp(
            "test_the_server_says_who_it_is_and_what_is_bound",
            "test_the_list_is_the_session_s_own_in_name_order_and_twice_the_same",
            "test_an_unknown_tool_is_a_protocol_error_and_still_has_a_receipt",
            "test_an_unknown_method_is_minus_32601",
        ),
        *stdio_process("test_the_official_client_lists_and_calls_beside_a_noisy_tool"),
        *limits("test_every_answer_of_the_newest_revision_says_its_kind_and_a_listing_how_long_it_keeps"),
    ),
    "AX-30": (
        *stdio_rows("test_every_line_on_standard_output_is_a_frame"),
        *stdio_process("test_the_end_of_input_ends_the_process_and_its_children"),
        *stdio("test_a_cancel_notification_suppresses_the_answer"),
        *stdio_cli("test_a_client_reads_its_own_folder_and_is_offered_no_tracker_and_no_write"),
    ),
    "AX-31": (
        *DOOR,
        *door("test_a_token_is_checked_before_the_body_is_read"),
        *calls(
            "test_a_client_that_leaves_cancels_its_call_and_the_receipt_says_what_is_known",
            "test_fifty_parallel_calls_of_two_runs_with_the_same_ids_each_get_their_own_answer",
        ),
        *fuzz("test_any_body_is_answered_and_the_next_request_works"),
        *AFTER_THE_END,
        *runs_apart("test_the_listener_of_a_run_is_on_one_address_of_this_machine"),
    ),
    "AX-38": (*TRACKERS["R-229"], *TRACKERS["R-230"], *TRACKERS["R-232"]),
    "AX-45": (*TRACKERS["R-262"], *TRACKERS["R-264"], *TRACKERS["R-265"], *TRACKERS["R-266"]),
    "AX-56": (
        *tool_commands("test_a_file_tool_over_http_is_explained_as_the_boundary_would_refuse_it"),
        *explain("test_an_explanation_agrees_with_the_call_and_executes_nothing"),
        *receipt_commands("test_receipts_are_listed_by_what_is_asked"),
        *recorded("test_a_run_is_shown_with_sessions_events_and_no_token"),
        *doctor("test_each_damage_is_found_with_a_remedy_and_the_other_checks_go_on"),
        *ends("test_a_start_up_failure_is_visible_and_names_the_key"),
    ),
    "AX-58": limits(
        "test_an_answer_leaves_without_secrets_in_bounds_and_means_what_the_tool_said",
        "test_the_hosts_limit_counts_each_session_by_itself_and_names_the_host",
    ),
}
#: Case or row -> the tests that take it. A row's own entry goes before its case's.
CASES: dict[str, Nodes] = {
    **dict.fromkeys(("C-01", "C-02", "C-03", "C-04"), _ROWS),
    "C-05": (*_ROWS, *edge_cases("test_a_frame_with_a_duplicate_key_is_refused_before_anything_else")),
    "C-06": content(
        "test_c_06_a_written_file_has_exactly_the_bytes_that_were_sent",
        "test_c_06_an_edit_and_a_read_keep_every_byte",
        "test_c_06_a_commit_message_is_kept_byte_for_byte",
    )
    + of("trackers/test_file_writing")("test_bodies_arrive_byte_for_byte"),
    **dict.fromkeys(("C-07", "C-09"), rows("test_a_bad_schema_stops_the_start_and_a_kept_format_is_enforced")),
    "C-08": rows("test_names_that_some_layer_would_change_are_refused_at_start_up"),
    "C-13": edge_cases("test_a_session_is_its_own_token_s_alone"),
    "C-14": edge_cases("test_host_origin_and_the_place_of_the_token"),
    "C-15.a": edge_cases("test_two_runs_with_one_id_each_get_their_own_answer_the_slower_one_first"),
    "C-15.b": edge_cases("test_fifty_calls_with_one_id_are_not_mixed_up_when_the_other_client_leaves"),
    "C-16": stdio_rows("test_every_line_on_standard_output_is_a_frame"),
    "C-17": stdio_rows("test_only_a_line_feed_ends_a_frame_and_a_bad_one_does_not_stop_the_next")
    + codex_frames("test_only_a_newline_ends_a_frame_and_a_carriage_return_before_it_is_nothing"),
    "C-21.b": execution("test_c_21_b_a_known_secret_is_masked_under_any_key"),
    "C-21.c": execution("test_c_21_c_and_d_no_form_of_a_secret_is_told_on"),
    "C-21.d": execution("test_c_21_c_and_d_no_form_of_a_secret_is_told_on"),
    "C-21.e": kept_rows("test_c_21_e_after_a_run_every_file_and_folder_of_the_state_is_the_owners_alone"),
    **dict.fromkeys(
        ("C-22.a", "C-22.b", "C-22.c", "C-22.d"), git_cases("test_c_22_no_marker_after_any_operation_on_the_workspace")
    ),
    "C-22.f": git_cases("test_c_22_f_a_value_that_looks_like_an_option_is_refused_and_runs_nothing"),
    "C-22.g": workspace_rows("test_c_22_g_a_path_inside_git_is_refused_and_makes_no_file"),
    "C-23.a": git_cases("test_c_23_a_an_inherited_git_dir_does_not_move_the_commit"),
    "C-23.e": git_cases("test_c_23_e_a_lock_is_reported_with_its_age_and_never_removed"),
    "C-24": workspace_rows(
        "test_c_24_a_path_that_leaves_is_refused_before_anything_is_opened_or_made",
        "test_c_24_an_odd_name_is_one_literal_name_inside_the_root",
    ),
    "C-26.a": worker_rows("test_c_26_a_no_secret_of_the_host_is_in_the_environment_of_a_runs_process"),
    "C-26.b": worker_rows("test_c_26_b_no_process_of_the_machine_has_token_or_key_in_its_arguments"),
    "C-26.c": worker_rows("test_c_26_c_git_has_no_credential_for_the_tracker_inside"),
    "C-26.d": of("system/test_claude_real")(
        "test_neither_repository_nor_home_can_redirect_configure_or_instruct_it",
        "test_the_model_is_offered_exactly_the_listing_of_the_session",
    ),
    "C-26.e": worker_rows("test_c_26_e_the_configuration_is_no_file_anywhere_and_holds_no_secret_but_the_token"),
    "C-27.a": worker_rows("test_c_27_a_after_the_end_the_token_is_refused_within_a_second"),
    "C-27.b": worker_rows("test_c_27_b_an_open_stream_and_a_call_in_flight_end_with_their_run"),
    "C-27.c": runs_apart("test_a_continuation_gets_a_token_of_its_own_and_the_late_end_of_the_first_spares_it"),
    "C-27.d": worker_rows("test_c_27_d_another_server_on_the_port_refuses_the_token_of_the_first"),
    "C-28.a": kept_rows("test_c_28_a_a_repeat_after_a_lost_answer_finds_the_first_comment"),
    "C-28.b": execution("test_c_28_b_a_wanted_second_post_uses_a_new_key"),
    "C-28.c": execution("test_c_28_c_and_d_a_write_with_an_unknown_end_is_sent_once_and_says_so"),
    "C-28.d": execution("test_c_28_c_and_d_a_write_with_an_unknown_end_is_sent_once_and_says_so"),
}
