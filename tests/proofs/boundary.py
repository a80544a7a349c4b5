"""Tools, arguments, the boundary, scope, results and receipts (sections 1.1 to 1.4 and 1.6)."""

from tests.proofs import Nodes, of

apart = of("core/test_sessions_apart")
built_in = of("tools/test_every_built_in")
canonical = of("core/test_canonical")
checkout_refusals = of("worker/test_checkout_refusals")
codex_edge = of("edges/test_codex_edge")
codex_ends = of("worker/test_codex_endings")
codex_run = of("worker/test_codex_runtime")
content = of("cases/test_content_cases")
contract = of("trackers/test_file_contract")
door = of("edges/test_mcp_http_door")
edge_cases = of("cases/test_edge_cases")
equal = of("edges/test_functions_equal")
execution = of("cases/test_execution_cases")
facts = of("core/test_spec_facts")
file_scope = of("trackers/test_file_scope")
fuzz = of("edges/test_mcp_http_fuzz")
gateway = of("core/test_gateway")
git_cases = of("cases/test_workspace_git_cases")
git_read = of("tools/test_git_read")
http_cli = of("cli/test_serve_http")
inside = of("tools/test_staying_inside")
journal = of("core/test_journal")
limits = of("edges/test_mcp_limits")
mcp = of("edges/test_mcp_clients")
outcomes = of("core/test_outcomes")
pinned = of("edges/test_pinned_tools")
pinned_runs = of("system/test_pinned_runs")
planted = of("system/test_planted_secrets")
policy = of("core/test_policy")
reading = of("tools/test_read_and_list")
redaction = of("core/test_redaction")
registry = of("core/test_registry")
rows = of("cases/test_registry_cases")
run_life = of("worker/test_run_life")
schema = of("core/test_schema")
scope = of("core/test_scope")
search = of("tools/test_search")
sessions = of("store/test_sessions")
source = of("guards/test_source")
stdio = of("edges/test_mcp_stdio")
stdio_cli = of("cli/test_serve_stdio")
store = of("store/test_receipts")
twin = of("system/test_twin_runs")
writing = of("tools/test_write_and_edit")
workspace = of("worker/test_workspace")
workspace_rows = of("cases/test_workspace_cases")

_TWIN = twin("test_the_same_issue_is_worked_the_same_way_whatever_the_agent_and_the_edge")
_ORDER = gateway("test_each_check_comes_before_the_next_and_before_any_work")
_ROWS = rows("test_arguments_are_taken_as_sent_or_refused")
_BAD_SCHEMA = schema("test_a_schema_that_breaks_a_rule_is_refused_with_its_reason")
_FLIPS = schema("test_an_accepted_keyword_flips_the_verdict")
_ONE_REGISTRY = source("test_there_is_one_registry_and_one_way_in", "test_only_the_gateway_calls_an_executor")
_PINNED = (
    *pinned("test_a_session_lists_and_runs_what_it_was_opened_with_and_a_new_one_the_change"),
    *pinned_runs("test_a_running_agent_keeps_its_tools_and_its_tracker_and_the_next_run_has_the_new_ones"),
)
_EQUAL = equal("test_every_edge_tells_the_model_and_the_receipts_what_mcp_does")
_RAW = (
    *fuzz("test_raw_arguments_reach_the_boundary_as_sent_or_the_frame_is_refused"),
    *stdio("test_arguments_that_are_no_object_reach_the_boundary_and_get_a_receipt"),
    *codex_edge("test_raw_arguments_reach_the_boundary_without_any_key"),
)
_STRICT = canonical("test_what_two_readers_could_understand_differently_is_refused", "test_what_is_not_json_is_refused")
_EDITS = gateway("test_an_executor_that_edits_its_arguments_changes_neither_receipt_nor_observer")

TOOLS: dict[str, Nodes] = {
    "R-001": _ONE_REGISTRY,
    "R-002": registry(
        "test_a_safety_fact_has_no_default",
        "test_a_spec_with_a_bad_fact_is_refused_and_changes_nothing",
        "test_derived_facts_follow_from_the_spec",
    ),
    "R-003": registry("test_a_safety_fact_has_no_default"),
    "R-004": (
        *facts("test_anything_but_one_of_them_is_refused_and_changes_nothing"),
        *registry("test_a_safety_fact_has_no_default"),
    ),
    "R-005": facts(
        "test_each_fact_knows_these_values_and_no_other", "test_anything_but_one_of_them_is_refused_and_changes_nothing"
    ),
    "R-006": registry("test_facts_that_contradict_each_other_are_refused"),
    "R-007": registry("test_names_and_aliases_collide_whatever_their_case"),
    "R-008": (
        *rows("test_names_that_some_layer_would_change_are_refused_at_start_up"),
        *registry("test_a_name_that_an_agent_would_change_or_shadow_is_refused"),
        *codex_edge("test_the_listing_goes_out_verbatim_in_name_order_with_the_advertised_schema"),
        *mcp("test_a_tool_is_described_with_its_safety_facts"),
    ),
    "R-009": registry(
        "test_a_spec_with_a_bad_fact_is_refused_and_changes_nothing",
        "test_names_and_aliases_collide_whatever_their_case",
        "test_a_replacement_keeps_every_field_that_is_not_named",
    ),
    "R-010": registry(
        "test_what_the_registry_hands_out_cannot_change_it",
        "test_a_schema_that_its_author_edits_later_stays_as_it_was_registered",
    ),
    "R-011": registry(
        "test_a_replacement_keeps_every_field_that_is_not_named", "test_a_removed_tool_is_restored_identically"
    ),
    "R-012": registry(
        "test_what_is_no_tool_is_refused", "test_a_spec_with_a_bad_fact_is_refused_and_changes_nothing"
    ),
    "R-015": apart("test_a_filtered_view_can_neither_be_widened_nor_used_to_change_the_registry"),
    "R-016": (
        *apart("test_two_workspaces_have_their_own_tools_and_their_own_executors"),
        *writing("test_tools_of_one_workspace_refuse_a_session_of_another"),
    ),
    "R-017": (
        *built_in("test_mcp_and_codex_show_each_built_in_with_the_schema_of_the_catalogue"),
        *equal("test_every_edge_lists_the_same_tools_with_the_same_schemas"),
        *of("cli/test_docs_command")("test_the_pages_of_this_repository_are_what_the_code_says"),
    ),
    "R-019": (
        *built_in(
            "test_the_table_has_each_built_in_and_nothing_else",
            "test_each_built_in_takes_an_object_and_returns_a_typed_result",
        ),
        *gateway("test_what_is_no_result_is_a_broken_contract"),
    ),
    "R-020": gateway("test_no_argument_can_stand_for_a_host_fact"),
    "R-021": _PINNED,
    "R-022": (*_PINNED, *registry("test_a_snapshot_sees_nothing_of_later_changes")),
    "R-023": (
        *mcp("test_the_list_is_the_session_s_own_in_name_order_and_twice_the_same"),
        *codex_edge("test_the_listing_goes_out_verbatim_in_name_order_with_the_advertised_schema"),
    ),
    "R-025": (*_ONE_REGISTRY, *schema("test_every_keyword_is_either_enforced_or_an_annotation")),
}
ARGUMENTS: dict[str, Nodes] = {
    "R-026": schema(
        "test_every_keyword_is_either_enforced_or_an_annotation", "test_a_keyword_that_is_not_enforced_is_refused"
    ),
    "R-027": (*_FLIPS, *schema("test_a_keyword_that_is_not_enforced_is_refused")),
    "R-028": _BAD_SCHEMA,
    "R-029": _BAD_SCHEMA,
    "R-030": (*_BAD_SCHEMA, *canonical("test_what_is_not_json_is_refused")),
    "R-031": _BAD_SCHEMA,
    "R-032": (
        *_BAD_SCHEMA,
        *schema("test_a_schema_of_200_levels_is_refused", "test_a_catastrophic_pattern_cannot_hang_a_call"),
    ),
    "R-033": (
        *_BAD_SCHEMA,
        *schema(
            "test_a_pattern_is_searched_and_not_matched_in_full", "test_a_catastrophic_pattern_cannot_hang_a_call"
        ),
    ),
    "R-034": _ORDER,
    "R-035": (*gateway("test_arguments_that_are_no_object_are_refused_with_a_receipt"), *_RAW),
    "R-036": (*_ROWS, *mcp("test_a_refusal_is_one_text_that_names_pointer_and_rule_and_has_a_receipt")),
    "R-037": _ROWS,
    "R-038": (*_ROWS, *gateway("test_arguments_arrive_equal_with_defaults_and_the_receipt_shows_them")),
    "R-039": (*_STRICT, *_RAW[:1]),
    "R-040": (*_STRICT, *edge_cases("test_a_frame_with_a_duplicate_key_is_refused_before_anything_else")),
    "R-041": _FLIPS,
    "R-042": (
        *_STRICT,
        *door("test_the_door_answers_as_agreed_and_stays_open", "test_a_body_without_a_length_is_cut_off_at_the_limit"),
        *stdio("test_a_frame_of_several_mebibytes_works_and_one_over_the_limit_gets_one_error"),
    ),
    "R-043": (
        *canonical("test_text_is_kept_as_it_is"),
        *content(
            "test_c_06_a_written_file_has_exactly_the_bytes_that_were_sent",
            "test_c_06_a_commit_message_is_kept_byte_for_byte",
        ),
        *writing("test_path_and_content_are_never_mixed_up"),
    ),
    "R-044": (
        *gateway("test_arguments_arrive_equal_with_defaults_and_the_receipt_shows_them"),
        *schema("test_a_default_is_applied_at_every_level_and_copied"),
    ),
    "R-045": (
        *mcp("test_a_refusal_is_one_text_that_names_pointer_and_rule_and_has_a_receipt"),
        *codex_run("test_refused_calls_are_answered_and_the_thread_goes_on"),
    ),
    "R-046": (*_ORDER, *_ROWS),
    "R-047": search("test_a_malformed_search_is_refused_before_any_file_is_opened"),
}
BOUNDARY: dict[str, Nodes] = {
    "R-048": (*_ONE_REGISTRY, *source("test_edges_import_nothing_that_decides"), *_EQUAL),
    "R-049": _ORDER,
    "R-050": (*_EDITS, *gateway("test_an_approval_is_asked_for_exactly_this_call")),
    "R-051": _EDITS,
    "R-052": (*_RAW, *source("test_a_replaced_design_is_gone")),
    "R-054": (
        *planted("test_an_agent_that_reads_all_it_can_finds_no_secret_of_the_host"),
        *stdio_cli("test_the_server_resolves_no_secret_at_all"),
        *_TWIN,
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
    "R-069": gateway(
        "test_a_call_that_hangs_is_stopped_at_its_deadline",
        "test_a_cancelled_caller_leaves_exactly_one_receipt_that_says_so",
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
    "R-076": of("worker/test_both_agents")(
        "test_a_tool_gets_the_issue_with_its_reference_whatever_the_arguments_say"
    ),
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
