"""Do the trials form one campaign of this plan: one id each, one budget, and nothing from elsewhere?"""

from __future__ import annotations

from collections.abc import Iterable

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Check
from watcherml.verdict import check
from watcherml.verdict.bindings import binding_checks


def in_order(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials in the order that every judgement uses, whatever order they came in."""
    return tuple(sorted(trials, key=lambda one: (one.request.trial_id, one.request.digest, one.result.digest)))


def chain_checks(
    campaign_id: str, plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trials: tuple[Trial, ...]
) -> tuple[Check, ...]:
    """Return the checks over the whole campaign: campaign, ids, budget, authorizations, and each trial's bindings."""
    return (
        _campaign(campaign_id, trials),
        *_ids(plan, trials),
        *_counts(plan, trials),
        *_spending(plan, trials),
        *_authorizations(plan, authorizations),
        *_bindings(plan, trials),
    )


def _campaign(campaign_id: str, trials: tuple[Trial, ...]) -> Check:
    others = {one.request.campaign_id for one in trials} - {campaign_id}
    return check.equal("campaign_id", campaign_id, min(others, default=campaign_id))


def _ids(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    ids = {
        "ids.trial": [one.request.trial_id for one in trials],
        "ids.run": [one.request.run_id for one in trials],
        "ids.request": [one.request.request_id for one in trials],
        "ids.execution": [one.result.execution_id for one in trials if one.result.execution_id is not None],
    }
    checks = [
        check.holds(name, "all different", f"{len(set(all_))} of {len(all_)} different", len(set(all_)) == len(all_))
        for name, all_ in ids.items()
    ]
    if plan.source.run_id in ids["ids.run"]:  # a trial is a fresh process, not the run that failed
        checks.append(check.holds("ids.run", "none is the failed run's", plan.source.run_id, False))
    return tuple(checks)


def _counts(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    budget = plan.contract.budget
    # A trial that was lost with its supervisor counts in the total only; its role's place is still owed.
    roles = [one.request.role for one in trials if one.result.outcome != "lost"]
    return tuple(
        check.holds(name, f"at most {limit}", count, count <= (limit or 0))
        for name, limit, count in (
            ("budget.trials", budget.max_trials, len(trials)),
            ("budget.probes", budget.max_probe_trials, roles.count("probe") + roles.count("control")),
            ("budget.full", budget.max_full_trials, roles.count("full")),
        )
    )


def _spending(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    """Check that no trial was started after the campaign's time or GPU seconds were used up."""
    budget = plan.contract.budget
    before_last = sorted(trials, key=lambda one: (one.result.started_at, one.request.trial_id))[:-1]
    wall = sum(one.result.wall_seconds for one in before_last)
    starts = [one.result.started_at for one in trials]
    elapsed = max(starts) - min(starts) if starts else 0.0
    # Probes may overlap, and a resumed campaign has gaps, so the smaller of the two is what was certainly used.
    used = min(wall, elapsed)
    limit = budget.campaign_timeout_seconds or 0
    checks = [
        check.holds("budget.seconds", f"less than {limit:g} s before the last trial", round(used, 3), used < limit)
    ]
    if budget.max_gpu_seconds is not None:
        gpu = sum(one.result.gpu_seconds for one in before_last)
        words = f"less than {budget.max_gpu_seconds:g} s before the last trial"
        checks.append(check.holds("budget.gpu_seconds", words, round(gpu, 3), gpu < budget.max_gpu_seconds))
    return tuple(checks)


def _authorizations(plan: RecoveryPlan, authorizations: tuple[Authorization, ...]) -> tuple[Check, ...]:
    known = {one.proposal_id: one.digest for one in plan.proposals}
    checks = []
    for one in sorted(authorizations, key=lambda each: each.digest):
        bound = one.plan_digest == plan.digest and known.get(one.proposal_id) == one.proposal_digest
        name = f"authorization.{one.proposal_id}"[:400]
        checks.append(check.holds(name, "bound to this plan and proposal", "bound" if bound else "not bound", bound))
    return tuple(checks)


def _bindings(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    """Return one check a binding over all trials, showing the first trial that breaks it."""
    together: dict[str, list[tuple[str, Check]]] = {}
    for trial in trials:
        for one in binding_checks(plan, trial):
            together.setdefault(one.name, []).append((trial.request.trial_id, one))
    checks = []
    for name, found in together.items():
        wrong = next(((trial_id, one) for trial_id, one in found if one.outcome != "pass"), None)
        if wrong is None:
            observed = (
                "the same in every trial" if len({one.observed for _, one in found}) == 1 else "right in every trial"
            )
            checks.append(check.holds(name, _required(found), observed, True))
        else:
            trial_id, one = wrong
            checks.append(one.replace(observed=f"{trial_id}: {one.observed}"[:2000]))
    return tuple(checks)


def _required(found: list[tuple[str, Check]]) -> str:
    required = {one.required for _, one in found}
    return min(required) if len(required) == 1 else "what its role and candidate require"
