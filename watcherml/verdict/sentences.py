"""What a verdict says in words. No decision is taken here."""

from __future__ import annotations

from typing import Literal

from watcherml.protocol.plan import NOT_THERE, RecoveryPlan
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Ending
from watcherml.verdict.control import judge_control
from watcherml.verdict.headroom import near_limit

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


_NOTHING_PROPOSED = "No supported change of this configuration could help; see what was considered and why not."
# From this planner on a plan without a micro-batch says so; verdicts on older ones keep their words.
_SAYS_NO_BATCH = 5
_DECLARED = '{"micro_batch_size": {"path": ["KEY"]}}'
_MOST = 2_000  # characters of a sentence


def lacks_permissions(plan: RecoveryPlan) -> bool:
    """Tell whether changes were found and only permissions keep them out; what was sealed earlier does not say so."""
    return bool(plan.withheld) and not plan.source.despite and not plan.source.refused_by


def nothing_proposed(plan: RecoveryPlan) -> str:
    """Return why a plan proposes nothing: what refuses and how to insist, or that a person insisted in vain."""
    source = plan.source
    if source.despite:
        return (
            "No change could be tried: what is tried despite a cause needs a person's approval, and this plan holds"
            " nothing that may be approved; see what was considered and why not."
        )
    if lacks_permissions(plan):
        count = len(plan.withheld)
        names = ", ".join(dict.fromkeys(name for one in plan.withheld for name in one.permissions or ()))
        need = "1 change that was found needs" if count == 1 else f"{count} changes that were found need"
        return (
            f"Nothing was tried: {need} what this plan was not given ({names}); see what was considered and why not."
            f"{_no_batch(plan)}"
        )
    if not source.refused_by:
        return f"Nothing was tried.{_no_batch(plan)}" if _no_batch(plan) else _NOTHING_PROPOSED
    causes = " ".join(f"{one.words}: {one.sentence}" for one in source.refused_by)
    return _beside(f"{_NOTHING_PROPOSED} {causes}", source.how_to_insist)


def _no_batch(plan: RecoveryPlan) -> str:
    """Return that no micro-batch was found, where one might be declared: nobody can say then that none would help."""
    found = plan.left_out("micro_batch_size")
    if found is None or plan.planner_version < _SAYS_NO_BATCH or plan.source.phase == "load":
        return ""
    if not found.declarable and found.reason != NOT_THERE:
        return ""
    how = found.reason if found.declarable else f"Where training reads one, declare its key: {_DECLARED}."
    return f" No micro-batch was found in the configuration. {how}"


def despite(plan: RecoveryPlan, sentence: str) -> str:
    """Return a verdict's sentence behind the causes that its changes were asked for despite, which no cut takes off."""
    causes = ", ".join(one.words for one in plan.source.despite)
    first = f"A person asked for changes despite {causes}"[: _MOST // 2]
    return f"{first}. {sentence}"[:_MOST] if causes else sentence[:_MOST]


def _beside(sentence: str, last: str) -> str:
    """Return both; what is too long is taken from the first, because the last must be read."""
    last = last[: _MOST // 2]
    room = _MOST - len(last) - 1
    return f"{sentence if len(sentence) <= room else sentence[: room - 1] + '…'} {last}"


def too_short(plan: RecoveryPlan, trial: Trial) -> str:
    """Return that a run is void because what piles up over its steps would show only later."""
    proposal = next((one for one in plan.proposals if one.proposal_id == trial.request.proposal_id), None)
    horizon = plan.horizon(proposal) if proposal else None
    needed = "" if horizon is None else f"; at least {horizon:,} are needed"
    progress = trial.result.progress
    reached = f"It ended after {progress.steps:,} steps{needed}."
    if progress.source not in ("marks", "optimizer"):
        reached = f"Nothing counted its steps{needed}: call watcherml.step() after each."
    return (
        "A candidate kept the contract, but its run is void: by the diagnosis memory piles up over the steps of"
        f" {plan.source.run_id}, and shows only later. {reached} Let the full run be longer, or mend what keeps the"
        " memory."
    )


def still_there(plan: RecoveryPlan) -> str:
    """Return what a control that repeats a failure says where its cause lies outside the configuration."""
    text = (
        "The failure repeats in a fresh process, and no change was tried, because the diagnosis of the first one was:"
        f" {plan.source.control_only} If that no longer holds, record the failure again and recover the new run."
    )
    return _beside(text, plan.source.how_to_insist) if plan.source.how_to_insist else text


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
    horizon = plan.horizon(proposal)
    past = "" if horizon is None else f" Memory that piles up as before would fill the device by step {horizon:,}."
    count = len(confirmations)
    fulls = tuple(one for one in trials if one.request.role == "full" and one.request.proposal_id == proposal_id)
    mine = (*(one for one in fulls if one.result.outcome == "completed"), *confirmations)
    return (
        f"Verified on {plan.contract.device.words}: {proposal.words}. {count} of {count} independent"
        f" confirmations kept the contract; {peak}.{_close(plan, mine)}{batch}{steps}"
        f"{_unseen(mine)}{past}{_control(plan, trials)} {_ADDRESSED[addressed]}"
    )


def _close(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> str:
    """Return how close to the limit the closest trial came; the signs of several are those of the first with most."""
    found = [near_limit(one.result, plan.contract.device.budget_bytes) for one in trials]
    signs = max(found, key=len, default=())
    return f" It is close to the limit: it {' and '.join(signs)}." if signs else ""


def _unseen(trials: tuple[Trial, ...]) -> str:
    """Return the changed controls that no trial could read back."""
    seen = {one.capability for trial in trials for one in trial.result.knobs if one.state == "in_effect"}
    names = {one.capability for trial in trials for one in trial.result.knobs if one.state == "not_observable"} - seen
    return f" Whether it took effect could not be observed: {', '.join(sorted(names))}." if names else ""


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
