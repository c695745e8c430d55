"""What to do after a campaign that verified nothing, in one sentence for each reason code."""

from __future__ import annotations

from collections.abc import Callable

from watcherml.protocol.cost import kept_probes
from watcherml.protocol.plan import NOT_THERE, RecoveryPlan
from watcherml.protocol.verdict import Verdict
from watcherml.report.terms import how_to_permit, permitted

_LOOK = "look at the checks that failed and at what the trials printed"
_AGAIN = "prepare the recovery again"
_ONCE_MORE = f"run the plan once more, which starts afresh; or raise max_trials (--max-trials) and {_AGAIN}"
_SAME = (
    "let the training function do what the failed run did, with the same data, order of batches, model and loop"
    " (on the simulated device a plain loader counts its data set, device.batches() does not); or run the function"
    " itself as a recorded run, and recover that one"
)
_STEPS = {
    "source_failure_not_reproduced": "see that the function takes its values from config, makes all that the failed run"
    " had on the device, and resumes from no checkpoint; what only the failed process held is not there in a fresh one;"
    " an out of memory that the function catches itself looks like a success",
    "control_failed_differently": f"{_SAME}; a checkpoint that the function resumes from is state of an earlier run:"
    " have it start afresh and save where watcherml.output_directory(...) says",
    "control_missing": f"{_AGAIN} with its control trial",
    "control_inconclusive": "look at what the control printed; mend what ended it, or raise the limit that did"
    f" (trial_timeout_seconds, --trial-timeout), and {_AGAIN}",
    "stopped_by_user": f"{_AGAIN} to try once more; what was tried stays on record",
    "campaign_timeout": f"raise campaign_timeout_seconds (--campaign-timeout) and {_AGAIN}",
    "gpu_seconds_exhausted": f"raise max_gpu_seconds (--max-gpu-seconds) and {_AGAIN}",
    "supervisor_lost": "resume the campaign",
    "workload_changed": f"leave code, data and packages alone while a campaign runs, and {_AGAIN}",
    "workload_differs": f"restore the code, data, packages or model of the failed run, and {_AGAIN}; or record the"
    " failure again as it is now",
    "confirmation_failed": f"{_LOOK}: what passes once and not again is close to a limit",
    "confirmations_incomplete": _ONCE_MORE,
    "no_full_trial": _ONCE_MORE,
    "no_eligible_candidate": f"{_LOOK}; the contract may ask for more than a change can keep",
    "no_candidate_tried": f"{_ONCE_MORE}; what was rejected is not tried",
    "needs_approval": f"{_AGAIN}, allow what needs approval (--allow-approval-required), and approve a proposal",
    "broken_chain": f"{_AGAIN}; these trials cannot count",
    "integration_error": "the campaign's events name the error; `watcher doctor` checks this machine",
}
_NO_CONTROL = (
    "a change needs a setting that the configuration holds and the training function reads, such as batch_size with"
    " gradient_accumulation_steps; the plan lists what was looked for"
)
_MEND = (
    "mend the error that ended the training function in its fresh process, which the end of what it printed shows"
    f" (`watcher recovery`), and {_AGAIN}; a trial has no command line, so the function takes its"
    " values from config"
)
_BY = "--approved-by NAME --approval-reason TEXT"


def next_step(verdict: Verdict, plan: RecoveryPlan, standing: str) -> str:
    """Return ``Next: ...``; empty for a verified recovery, for what is not on record here, and where the sentence of
    the verdict says it already (a diagnosed cause that no configuration removes, a run that was too short)."""
    if standing != "on_record" or verdict.status == "verified":
        return ""
    asked = (ask(verdict, plan) for ask in _ASKED.get(verdict.reason_code, ()))
    step = next(filter(None, asked), _STEPS.get(verdict.reason_code, ""))
    return f"Next: {step}." if step else ""


def _name_a_control(_: Verdict, plan: RecoveryPlan) -> str:
    if plan.source.refused_by or plan.source.control_only or plan.proposals:
        return ""
    return _found_and_left_out(plan) or _NO_CONTROL


def _permit(_: Verdict, plan: RecoveryPlan) -> str:
    if plan.proposals or not plan.withheld:
        return ""
    return f"{_AGAIN} {how_to_permit(plan)}, and approve a proposal"


def _approve(_: Verdict, plan: RecoveryPlan) -> str:
    if not plan.proposals or any(one.authority != "approval_required" for one in plan.proposals):
        return ""
    flags = f"{permitted(plan)} --authorize {plan.proposals[0].proposal_id} {_BY}".lstrip()
    same = "recover it again with the same permissions and approve a proposal"
    return f"{same} ({flags}; preparation.authorize(...) in Python)"


def _mend(verdict: Verdict, _: RecoveryPlan) -> str:
    return _MEND if _raised(verdict) else ""


def _return_metrics(verdict: Verdict, plan: RecoveryPlan) -> str:
    if not _returns_wrong(verdict, plan):
        return ""
    names = [plan.contract.progress_metric, *(one.name for one in plan.contract.verification.metric_guards)]
    values = ", ".join(f'"{one}": ...' for one in names)
    return f"have the function return its metrics, {{{values}}}, as numbers"


def _after_probes(verdict: Verdict, plan: RecoveryPlan) -> str:
    parts = (_reads_its_config(verdict, plan), _LOOK, _more_to_try(verdict, plan), _more_to_allow(plan))
    return "; ".join(filter(None, parts))


def _with_more_room(verdict: Verdict, plan: RecoveryPlan) -> str:
    return "; ".join(filter(None, (_STEPS[verdict.reason_code], _more_to_try(verdict, plan))))


# What is asked first, in this order; the first that has something to say says it, and ``_STEPS`` where none has.
_ASKED: dict[str, tuple[Callable[[Verdict, RecoveryPlan], str], ...]] = {
    "no_supported_intervention": (_name_a_control,),
    "needs_approval": (_permit, _approve),
    "control_failed_differently": (_mend,),
    "no_candidate_passed_probe": (_return_metrics, _after_probes),
    "no_eligible_candidate": (_return_metrics, _with_more_room),
    "confirmation_failed": (_with_more_room,),
}


def _raised(verdict: Verdict) -> bool:
    """Tell whether the control was ended by an error of the function's own, which is none of the known classes."""
    seen = {one.name: one.observed for one in verdict.checks if one.outcome == "fail"}
    return (seen.get("control.outcome"), seen.get("control.failure_class")) == ("training_failed", "unclassified")


def _reads_its_config(verdict: Verdict, plan: RecoveryPlan) -> str:
    """Return what to see to first where a smaller batch ran out of memory too, in every probe."""
    outcomes = [one.observed for one in verdict.checks if one.name.endswith("outcome") and one.outcome != "pass"]
    changes = [change for one in plan.proposals for change in one.changes if change.capability == "micro_batch_size"]
    if not changes or not outcomes or set(outcomes) != {"oom"}:
        return ""
    return (
        f"see that the function reads {'.'.join(changes[0].path)} from its config (a loader, model or batch that is"
        " made when a module is imported sees no change)"
    )


def _more_to_allow(plan: RecoveryPlan) -> str:
    """Return that changes were withheld for want of a permission, with what gives it; else an empty text."""
    return f"more changes can be planned {how_to_permit(plan)}" if plan.withheld else ""


def _more_to_try(verdict: Verdict, plan: RecoveryPlan) -> str:
    """Return which limits to raise where they, and not the plan, kept further changes from being tried; else empty."""
    budget, observed = plan.contract.budget, {one.name: one.observed for one in verdict.checks}
    probes, full = (int(observed.get(f"budget.{name}", "0")) for name in ("probes", "full"))
    tried = max(probes - int(plan.contract.control), full)
    left = sum(one.authority == "automatic" for one in plan.proposals) - tried
    spent = {
        "max_probe_trials": plan.contract.probe_candidates > 0
        and probes >= (budget.max_probe_trials or 0) - kept_probes(plan),
        "max_full_trials": full >= (budget.max_full_trials or 0),
    }
    names = [f"{name} (--{name.replace('_', '-')})" for name, is_spent in spent.items() if is_spent]
    if left <= 0 or not names:
        return ""
    were = "1 automatic change was" if left == 1 else f"{left:,} automatic changes were"
    return f"{were} not tried for want of room: raise {' and '.join(names)}, and max_trials with it, and {_AGAIN}"


def _found_and_left_out(plan: RecoveryPlan) -> str:
    """Return what to do where the configuration has a batch size, but what was measured rules a smaller one out."""
    found = plan.left_out("micro_batch_size")
    if found is None or found.declarable or found.reason == NOT_THERE:
        return ""
    return (
        f"what to change instead stands in the failure (`watcher inspect {plan.source.run_id}`). A smaller micro-batch"
        f" was left out: {found.reason.rstrip('.')}"
    )


def _returns_wrong(verdict: Verdict, plan: RecoveryPlan) -> bool:
    """Tell whether trials came to their end, and failed for what the function returned and for nothing else."""
    names = [f"metric.{one.name}" for one in plan.contract.verification.metric_guards]
    ends = ("progress.metric", *names)
    missing = [one for one in verdict.checks if one.outcome == "missing"]
    if verdict.reason_code == "no_candidate_passed_probe":
        return any(one.name.endswith("outcome") and one.observed == "contract_error" for one in verdict.checks)
    return bool(missing) and all(one.name.endswith(ends) for one in missing)
