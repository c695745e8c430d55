"""What a verdict says in words. No decision is taken here."""

from __future__ import annotations

from typing import Literal

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Ending
from watcherml.verdict.control import judge_control

CauseAddressed = Literal["yes", "no", "unknown"]

_ADDRESSED: dict[CauseAddressed, str] = {
    "yes": "It acts on a cause that the diagnosis found.",
    "no": "It passes, but does not act on a cause that the diagnosis found.",
    "unknown": "Whether it acts on the cause is not known.",
}
_CUT_SHORT = {
    "stopped_by_user": "The campaign was stopped before the trials settled anything.",
    "campaign_timeout": "The campaign's time was used up before the trials settled anything.",
    "gpu_seconds_exhausted": "The campaign's GPU seconds were used up before the trials settled anything.",
    "supervisor_lost": "The supervising process was lost; the campaign can be resumed.",
    "integration_error": "The campaign itself failed; no claim is made.",
}


NOTHING_PROPOSED = "No supported change of this configuration could help; see what was considered and why not."


def still_there(plan: RecoveryPlan) -> str:
    """Return what a control that repeats a failure says where its cause lies outside the configuration."""
    return (
        "The failure repeats in a fresh process, and no change was tried, because the diagnosis of the first one was:"
        f" {plan.source.control_only} If that no longer holds, record the failure again and recover the new run."
    )


def cut_short(ending: Ending) -> str:
    """Return why a campaign ended before anything was settled."""
    return f"{_CUT_SHORT[ending.reason]} {ending.detail}".strip()


def verified(
    plan: RecoveryPlan,
    proposal_id: str,
    confirmations: tuple[Trial, ...],
    trials: tuple[Trial, ...],
    addressed: CauseAddressed,
) -> str:
    """Return the sentence of a verified recovery: device, change, confirmations, peak, and every reservation."""
    proposal = plan.proposal(proposal_id)
    peaks = [one.result.peak.compared_bytes for one in confirmations if one.result.peak]
    measured = [peak for peak in peaks if peak is not None]
    peak = f"peak {max(measured) / 2**20:.1f} MiB" if measured else "peak not measured"
    claimed = any(one.result.progress.source == "claimed" for one in confirmations)
    steps = " Steps are the entrypoint's own claim." if claimed else ""
    batch = " The effective batch changes." if proposal.effective_batch == "changed" else ""
    count = len(confirmations)
    return (
        f"Verified on {plan.contract.device.words}: {proposal.words}. {count} of {count} independent"
        f" confirmations kept the contract; {peak}.{batch}{steps}{_control(plan, trials)} {_ADDRESSED[addressed]}"
    )


def _control(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> str:
    if not plan.contract.control:
        return " The control trial was switched off."
    answers = [
        (judge_control(plan, one).finding, one.result.started_at) for one in trials if one.request.role == "control"
    ]
    starts = [one.result.started_at for one in trials if one.request.role == "confirmation"]
    reproduced = [at for finding, at in answers if finding == "reproduced"]
    before, after = any(at <= min(starts) for at in reproduced), any(at >= max(starts) for at in reproduced[1:])
    silent = sum(finding == "inconclusive" for finding, _ in answers)
    unheard = f" {silent} other control{'' if silent == 1 else 's'} gave no answer." if silent else ""
    if before and after:
        return f" The control reproduced it before and after.{unheard}"
    return f" The control reproduced it once, {'at the beginning' if before else 'but not before'}.{unheard}"
