"""The JSON documents behind ``--format json``: plain values under stable keys, one function a face.

Every document has ``kind``; those about one device have ``simulated``. Sizes are bytes, durations seconds,
moments seconds since 1970; the unit is the end of the key. JSON has no NaN: such a number becomes the text
``nan``, ``inf`` or ``-inf``, and in metric points ``value`` is null and ``special`` holds that text.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watcherml.forensics.capsule import Capsule
from watcherml.protocol.cost import worst_case
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Verdict
from watcherml.report import terms
from watcherml.report.advice import next_step
from watcherml.report.changes import differences
from watcherml.report.ladder import Rung, planned, rungs
from watcherml.report.memory import picture, shortfall
from watcherml.report.neighbours import comparison_headline, like_sentence, recovery_sentence, since_sentence
from watcherml.report.words import device_of, run_headline, verdict_words
from watcherml.sealed.paths import ABSENT
from watcherml.sealed.record import thaw

if TYPE_CHECKING:
    from watcherml.forensics.neighbours import Change, Comparison

Document = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


def failure_document(capsule: Capsule, release: Mapping[str, Any] | None = None) -> Document:
    """Return kind, headline, next_step, recovered_before, since_it_worked, seen_before (sentences), simulated,
    shortfall_bytes, memory_parts, capsule, digest, release."""
    drawn = picture(capsule)
    parts = drawn.parts if drawn else ()
    return {
        "kind": "failure",
        "headline": capsule.headline,
        "next_step": next_step(capsule),
        "recovered_before": recovery_sentence(capsule.neighbours),
        "since_it_worked": since_sentence(capsule.neighbours),
        "seen_before": like_sentence(capsule.neighbours),
        "simulated": capsule.device.kind == "simulated",
        "shortfall_bytes": shortfall(capsule),
        "memory_parts": [{"name": part.key, "bytes": part.bytes} for part in parts],
        "capsule": capsule.to_data(),
        "digest": capsule.digest,
        "release": plain_json(release),
    }


def comparison_document(found: Comparison) -> Document:
    """Return kind, headline, first, second, judged_by, changes (most suspicious first), left_out, unknown,
    rules_version. In ``changes`` a value that one run lacks has no key."""
    return {
        "kind": "comparison",
        "headline": comparison_headline(found),
        "first": found.first.to_data(),
        "second": found.second.to_data(),
        "judged_by": found.judged_by,
        "changes": [_changed(one) for one in found.difference.changes],
        "left_out": found.difference.left_out,
        "unknown": list(found.difference.unknown),
        "rules_version": found.difference.rules_version,
    }


def plan_document(plan: RecoveryPlan, authorized: Collection[str] = (), rejected: Collection[str] = ()) -> Document:
    """Return kind, headline, simulated, plan, digest, states (by proposal id), worst_case (see ``Cost``)."""
    return {
        "kind": "plan",
        "headline": terms.plan_headline(plan, authorized, rejected),
        "simulated": plan.contract.device.kind == "simulated",
        "plan": plan.to_data(),
        "digest": plan.digest,
        "states": {one.proposal_id: terms.state_of(one, authorized, rejected) for one in plan.proposals},
        "worst_case": worst_case(plan).to_data(),
    }


def progress_document(plan: RecoveryPlan, trials: Rows, lifecycle: str, sentence: str) -> Document:
    """Return kind, lifecycle, sentence, simulated, source_run_id, plan_digest, budget_bytes, trials, planned."""
    started = rungs(trials, lifecycle)
    return {
        "kind": "progress",
        "lifecycle": lifecycle,
        "sentence": sentence,
        "simulated": plan.contract.device.kind == "simulated",
        "source_run_id": plan.source.run_id,
        "plan_digest": plan.digest,
        "budget_bytes": plan.contract.device.budget_bytes,
        "trials": [_trial(rung) for rung in started],
        "planned": [{"role": stage.role, "at_most": stage.count} for stage in planned(plan, started, lifecycle)],
    }


def verdict_document(verdict: Verdict, plan: RecoveryPlan, trials: Rows, standing: str = "on_record") -> Document:
    """Return kind, status, verified, standing, sentence, simulated, verdict, digest, changes, environment, trials.

    ``verified`` is true only for a verified verdict that stands on record here; otherwise ``status`` is the standing,
    and ``sentence`` begins with whose claim it is. In ``changes`` an absent value
    has no key.
    """
    chosen = next((one for one in plan.proposals if one.proposal_id == verdict.candidate_id), None)
    word = verdict_words(verdict, standing)
    claim = f"{word[:1].upper()}{word[1:]}: "
    changed = [] if verdict.config is None else differences(plan.source.config, verdict.config)
    return {
        "kind": "verdict",
        "status": verdict.status if standing == "on_record" else standing,
        "verified": verdict.status == "verified" and standing == "on_record",
        "standing": standing,
        "sentence": f"{'' if standing == 'on_record' else claim}{verdict.sentence}",
        "simulated": verdict.device_kind == "simulated",
        "verdict": verdict.to_data(),
        "digest": verdict.digest,
        "changes": [
            {
                "path": one.path,
                **({} if one.old is ABSENT else {"before": plain_json(one.old)}),
                **({} if one.new is ABSENT else {"after": plain_json(one.new)}),
            }
            for one in changed
        ],
        "environment": dict(terms.environment(chosen)) if chosen else {},
        "trials": [_trial(rung) for rung in rungs(trials)],
    }


def run_document(row: Mapping[str, Any], metrics: Rows = (), samples: Rows = (), artifacts: Rows = ()) -> Document:
    """Return kind, headline, simulated, run, metrics, samples, artifacts; arguments as for ``html_run``."""
    return {
        "kind": "run",
        "headline": run_headline(row),
        "simulated": device_of(row).get("kind") == "simulated",
        "run": plain_json(row),
        "metrics": [_point(point) for point in metrics],
        "samples": plain_json(samples),
        "artifacts": plain_json(artifacts),
    }


def runs_document(rows: Rows) -> Document:
    """Return kind and runs; each has the columns of the view ``run_summary``."""
    return {"kind": "runs", "runs": plain_json(rows)}


def failures_document(rows: Rows) -> Document:
    """Return kind and failures; each has the columns of the view ``failure_summary``."""
    return {"kind": "failures", "failures": plain_json(rows)}


def campaigns_document(rows: Rows) -> Document:
    """Return kind and campaigns; each has the columns of the view ``campaign_summary``."""
    return {"kind": "campaigns", "campaigns": plain_json(rows)}


def plain_json(value: Any) -> Any:
    """Return a value as JSON can say it: NaN and infinities as text, other strangers by their ``str``."""
    value = thaw(value)
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _special(value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def _changed(one: Change) -> Document:
    absent = {"added": "before", "removed": "after"}.get(one.kind)
    return {key: value for key, value in one.to_data().items() if key != absent}


def _trial(rung: Rung) -> Document:
    return {
        "seq": rung.seq,
        "trial_id": rung.trial_id,
        "role": rung.role,
        "proposal_id": rung.proposal_id,
        "outcome": rung.outcome,
        "steps": rung.steps,
        "peak_bytes": rung.peak_bytes,
        "wall_s": rung.wall_s,
        "sentence": rung.sentence,
        "log_tail": list(rung.log_tail),
    }


def _point(point: Mapping[str, Any]) -> Document:
    value = point.get("value")
    special = _special(value) if isinstance(value, float) and not math.isfinite(value) else None
    return {
        "name": str(point.get("name")),
        "step": point.get("step"),
        "value": value if special is None else None,
        "special": special,
        "at": plain_json(point.get("at")),
    }


def _special(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
