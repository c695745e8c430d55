"""The order in which eligible candidates are confirmed: lexicographic, documented, deterministic.

Smaller is better, compared in this order:

1. ``little_headroom``: 1 if the peak left under 3 % of the device's budget, else 0 (0 where no budget is known)
2. ``semantic``: 1 if the change computes something else
3. ``effective_batch``: 1 if the number of samples behind one step changes
4. ``risk``: 0 low, 1 medium, 2 high
5. ``wall_seconds`` of the full trial
6. ``plan_order``: the position of the proposal in the plan
"""

from __future__ import annotations

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.protocol.ranking import Factor, Ineligible, Ranked, Ranking
from watcherml.protocol.result import Trial
from watcherml.verdict import check
from watcherml.verdict.bindings import proposal_of
from watcherml.verdict.eligible import trial_checks

LITTLE_HEADROOM = 0.03
_RISKS = ("low", "medium", "high")


def rank(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trials: tuple[Trial, ...]) -> Ranking:
    """Return the eligible full trials in order, and the ineligible ones with their reasons.

    The order of ``trials`` does not matter.
    """
    order: list[Ranked] = []
    out: list[Ineligible] = []
    for trial in trials:
        if trial.request.role != "full":
            continue
        checks = trial_checks(plan, authorizations, trial)
        proposal = proposal_of(plan, trial)
        if proposal is not None and check.all_pass(checks):
            order.append(Ranked(proposal.proposal_id, trial.request.trial_id, _key(plan, proposal, trial)))
        else:
            name = trial.request.proposal_id or "none"
            out.append(Ineligible(name, trial.request.trial_id, check.broken(checks)))
    order.sort(key=lambda one: ([factor.value for factor in one.key], one.trial_id))
    out.sort(key=lambda one: one.trial_id)
    return Ranking(plan.digest, tuple(order), tuple(out))


def _key(plan: RecoveryPlan, proposal: Proposal, trial: Trial) -> tuple[Factor, ...]:
    budget = plan.contract.device.budget_bytes
    peak = trial.result.peak.compared_bytes if trial.result.peak else None
    tight = budget is not None and peak is not None and budget - peak < LITTLE_HEADROOM * budget
    position = [one.proposal_id for one in plan.proposals].index(proposal.proposal_id)
    return (
        Factor("little_headroom", float(tight)),
        Factor("semantic", float(proposal.semantic)),
        Factor("effective_batch", float(proposal.effective_batch == "changed")),
        Factor("risk", float(_RISKS.index(proposal.risk))),
        Factor("wall_seconds", trial.result.wall_seconds),
        Factor("plan_order", float(position)),
    )
