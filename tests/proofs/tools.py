"""Tools and their arguments (sections 1.1 and 1.2)."""

from tests.proofs import Nodes, of
from tests.proofs.modules import (
    BAD_SCHEMA,
    FLIPS,
    ONE_REGISTRY,
    ORDER,
    PINNED,
    RAW,
    ROWS,
    STRICT,
    apart,
    built_in,
    canonical,
    codex_edge,
    codex_run,
    content,
    door,
    edge_cases,
    equal,
    facts,
    gateway,
    mcp,
    registry,
    rows,
    schema,
    search,
    stdio,
    writing,
)

TOOLS: dict[str, Nodes] = {
    "R-001": ONE_REGISTRY,
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
    "R-012": registry("test_what_is_no_tool_is_refused", "test_a_spec_with_a_bad_fact_is_refused_and_changes_nothing"),
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
    "R-021": PINNED,
    "R-022": (*PINNED, *registry("test_a_snapshot_sees_nothing_of_later_changes")),
    "R-023": (
        *mcp("test_the_list_is_the_session_s_own_in_name_order_and_twice_the_same"),
        *codex_edge("test_the_listing_goes_out_verbatim_in_name_order_with_the_advertised_schema"),
    ),
    "R-025": (*ONE_REGISTRY, *schema("test_every_keyword_is_either_enforced_or_an_annotation")),
}
ARGUMENTS: dict[str, Nodes] = {
    "R-026": schema(
        "test_every_keyword_is_either_enforced_or_an_annotation", "test_a_keyword_that_is_not_enforced_is_refused"
    ),
    "R-027": (*FLIPS, *schema("test_a_keyword_that_is_not_enforced_is_refused")),
    "R-028": BAD_SCHEMA,
    "R-029": BAD_SCHEMA,
    "R-030": (*BAD_SCHEMA, *canonical("test_what_is_not_json_is_refused")),
    "R-031": BAD_SCHEMA,
    "R-032": (
        *BAD_SCHEMA,
        *schema("test_a_schema_of_200_levels_is_refused", "test_a_catastrophic_pattern_cannot_hang_a_call"),
    ),
    "R-033": (
        *BAD_SCHEMA,
        *schema("test_a_pattern_is_searched_and_not_matched_in_full", "test_a_catastrophic_pattern_cannot_hang_a_call"),
    ),
    "R-034": ORDER,
    "R-035": (*gateway("test_arguments_that_are_no_object_are_refused_with_a_receipt"), *RAW),
    "R-036": (*ROWS, *mcp("test_a_refusal_is_one_text_that_names_pointer_and_rule_and_has_a_receipt")),
    "R-037": ROWS,
    "R-038": (*ROWS, *gateway("test_arguments_arrive_equal_with_defaults_and_the_receipt_shows_them")),
    "R-039": (*STRICT, *RAW[:1]),
    "R-040": (*STRICT, *edge_cases("test_a_frame_with_a_duplicate_key_is_refused_before_anything_else")),
    "R-041": FLIPS,
    "R-042": (
        *STRICT,
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
    "R-046": (*ORDER, *ROWS),
    "R-047": search("test_a_malformed_search_is_refused_before_any_file_is_opened"),
}
