"""What this version claims of the requirements, the tests that prove it, and what it leaves to later parts and why.

Ids are those of the requirements (R-, A0-, AX-) and of the public cases (C-). `tests/guards/test_requirements.py` fails
where an id is claimed and not proved, proved and not claimed, or unknown, and where a named test does not exist.
"""

from tests.proofs.boundary import BOUNDARY, RESULTS, SCOPE
from tests.proofs.checks import ACCEPTANCE, CASES
from tests.proofs.edges import CLAUDE, CODEX, MCP, TOKENS
from tests.proofs.isolation import ISOLATION
from tests.proofs.runs import RUNS, TRACKERS
from tests.proofs.tools import ARGUMENTS, TOOLS

#: Id -> pytest nodes.
PROOF: dict[str, tuple[str, ...]] = {
    **TOOLS,
    **ARGUMENTS,
    **BOUNDARY,
    **SCOPE,
    **RESULTS,
    **MCP,
    **CODEX,
    **CLAUDE,
    **TOKENS,
    **TRACKERS,
    **RUNS,
    **ACCEPTANCE,
    **ISOLATION,
}

#: Claimed by no part yet, though they stand in a section that one claims.
LATER: dict[str, str] = {
    "R-013": "compatibility tools come with the text edges; a bare callable cannot be registered at all",
    "R-014": "compatibility tools come with the text edges",
    "R-018": "the catalogue of 48 tools",
    "R-024": "the discovery tool comes with the catalogue; what is withheld stands in the server's instructions",
    "R-053": "there are no text converters yet that a test could make raise",
    "R-062": "an approval that is stored, used once and expires: the approval store; the request's fingerprint is there",
    "R-064": "argument-sensitive approval rules come with shell and web tools",
    "R-065": "the log of approval decisions: the approval store",
    "R-066": "there is no approval to forge until one can be given",
    "R-071": "plans and their steps come with child agents",
    "R-072": "the shell tool",
    "R-073": "tools defined at run time",
    "R-074": "web pages and memory come with their tools; tracker and repository text are shown to be data (C-26.d)",
    "R-081": "provider adapters; a comment's owner is checked in the file (the trackers' contract)",
    "R-082": "the GitHub Projects adapter",
    "R-086": "topic runs come with projects",
    "R-087": "credentials that reach further than a run: provider adapters",
    "R-129": "a provider's own retry-after: provider adapters",
    "R-130": "errors inside a successful answer: provider adapters",
    "R-138": "two names of one operation: the shell tool's; an operation is run, tool and arguments (R-139)",
    "R-170": "the spawnable server of projects",
    "R-197": "excluded servers are excluded; that each is reported comes with repositories as they are",
    "R-205": "excluded servers are excluded; that each is reported comes with repositories as they are",
    "R-233": "provider addresses: provider adapters",
    "R-234": "provider redirects: provider adapters",
    "R-235": "provider timeouts and sizes: provider adapters",
    "R-334": "custom agent commands are not offered",
    "AX-04": "compatibility tools come with the text edges",
}

_SECTIONS = ((1, 99), (126, 146), (157, 240), (262, 266), (324, 344))
_CHECKS = (
    "A0-01 A0-02 A0-03 A0-04 A0-05 A0-06 A0-07 A0-08 A0-10 A0-12 A0-16 A0-17 A0-19 "
    "AX-01 AX-02 AX-03 AX-04 AX-05 AX-06 AX-08 AX-09 AX-10 AX-19 AX-20 AX-25 AX-28 AX-30 AX-31 AX-38 AX-45 AX-56 AX-58"
)
_WALL = {f"R-{number:03}" for first, last in _SECTIONS for number in range(first, last + 1)} | set(_CHECKS.split())

#: Those of the sections among them were left to this part by the first.
_ISOLATION = frozenset(
    "R-196 R-331 A0-07 A0-13 A0-18 A0-20 A0-21 A0-22 "
    "AX-14 AX-16 AX-32 AX-33 AX-34 AX-35 AX-36 AX-52 AX-53 AX-54".split()
)

#: Part of the work -> the ids that it claims. `wall`: sections 1.1 to 1.4 without child agents, 1.6, 1.8 to 1.11, the
#: adapter contract and the file tracker of 1.12, 1.15, and the checks beside them.
#: `isolation`: the agent holds nothing, on every edge. Of A0-20 the half that is no push, of AX-16 the environment.
CLOSED: dict[str, frozenset[str]] = {
    "wall": frozenset(_WALL - set(LATER) - {"R-196", "R-331"}),
    "isolation": _ISOLATION,
}

#: Case or row of `tests/cases/cases.jsonl` -> the tests that take it.
ROWS: dict[str, tuple[str, ...]] = CASES

#: Components whose rows belong to a closed part.
ROW_COMPONENTS: frozenset[str] = frozenset(
    "registry.validation registry.startup edges mcp.http mcp.stdio content execution workspace.files worker receipts".split()
)

#: Case or row -> why nobody takes it yet.
ROWS_LATER: dict[str, str] = {
    "C-10": "tools take no target; the rows of scope come with the provider adapters",
    "C-11": "opaque ids of providers: provider adapters",
    "C-12": "locality on every edge",
    "C-18": "the GitHub adapter",
    "C-19": "the Linear adapter",
    "C-20": "the Gitea adapter",
    "C-21.a": "git with a credential: the host's git transport",
    "C-22.e": "fetch: the host's git transport",
    "C-23.b": "worktrees come with projects",
    "C-23.c": "worktrees come with projects",
    "C-23.d": "worktrees come with projects",
    "C-25": "project binding",
}
