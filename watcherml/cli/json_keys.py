"""The keys of what each command writes with ``--format json``, as its help says them.

Sizes are bytes, durations seconds, moments seconds since 1970; the unit ends the key. Read when help is asked for.
"""

from __future__ import annotations

_VERDICT = (
    "kind (verdict), status, verified, standing, sentence, simulated, verdict, digest, changes, environment, trials,"
    " campaign_id"
)
_EVENTS = "one line an event with kind (event), campaign_id, seq, at, type, body, words; then one line with"
_REMOVAL = (
    "kind (removal), what, run_ids, campaign_ids, imported_results, leftovers, runs, campaigns, trials, points,"
    " records, database_bytes, file_bytes, kept, removed, given_back_bytes, deletion, problems"
)
# By command; names outside parentheses are the top-level keys of the last line, in their order.
KEYS = {
    "demo": f"{_EVENTS} {_VERDICT}, run_id, seconds",
    "init": "kind (store), path, created",
    "doctor": "kind (doctor), version, healthy, findings (each with name, status, sentence, remedy)",
    "runs": "kind (runs), runs (each with the columns of the view run_summary)",
    "inspect": "kind (run), headline, simulated, run, metrics, samples, artifacts, failure (null for a run without), "
    "resolution (the same)",
    "failures": "kind (failures), failures (each with the columns of the view failure_summary, and the run's title)",
    "resolve": "kind (resolution), resolved, run_id, failure_class, resolved_at, resolved_by, resolved_note, changed, "
    "before",
    "compare": "kind (comparison), headline, first, second, judged_by, changes, left_out, unknown, rules_version",
    "prepare-recovery": "kind (plan), headline, simulated, plan, digest, states, worst_case",
    "recover": f"{_EVENTS} {_VERDICT}",
    "recoveries": "kind (campaigns), campaigns (each with the columns of the view campaign_summary, and lifecycle)",
    "recovery": f"{_VERDICT}, lifecycle, events (while it has no verdict: kind (progress), lifecycle, sentence,"
    " simulated, source_run_id, plan_digest, budget_bytes, trials, planned, campaign_id, status, events; with --watch"
    " one line an event comes first)",
    "verify": "target, kind (recovery-result, recovery-plan or archive), standing, sentence, campaign_id, status,"
    " reason_code, verified, checks_passed, checks_total, problems, documents",
    "export": "kind (export), run_id, path, size_bytes, members, points, campaigns",
    "import": "kind (import), run_id, original_run_id, path, already, points, capsules, campaigns, claims",
    "pack": "kind (pack), path, size_bytes, files, members",
    "delete": _REMOVAL,
    "prune": f"{_REMOVAL} (and prunable, where no flag says what should go)",
    "scan": "kind (scan), store, count (all that was found), kinds (how many of each kind), findings (each with table,"
    ' "file" for a file of the store, column, its path there, row, run_id, path, the place in a JSON document, kind,'
    " excerpt; none holds the secret itself)",
    "stop": "kind (stop), was, campaign_id, lifecycle, status, reason_code, sentence",
    "resume": f"{_EVENTS} {_VERDICT}",
    "ui": "kind (ui), address, store, pid",
    "schema": "kind (schemas), schemas (with DOCUMENT: its JSON Schema)",
}
