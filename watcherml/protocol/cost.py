"""What a campaign can cost at worst, before it starts. The rules are those of ``campaign.decide``; nothing is run.

A trial that is lost with its supervisor is run again and uses the total that is left over; it is not counted here,
because no plan foresees it. ``max_trials`` bounds the campaign in any case.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from watcherml.protocol.plan import RecoveryPlan

# From so many probes on, one is kept for the control at the end.
PROBES_WITH_A_CLOSING_CONTROL = 4


@dataclass(frozen=True)
class Cost:
    """The most that a plan can start: processes by role, seconds of wall time, and of GPUs where that is limited.

    ``control`` counts the one at the end too. ``gpu_seconds`` is None where the contract sets no limit: then it is
    ``wall_seconds`` times the GPUs that a trial sees.
    """

    control: int
    probes: int
    full: int
    confirmations: int
    trials: int
    wall_seconds: float
    gpu_seconds: float | None

    def to_data(self) -> dict[str, int | float | None]:
        """Return the fields as plain JSON values."""
        return asdict(self)


def worst_case(plan: RecoveryPlan) -> Cost:
    """Return the largest number of trials that the plan can need, and the time that they may take.

    That is a campaign whose probes fail until the last ones pass, whose best candidates fail in their last confirmation
    and whose last candidate holds, or a shorter one with a control at its end. A trial takes at most its timeout and
    the grace to end, and no trial starts after the campaign's own timeout.
    """
    budget, contract = plan.contract.budget, plan.contract
    total, runs = budget.max_trials or 0, contract.verification.confirmation_runs
    control = int(contract.control and (bool(plan.proposals) or plan.runs_control_only))
    candidates = len(plan.proposals)
    kept = kept_probes(plan)
    room = max(0, total - control - runs - 1 - kept)
    probes = min(max(0, contract.probe_candidates - kept), candidates, room)
    full = min(budget.max_full_trials or 0, probes if contract.probe_candidates else candidates)
    full = max(0, min(full, total - control - probes - runs))
    confirmations = max(0, min(full * runs, total - control - probes - full))
    trials = control + probes + full + confirmations
    # With a place left, what was confirmed is followed by the control once more.
    closing = int(control and confirmations > 0 and trials < total and contract.probe_candidates > probes)
    grace = budget.termination_grace_seconds or 0
    seconds = min(
        (trials + closing) * ((budget.trial_timeout_seconds or 0) + grace),
        (budget.campaign_timeout_seconds or 0) + grace,
    )
    return Cost(control + closing, probes, full, confirmations, trials + closing, seconds, budget.max_gpu_seconds)


def kept_probes(plan: RecoveryPlan, *, lost: bool = False) -> int:
    """Return how many probes are kept for the control at the end: none once a lost trial has eaten a place."""
    allowed = plan.contract.budget.max_probe_trials or 0
    return int(plan.contract.control and allowed >= PROBES_WITH_A_CLOSING_CONTROL and not lost)
