"""Test modules by a short name, and what proves more than one requirement."""

from tests.proofs import of

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

EVERY_STAGE = of("system/test_every_stage")("test_whatever_the_stage_a_stop_or_a_kill_leaves_nothing_behind")
LATE = of("core/test_late_answers")("test_whatever_comes_after_the_deadline_is_a_typed_failure_without_a_secret")
ONE_ENVIRONMENT = of("worker/test_one_environment")(
    "test_every_agent_gets_the_one_environment_and_its_own_few_variables"
)
TOOL_CREDENTIAL = of("worker/test_tool_credential")(
    "test_the_call_works_and_the_agents_side_holds_nothing_of_the_credential"
)
TWIN = twin("test_on_every_edge_the_same_issue_is_worked_with_the_same_tools_results_and_receipts")
ORDER = gateway("test_each_check_comes_before_the_next_and_before_any_work")
ROWS = rows("test_arguments_are_taken_as_sent_or_refused")
BAD_SCHEMA = schema("test_a_schema_that_breaks_a_rule_is_refused_with_its_reason")
FLIPS = schema("test_an_accepted_keyword_flips_the_verdict")
ONE_REGISTRY = source("test_there_is_one_registry_and_one_way_in", "test_only_the_gateway_calls_an_executor")
PINNED = (
    *pinned("test_a_session_lists_and_runs_what_it_was_opened_with_and_a_new_one_the_change"),
    *pinned_runs("test_a_running_agent_keeps_its_tools_and_its_tracker_and_the_next_run_has_the_new_ones"),
)
EQUAL = equal("test_every_edge_tells_the_model_and_the_receipts_what_mcp_does")
RAW = (
    *fuzz("test_raw_arguments_reach_the_boundary_as_sent_or_the_frame_is_refused"),
    *stdio("test_arguments_that_are_no_object_reach_the_boundary_and_get_a_receipt"),
    *codex_edge("test_raw_arguments_reach_the_boundary_without_any_key"),
)
STRICT = canonical("test_what_two_readers_could_understand_differently_is_refused", "test_what_is_not_json_is_refused")
EDITS = gateway("test_an_executor_that_edits_its_arguments_changes_neither_receipt_nor_observer")
