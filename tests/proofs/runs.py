"""Trackers and the life of a run (sections 1.12 and 1.15)."""

from tests.proofs import Nodes, of
from tests.proofs.modules import (
    EVERY_STAGE,
    ONE_ENVIRONMENT,
    TOOL_CREDENTIAL,
    TWIN,
    built_in,
    codex_run,
    contract,
    execution,
    git_cases,
    journal,
    planted,
    run_life,
    workspace,
)

base = of("trackers/test_base")
checkout_crash = of("worker/test_checkout_crash")
claude_run = of("worker/test_claude_runtime")
codex_ends = of("worker/test_codex_endings")
environment = of("worker/test_child_environment")
file_reading = of("trackers/test_file_reading")
file_writing = of("trackers/test_file_writing")
file_processes = of("trackers/test_file_processes")
hooks = of("worker/test_hooks")
isolation = of("worker/test_isolation")
killed = of("system/test_killed_host")
remote = of("worker/test_remote_launch")
secrets = of("config/test_secrets")
selection = of("trackers/test_selection")
settings = of("config/test_host_settings")
trust = of("config/test_workflow_trust")
walls = of("worker/test_sandbox_walls")
worker_rows = of("cases/test_worker_cases")

LOGIN = of("system/test_model_key")("test_a_login_stays_with_the_host_as_a_key_does")
_READ, _TOOL = "TestFileTracker", "TestFileIssueTools"
_NORMALIZED = (
    *contract(f"{_READ}::test_every_normalized_field_is_present"),
    *file_reading("test_every_field_is_normalized", "test_optional_fields_of_another_type_count_as_not_given"),
)
_PROFILE = contract(f"{_READ}::test_the_profile_is_complete_and_describes_exactly_the_tools")
_DOCS = of("cli/test_docs_command")("test_the_pages_of_this_repository_are_what_the_code_says")
_BEFORE = run_life("test_what_is_not_as_it_must_be_ends_the_run_before_its_agent_starts")
_REMOVED = environment("test_a_name_that_leads_to_a_credential_is_removed_wherever_it_came_from")
_ENDED = claude_run("test_an_agent_that_does_not_go_on_is_ended")

TRACKERS: dict[str, Nodes] = {
    "R-224": contract(
        f"{_READ}::test_empty_inputs_return_empty_without_asking_the_provider",
        f"{_READ}::test_states_are_compared_trimmed_and_without_case",
        f"{_READ}::test_every_normalized_field_is_present",
    ),
    "R-225": contract(
        f"{_READ}::test_a_failed_request_fails_the_whole_read",
        f"{_READ}::test_a_malformed_record_is_dropped_from_a_listing_and_fails_a_read_by_id",
        f"{_READ}::test_ids_come_back_in_the_order_asked_and_unseen_ones_are_left_out",
    ),
    "R-226": (
        *_NORMALIZED,
        *base(
            "test_labels_are_trimmed_in_lower_case_and_each_once",
            "test_a_time_is_aware_or_nothing",
            "test_a_priority_is_an_integer_or_nothing",
        ),
    ),
    "R-227": (*_PROFILE, *file_reading("test_the_file_needs_no_secret")),
    "R-228": (
        *run_life("test_only_the_tracker_that_the_workflow_selects_is_offered_and_touched"),
        *selection("test_the_one_that_is_named_is_taken_and_brings_its_own_tools_alone"),
    ),
    "R-229": (
        *secrets(
            "test_a_reference_is_kept_as_it_was_written",
            "test_each_kind_of_reference_gives_the_secret_and_an_empty_one_is_missing",
        ),
        *settings("test_a_secret_in_the_wrong_place_is_refused_and_not_repeated"),
        *trust("test_a_secret_in_the_file_is_used_by_nobody_and_reported_without_its_value"),
    ),
    "R-230": (*_BEFORE, *base("test_an_absent_or_blank_secret_is_missing_and_the_remedy_names_its_setting")),
    "R-231": (
        *base("test_every_error_has_its_code_a_remedy_and_an_effect"),
        *selection("test_a_tracker_that_cannot_be_told_or_is_not_known_is_a_typed_error"),
    ),
    "R-232": (*_PROFILE, *_DOCS),
    "R-236": (
        *contract(
            f"{_TOOL}::test_a_move_is_confirmed_and_a_repeat_changes_nothing",
            f"{_TOOL}::test_a_move_from_another_state_than_expected_changes_nothing_and_says_what_was_seen",
            f"{_TOOL}::test_a_move_to_an_unknown_state_lists_the_valid_ones",
        ),
        *file_writing("test_a_move_that_someone_undid_at_once_is_not_reported_as_done"),
    ),
    "R-237": contract(
        f"{_TOOL}::test_the_same_comment_twice_in_a_session_is_there_once",
        f"{_TOOL}::test_a_comment_whose_receipt_was_lost_is_found_by_the_next_session_of_the_run",
    ),
    "R-238": (
        *file_writing("test_a_write_that_the_disk_did_not_confirm_is_not_known"),
        *journal("test_a_post_whose_effect_is_unknown_is_not_sent_again"),
        *execution("test_c_28_c_and_d_a_write_with_an_unknown_end_is_sent_once_and_says_so"),
    ),
    "R-239": (
        *journal("test_writes_to_one_issue_never_overlap"),
        *contract(f"{_TOOL}::test_of_two_parallel_moves_from_one_state_one_wins"),
    ),
    "R-240": (*_PROFILE, *_DOCS),
    "R-262": file_reading(
        "test_a_missing_file_has_no_issues",
        "test_what_is_not_one_json_array_is_an_error",
        "test_a_malformed_entry_is_skipped_with_a_log_line",
    ),
    "R-263": _NORMALIZED,
    "R-264": (*built_in("test_each_built_in_takes_an_object_and_returns_a_typed_result"), *TWIN),
    "R-265": (
        *file_processes(
            "test_no_comment_of_four_processes_is_lost",
            "test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one",
        ),
        *file_reading("test_a_file_that_the_agent_could_reach_is_refused"),
    ),
    "R-266": file_reading("test_the_file_needs_no_secret"),
}
RUNS: dict[str, Nodes] = {
    "R-324": environment(
        "test_of_the_host_only_the_portable_names_are_taken",
        "test_run_facts_and_extras_are_added_and_cannot_move_the_home",
    ),
    "R-325": (
        *worker_rows("test_c_26_a_no_secret_of_the_host_is_in_the_environment_of_a_runs_process"),
        *hooks("test_the_environment_is_that_of_the_run_and_holds_no_secret"),
    ),
    "R-326": (
        *environment("test_of_the_host_only_the_portable_names_are_taken"),
        *workspace("test_a_home_is_fresh_private_and_beside_the_workspaces"),
        *worker_rows("test_c_26_c_git_has_no_credential_for_the_tracker_inside"),
        *walls("test_from_inside_nothing_of_the_host_is_found_but_the_runs_own_ports"),
    ),
    "R-327": environment("test_the_author_identity_of_git_is_all_of_git_that_can_be_set"),
    "R-328": (*_REMOVED, *environment("test_a_later_git_terminal_prompt_cannot_be_turned_on")),
    "R-329": _REMOVED,
    "R-330": (*isolation("test_every_kind_of_process_gets_the_one_environment"), *ONE_ENVIRONMENT),
    "R-331": remote(
        "test_every_declared_secret_of_the_remote_side_is_gone",
        "test_the_names_that_the_configuration_takes_secrets_from_are_unset_over_there",
        "test_the_names_to_unset_are_the_declared_ones_once_each",
        "test_a_secret_does_not_travel_in_a_command",
    ),
    "R-332": (
        *TOOL_CREDENTIAL,
        *planted("test_an_agent_that_reads_all_it_can_finds_no_secret_of_the_host"),
        *worker_rows(
            "test_c_26_a_no_secret_of_the_host_is_in_the_environment_of_a_runs_process",
            "test_c_26_b_no_process_of_the_machine_has_token_or_key_in_its_arguments",
            "test_c_26_e_the_configuration_is_no_file_anywhere_and_holds_no_secret_but_the_token",
        ),
    ),
    "R-333": (*TWIN, *LOGIN, *claude_run("test_the_environment_holds_the_model_token_and_no_secret")),
    "R-335": (
        *isolation("test_every_kind_of_process_gets_the_one_environment"),
        *git_cases("test_c_23_a_an_inherited_git_dir_does_not_move_the_commit"),
    ),
    "R-336": (
        *hooks(
            "test_every_hook_runs_in_the_workspace_in_turn",
            "test_at_the_deadline_the_hook_and_all_that_it_started_are_killed",
            "test_a_hook_has_a_minute_where_nobody_says_otherwise",
        ),
        *run_life("test_the_hooks_come_in_their_order_and_the_last_may_fail"),
    ),
    "R-337": (
        *hooks("test_a_failure_stops_the_run_before_the_agent_and_not_after_it"),
        *run_life("test_a_failed_after_create_leaves_no_checkout_and_is_due_again"),
        *checkout_crash("test_a_preparation_killed_in_its_hook_is_begun_anew"),
    ),
    "R-338": (
        *hooks("test_hooks_of_a_file_run_only_once_it_is_trusted"),
        *trust("test_every_guarded_key_is_ignored_and_named_without_trust"),
    ),
    "R-339": hooks(
        "test_the_environment_is_that_of_the_run_and_holds_no_secret",
        "test_what_a_hook_prints_is_redacted_and_cut",
        "test_at_the_deadline_the_hook_and_all_that_it_started_are_killed",
    ),
    "R-340": _BEFORE,
    "R-341": (
        *_ENDED,
        *EVERY_STAGE,
        *claude_run("test_cancellation_ends_agent_call_and_edge"),
        *codex_ends("test_a_cancelled_run_leaves_no_process_and_closes_its_receipts"),
        *isolation("test_cancellation_ends_everything"),
        *walls("test_no_process_of_a_run_outlives_a_host_that_is_killed"),
    ),
    "R-342": (
        *TWIN,
        *of("config/test_no_tool_processes")(
            "test_a_server_that_the_agent_would_start_cannot_be_configured",
            "test_no_key_of_the_settings_speaks_of_servers_or_of_tools_without_the_host",
        ),
    ),
    "R-343": run_life("test_a_run_says_what_it_offers_and_under_which_snapshot_but_no_token"),
    "R-344": (
        *_ENDED,
        *codex_ends("test_a_turn_is_bounded_even_while_a_call_runs"),
        *codex_run("test_what_nobody_can_decide_is_answered_at_once"),
    ),
}
