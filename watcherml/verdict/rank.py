"""The order in which eligible candidates are confirmed: lexicographic, documented, deterministic.

Smaller is better, compared in this order; each factor is on record with the ranking:

1. ``little_headroom``: 1 if the trial came too close to the limit (``headroom``: under 3 % of the device left, or the
   allocator retried in consecutive steps), else 0, also where it was not measured
2. ``cause_not_addressed``: 1 if the diagnosis found causes and the change acts on none of them
3. ``semantic``: 1 if the change computes something else
4. ``effective_batch``: 1 if the number of samples behind one step changes
5. ``risk``: 0 low, 1 medium, 2 high
6. ``slower``: by how many whole quarters the full trial took longer than the fastest eligible one; what lies below a
   quarter is noise of the machine
7. ``plan_order``: the position of the proposal in the plan, which breaks every tie
"""

from __future__ import annotations

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RISKS, RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.protocol.ranking import Factor, Ineligible, Ranked, Ranking
from watcherml.protocol.result import Trial
from watcherml.verdict import check
from watcherml.verdict.bindings import proposal_of
from watcherml.verdict.chain import in_order
from watcherml.verdict.eligible import trial_checks
from watcherml.verdict.headroom import near_limit

_QUARTER = 0.25


def rank(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trials: tuple[Trial, ...]) -> Ranking:
    """Return the eligible full trials in order, and the ineligible ones with their reasons.

    The order of ``trials`` does not matter.
    """
    eligible: list[tuple[Proposal, Trial]] = []
    out: list[Ineligible] = []
    for trial in in_order(trials):
        if trial.request.role != "full":
            continue
        checks = trial_checks(plan, authorizations, trial)
        proposal = proposal_of(plan, trial)
        if proposal is not None and check.all_pass(checks):
            eligible.append((proposal, trial))
        else:
            out.append(Ineligible(trial.request.proposal_id or "none", trial.request.trial_id, check.broken(checks)))
    fastest = min((trial.result.wall_seconds for _, trial in eligible), default=0.0)
    order = [
        Ranked(proposal.proposal_id, trial.request.trial_id, _key(plan, proposal, trial, fastest))
        for proposal, trial in eligible
    ]
    order.sort(key=lambda one: ([factor.value for factor in one.key], one.trial_id))
    return Ranking(plan.digest, tuple(order), tuple(out))


def _key(plan: RecoveryPlan, proposal: Proposal, trial: Trial, fastest: float) -> tuple[Factor, ...]:
    budget, supports = plan.contract.device.budget_bytes, plan.source.supports
    tight = bool(near_limit(trial.result, budget))
    aside = bool(supports) and not set(proposal.capabilities) & set(supports)
    slower = (trial.result.wall_seconds / fastest - 1) // _QUARTER if fastest > 0 else 0.0
    position = [one.proposal_id for one in plan.proposals].index(proposal.proposal_id)
    return (
        Factor("little_headroom", float(tight)),
        Factor("cause_not_addressed", float(aside)),
        Factor("semantic", float(proposal.semantic)),
        Factor("effective_batch", float(proposal.effective_batch == "changed")),
        Factor("risk", float(RISKS.index(proposal.risk))),
        Factor("slower", float(slower)),
        Factor("plan_order", float(position)),
    )
