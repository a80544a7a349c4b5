"""The boundary, scope, results and receipts (sections 1.3, 1.4 and 1.6)."""

from tests.proofs import Nodes, of
from tests.proofs.modules import (
    EDITS,
    EQUAL,
    LATE,
    ONE_REGISTRY,
    ORDER,
    RAW,
    TOOL_CREDENTIAL,
    TWIN,
    built_in,
    canonical,
    checkout_refusals,
    codex_ends,
    codex_run,
    contract,
    execution,
    facts,
    file_scope,
    gateway,
    git_cases,
    git_read,
    http_cli,
    inside,
    journal,
    limits,
    mcp,
    outcomes,
    pinned_runs,
    planted,
    policy,
    reading,
    redaction,
    registry,
    run_life,
    scope,
    search,
    sessions,
    source,
    stdio_cli,
    store,
    workspace,
    workspace_rows,
    writing,
)

BOUNDARY: dict[str, Nodes] = {
    "R-048": (*ONE_REGISTRY, *source("test_edges_import_nothing_that_decides"), *EQUAL),
    "R-049": ORDER,
    "R-050": (*EDITS, *gateway("test_an_approval_is_asked_for_exactly_this_call")),
    "R-051": EDITS,
    "R-052": (*RAW, *source("test_a_replaced_design_is_gone")),
    "R-054": (
        *planted("test_an_agent_that_reads_all_it_can_finds_no_secret_of_the_host"),
        *stdio_cli("test_the_server_resolves_no_secret_at_all"),
        *TOOL_CREDENTIAL,
        *TWIN,
    ),
    "R-055": (
        *gateway("test_an_exception_leaves_a_fixed_sentence_and_ran_once"),
        *execution("test_c_28_c_and_d_a_write_with_an_unknown_end_is_sent_once_and_says_so"),
    ),
    "R-056": (
        *sessions(
            "test_a_session_row_keeps_every_fact_that_its_receipts_are_judged_by",
            "test_a_token_opens_its_own_server_and_kind_alone",
            "test_a_token_ends_with_its_session_or_after_24_hours",
        ),
        *gateway("test_a_closed_or_expired_session_runs_nothing"),
    ),
    "R-057": policy("test_what_is_granted_lies_inside_every_layer"),
    "R-058": (
        *policy("test_the_named_profiles_are_these"),
        *stdio_cli("test_a_client_reads_its_own_folder_and_is_offered_no_tracker_and_no_write"),
        *http_cli("test_a_session_has_at_most_the_servers_profile_and_needs_its_configuration"),
    ),
    # Policy knows capabilities, not names, and a tool without one cannot be registered: nothing is left unknown (D4).
    "R-059": (
        *registry("test_a_safety_fact_has_no_default"),
        *facts("test_anything_but_one_of_them_is_refused_and_changes_nothing"),
    ),
    "R-060": (
        *http_cli("test_an_expired_session_is_refused"),
        *sessions("test_a_token_ends_with_its_session_or_after_24_hours"),
    ),
    "R-061": (*outcomes("test_ask_and_plan_leave_reading_alone"), *gateway("test_modes_reduce_authority")),
    "R-063": (
        *gateway("test_an_approver_that_raises_has_not_agreed"),
        *limits("test_a_call_that_needs_a_person_ends_at_once_where_nobody_can_answer"),
    ),
    "R-067": (
        *gateway("test_an_unknown_tool_names_the_nearest"),
        *codex_run("test_refused_calls_are_answered_and_the_thread_goes_on"),
        *mcp("test_an_unknown_tool_is_a_protocol_error_and_still_has_a_receipt"),
    ),
    "R-068": (
        *gateway(
            "test_an_exception_leaves_a_fixed_sentence_and_ran_once",
            "test_expected_failures_and_late_refusals_keep_their_words_without_secrets",
        ),
        *outcomes("test_what_crashes_leaves_no_secret_in_the_hosts_log"),
    ),
    "R-069": (
        *gateway(
            "test_a_call_that_hangs_is_stopped_at_its_deadline",
            "test_a_cancelled_caller_leaves_exactly_one_receipt_that_says_so",
        ),
        *LATE,
    ),
    # As D23 has it: a repeated delivery or post is answered from the journal, a local write always executes.
    "R-070": journal(
        "test_the_same_delivery_is_answered_with_the_stored_outcome_and_its_own_receipt",
        "test_an_identical_post_is_replayed_unless_the_caller_sends_a_new_key",
        "test_a_local_write_runs_every_time",
    ),
    "R-075": of("guards/test_documents")(
        "test_the_security_page_says_for_whom_what_is_walled_who_answers_and_what_is_left",
        "test_the_readme_leads_to_it",
    ),
}
SCOPE: dict[str, Nodes] = {
    "R-076": of("worker/test_both_agents")("test_a_tool_gets_the_issue_with_its_reference_whatever_the_arguments_say"),
    "R-077": (
        *file_scope("test_whatever_a_text_names_the_write_is_on_the_runs_own_issue"),
        *of("trackers/test_base")("test_a_tool_acts_only_on_the_issue_that_the_call_was_narrowed_to"),
        *scope("test_another_issue_is_refused_with_one_and_the_same_text"),
    ),
    "R-078": (
        *contract("TestFileTracker::test_no_tool_takes_a_target"),
        *built_in("test_the_table_has_each_built_in_and_nothing_else"),
    ),
    "R-079": (
        *contract("TestFileTracker::test_no_tool_takes_a_target"),
        *file_scope("test_a_target_among_the_arguments_is_an_unknown_property"),
    ),
    "R-080": file_scope(
        "test_whatever_a_text_names_the_write_is_on_the_runs_own_issue",
        "test_a_decoy_beside_a_foreign_comment_does_not_open_it",
    ),
    "R-083": (
        *source("test_only_adapters_open_a_native_ref"),
        *file_scope("test_a_scrambled_reference_changes_nothing_outside_the_adapter"),
    ),
    "R-084": file_scope(
        "test_the_reference_reaches_the_adapters_tool_as_it_is_and_leaves_by_no_result",
        "test_a_target_among_the_arguments_is_an_unknown_property",
    ),
    "R-085": (
        *contract("TestFileTracker::test_a_session_without_an_issue_is_refused_by_every_tool"),
        *file_scope("test_an_issue_without_a_reference_has_none_and_its_tools_reach_no_further"),
    ),
    "R-088": (
        *inside("test_every_tool_refuses_the_path_and_shows_it_as_given", "test_links_that_stay_inside_are_followed"),
        *workspace_rows("test_c_24_a_path_that_leaves_is_refused_before_anything_is_opened_or_made"),
    ),
    "R-089": inside(
        "test_a_file_swapped_for_a_link_is_never_read_through_it",
        "test_a_folder_swapped_for_a_link_is_never_entered_through_it",
        "test_a_linked_folder_that_changes_never_lets_a_write_out",
    ),
    "R-090": workspace(
        "test_a_safe_identifier_is_its_own_key",
        "test_identifiers_that_look_alike_get_keys_of_their_own",
        "test_different_identifiers_have_different_keys_and_branches",
    ),
    "R-091": workspace("test_empty_dotted_reserved_and_endless_identifiers_are_refused"),
    "R-092": (
        *workspace(
            "test_a_place_is_inside_its_root_which_is_made_for_this_user_alone",
            "test_a_link_or_a_file_in_place_of_the_workspace_is_refused",
        ),
        *run_life("test_what_is_not_as_it_must_be_ends_the_run_before_its_agent_starts"),
    ),
    "R-093": (
        *of("worker/test_isolation")(
            "test_the_workspace_and_the_home_are_where_the_run_is_told",
            "test_a_cwd_outside_is_refused_before_anything_starts",
        ),
        *codex_run("test_a_thread_starts_with_exactly_the_listed_tools_and_the_key_is_in_no_argument"),
    ),
    "R-094": codex_ends("test_a_command_outside_the_workspace_stops_the_run"),
    "R-095": pinned_runs("test_after_a_run_the_checkout_holds_what_was_committed_and_nothing_else"),
    "R-096": (
        *git_read(
            "test_values_that_git_could_read_as_options_start_no_process",
            "test_paths_outside_start_no_process",
            "test_a_work_tree_elsewhere_is_not_used",
        ),
        *git_cases("test_c_22_f_a_value_that_looks_like_an_option_is_refused_and_runs_nothing"),
    ),
    "R-097": (
        *checkout_refusals("test_a_checkout_of_something_else_is_refused_and_unchanged"),
        *run_life("test_what_is_not_as_it_must_be_ends_the_run_before_its_agent_starts"),
    ),
    "R-098": writing(
        "test_an_edit_replaces_one_piece_keeps_the_mode_and_tells_the_next_hash",
        "test_an_edit_that_does_not_fit_changes_nothing",
        "test_a_file_that_changes_during_the_edit_is_left_as_it_is",
    ),
    "R-099": (
        *reading("test_a_long_file_comes_in_pages", "test_one_line_beyond_the_limit_is_cut_and_said_to_be"),
        *search(
            "test_a_search_stops_at_its_limit_of_matches",
            "test_a_line_is_shown_around_its_match_and_all_within_20000_characters",
            "test_a_search_ends_after_five_seconds",
        ),
    ),
}
RESULTS: dict[str, Nodes] = {
    "R-126": (
        *gateway("test_what_is_no_result_is_a_broken_contract", "test_a_failure_is_one_object_of_at_most_4000_bytes"),
        *mcp("test_a_success_is_the_same_json_as_text_and_as_structure"),
    ),
    "R-127": outcomes("test_the_failure_codes_are_the_closed_list"),
    "R-128": (
        *of("trackers/test_base")("test_every_error_has_its_code_a_remedy_and_an_effect"),
        *of("worker/test_both_agents")("test_each_failure_is_the_same_on_each_edge_and_the_conversation_goes_on"),
    ),
    "R-131": (
        *gateway("test_a_verified_effect_is_what_the_verifier_found"),
        *of("store/test_runs")("test_acceptance_names_who_and_what"),
    ),
    "R-132": gateway("test_a_result_over_its_bound_is_cut_with_a_mark_and_a_flag"),
    "R-133": (
        *redaction("test_a_known_secret_is_masked_in_every_form", "test_what_looks_like_a_secret_is_masked"),
        *execution("test_c_21_c_and_d_no_form_of_a_secret_is_told_on"),
        *outcomes("test_what_crashes_leaves_no_secret_in_the_hosts_log"),
    ),
    "R-134": (
        *limits("test_an_answer_leaves_without_secrets_in_bounds_and_means_what_the_tool_said"),
        *canonical("test_hidden_characters_arrive_escaped_and_not_removed"),
    ),
    "R-135": (
        *outcomes("test_words_of_an_error_in_a_result_are_no_failure"),
        *of("worker/test_claude_outcome")("test_the_end_is_told_from_typed_fields_and_the_exit_code_alone"),
    ),
    "R-136": of("store/test_gateway_store")("test_each_call_leaves_one_receipt_whatever_its_end"),
    "R-137": store("test_a_start_and_an_end_are_in_the_file_when_they_return"),
    "R-139": (
        *canonical("test_the_order_of_keys_does_not_change_a_digest", "test_the_type_of_a_value_changes_its_digest"),
        *outcomes("test_an_operation_is_run_tool_and_arguments_whatever_the_order_of_keys"),
    ),
    "R-140": registry("test_derived_facts_follow_from_the_spec"),
    "R-141": (
        *store("test_an_event_can_neither_be_changed_nor_deleted", "test_an_event_of_no_session_cannot_be_slipped_in"),
        *of("store/test_database")("test_folder_and_files_are_the_owners_alone"),
        *of("worker/test_sandbox_walls")("test_from_inside_nothing_of_the_host_is_found_but_the_runs_own_ports"),
    ),
    "R-142": mcp(
        "test_a_success_is_the_same_json_as_text_and_as_structure",
        "test_a_refusal_is_one_text_that_names_pointer_and_rule_and_has_a_receipt",
    ),
    "R-143": (
        *writing(
            "test_a_new_file_is_made_with_its_folders_and_verified",
            "test_a_verifier_that_finds_other_bytes_makes_the_effect_unknown",
        ),
        *of("tools/test_git_changes")("test_a_commit_tells_its_id_and_parent_and_is_verified"),
    ),
    "R-144": gateway("test_observers_that_raise_or_edit_disturb_nobody"),
    "R-145": (
        *gateway("test_observers_that_raise_or_edit_disturb_nobody"),
        *outcomes("test_an_observer_that_blocks_holds_up_neither_the_call_nor_the_others"),
    ),
    "R-146": (
        *outcomes("test_every_call_is_told_when_it_begins_and_how_it_ends_with_issue_session_and_tool"),
        *codex_ends("test_a_call_in_flight_is_no_silence_but_silence_is_a_stall"),
        *of("worker/test_claude_runtime")("test_a_tool_call_holds_the_silence_clock"),
    ),
}
