"""Does checkpointing save anything? A single block around everything costs as much and saves nothing."""

from __future__ import annotations

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Check
from watcherml.verdict import check

# As cause C20 of the diagnosis has it: less than this share below the peak without it is no effect.
LEAST_SAVED = 0.05
_NAME = "gradient_checkpointing"


def saving_checks(plan: RecoveryPlan, proposal_id: str, trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    """Compare a candidate's peak with that of the same change without checkpointing, where both were tried to the end.

    The control is no measure: it ended before its peak, of which only a lower bound is known, and what a candidate
    needs is below that bound or it would have failed too.
    """
    proposal = plan.proposal(proposal_id)
    if _NAME not in proposal.capabilities:
        return ()
    partners = [one.proposal_id for one in plan.proposals if _same_without(proposal, one)]
    checks = []
    for role in ("probe", "full"):
        mine, others = _peaks(trials, role, (proposal_id,)), _peaks(trials, role, partners)
        if mine and others:
            limit = int((1 - LEAST_SAVED) * min(others))
            required = f"under {limit} bytes, {LEAST_SAVED:.0%} below the same {role} trial without checkpointing"
            checks.append(check.holds(f"knob.{_NAME}.peak", required, max(mine), max(mine) < limit))
    return tuple(checks)


def _same_without(proposal: Proposal, other: Proposal) -> bool:
    rest = tuple(one for one in proposal.changes if one.capability != _NAME)
    return other.proposal_id != proposal.proposal_id and (rest, proposal.environment) == (
        other.changes,
        other.environment,
    )


def _peaks(trials: tuple[Trial, ...], role: str, proposals: tuple[str, ...] | list[str]) -> list[int]:
    found = [
        one.result.peak.compared_bytes
        for one in trials
        if one.request.role == role
        and one.request.proposal_id in proposals
        and one.result.outcome == "completed"
        and one.result.peak is not None
        and one.result.peak.kind == one.request.device.kind
    ]
    return [peak for peak in found if peak]
