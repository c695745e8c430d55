"""The only maker of a ``Verdict``.

The checks, in this order; each records what was required, what was observed, and pass, fail or missing:

1. ``ids``: trial, run, request and execution ids are unique over the campaign
2. ``budget``: no more trials of any role than the contract allows
3. ``authorization``: each authorization is bound to this plan and to one of its proposals
4. ``control``: the unchanged configuration failed the same way in a fresh process, and never passed in one
5. ``full``: the candidate's full trial passes every check of ``eligible.trial_checks`` (bindings, authority, outcome,
   device, steps, guards, peak, identity, code)
6. ``confirmation``: the same checks for each confirmation of the candidate that was not lost with its supervisor
7. ``code.same``: full trial and confirmations ran the same contents of every project file that any of them loaded
8. ``confirmations``: as many passed as the contract requires, and none of the candidate's failed

A campaign that was cut short is never verified. Everything is recomputed from the values; no flag inside them
is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Check, Ending, Status, Verdict
from watcherml.verdict import check
from watcherml.verdict.bindings import authority_check
from watcherml.verdict.control import judge_control
from watcherml.verdict.eligible import probe_checks, trial_checks
from watcherml.verdict.rank import rank


@dataclass(frozen=True)
class _Finding:
    status: Status
    reason_code: str
    sentence: str
    checks: tuple[Check, ...]
    candidate_id: str | None = None
    confirmations: tuple[Trial, ...] = ()


def verify(
    campaign_id: str,
    plan: RecoveryPlan,
    authorizations: tuple[Authorization, ...],
    trials: tuple[Trial, ...],
    ending: Ending,
) -> Verdict:
    """Judge a campaign from its parts. Deterministic; the order of ``trials`` does not matter."""
    trials = tuple(sorted(trials, key=lambda one: one.request.trial_id))
    integrity = _integrity(campaign_id, plan, authorizations, trials)
    found = _cut_short(ending, integrity) or _broken_chain(integrity) or _judge(plan, authorizations, trials, integrity)
    verified = found.status == "verified" and found.candidate_id is not None
    return Verdict(
        campaign_id=campaign_id,
        plan_digest=plan.digest,
        status=found.status,
        reason_code=found.reason_code,
        sentence=found.sentence[:2000],
        checks=found.checks[:1000],
        candidate_id=found.candidate_id,
        config=plan.candidate_config(found.candidate_id) if verified and found.candidate_id else None,
        confirmation_run_ids=tuple(one.request.run_id for one in found.confirmations),
        device_kind=plan.contract.device.kind,
        cause_addressed=cause_addressed(plan, found.candidate_id) if verified else "unknown",
    )


def _integrity(
    campaign_id: str, plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trials: tuple[Trial, ...]
) -> tuple[Check, ...]:
    campaigns = {one.request.campaign_id for one in trials} - {campaign_id}
    checks = [check.equal("campaign_id", campaign_id, min(campaigns, default=campaign_id))]
    ids = {
        "ids.trial": [one.request.trial_id for one in trials],
        "ids.run": [one.request.run_id for one in trials],
        "ids.request": [one.request.request_id for one in trials],
        "ids.execution": [one.result.execution_id for one in trials if one.result.execution_id is not None],
    }
    checks += [
        check.holds(
            name, "all different", f"{len(set(found))} of {len(found)} different", len(set(found)) == len(found)
        )
        for name, found in ids.items()
    ]
    budget = plan.contract.budget
    # A trial that was lost with its supervisor counts in the total only; its role's place is still owed.
    roles = [one.request.role for one in trials if one.result.outcome != "lost"]
    for name, limit, count in (
        ("budget.trials", budget.max_trials, len(trials)),
        ("budget.probes", budget.max_probe_trials, roles.count("probe") + roles.count("control")),
        ("budget.full", budget.max_full_trials, roles.count("full")),
    ):
        checks.append(check.holds(name, f"at most {limit}", count, limit is not None and count <= limit))
    known = {one.proposal_id: one.digest for one in plan.proposals}
    for one in authorizations:
        bound = one.plan_digest == plan.digest and known.get(one.proposal_id) == one.proposal_digest
        name = f"authorization.{one.proposal_id}"[:400]
        checks.append(check.holds(name, "bound to this plan and proposal", "bound" if bound else "not bound", bound))
    return tuple(checks)


def _cut_short(ending: Ending, integrity: tuple[Check, ...]) -> _Finding | None:
    sentences = {
        "stopped_by_user": "The campaign was stopped before the trials settled anything.",
        "campaign_timeout": "The campaign's time was used up before the trials settled anything.",
        "gpu_seconds_exhausted": "The campaign's GPU seconds were used up before the trials settled anything.",
        "supervisor_lost": "The supervising process was lost; the campaign can be resumed.",
        "integration_error": "The campaign itself failed; no claim is made.",
    }
    if ending.reason == "decided":
        return None
    status: Status = "integration_error" if ending.reason == "integration_error" else "stopped"
    sentence = f"{sentences[ending.reason]} {ending.detail}".strip()
    return _Finding(status, ending.reason, sentence, integrity)


def _broken_chain(integrity: tuple[Check, ...]) -> _Finding | None:
    if check.all_pass(integrity):
        return None
    sentence = f"The trials do not form one chain: {'; '.join(check.broken(integrity))}"
    return _Finding("stopped", "broken_chain", sentence, integrity)


def _judge(
    plan: RecoveryPlan,
    authorizations: tuple[Authorization, ...],
    trials: tuple[Trial, ...],
    checks: tuple[Check, ...],
) -> _Finding:
    if not plan.proposals:
        sentence = "No supported change of this configuration could help; see what was considered and why not."
        return _Finding("not_recovered", "no_supported_intervention", sentence, checks)
    if plan.contract.control:
        refused = _control(plan, trials, checks)
        if isinstance(refused, _Finding):
            return refused
        checks += refused
    ranking = rank(plan, authorizations, trials)
    for ranked in ranking.order:
        found = _confirm(plan, authorizations, trials, ranked.proposal_id, ranked.trial_id, checks)
        if found is not None:
            return found
    return _nothing_confirmed(plan, authorizations, trials, checks, bool(ranking.order))


def _control(plan: RecoveryPlan, trials: tuple[Trial, ...], checks: tuple[Check, ...]) -> _Finding | tuple[Check, ...]:
    judged = [judge_control(plan, one) for one in trials if one.request.role == "control"]
    if not judged:
        missing = check.holds("control", "reproduces the failure", None, False)
        return _Finding("stopped", "control_missing", "No control trial was run.", (*checks, missing))
    # There may be several: one that was lost, and one at the end. One that passed always counts: then the failure
    # comes and goes, and no change of the configuration can be given credit for its absence.
    found = {one.finding: one for one in reversed(judged)}
    decisive = found.get("passed") or found.get("reproduced") or judged[-1]
    together = (*checks, *decisive.checks)
    if decisive.finding == "reproduced":
        return (*decisive.checks, check.holds("control", "reproduces the failure", "reproduced", True))
    failed = (*together, check.holds("control", "reproduces the failure", decisive.finding, False))
    if decisive.finding == "passed":
        return _Finding("not_recovered", "source_failure_not_reproduced", decisive.sentence, failed)
    code = "control_inconclusive" if decisive.finding == "inconclusive" else "control_failed_differently"
    return _Finding("stopped", code, decisive.sentence, failed)


def _confirm(
    plan: RecoveryPlan,
    authorizations: tuple[Authorization, ...],
    trials: tuple[Trial, ...],
    proposal_id: str,
    full_trial_id: str,
    checks: tuple[Check, ...],
) -> _Finding | None:
    # A lost trial proves nothing either way; the budget check has counted it.
    mine = [
        one
        for one in trials
        if one.request.role == "confirmation"
        and one.request.proposal_id == proposal_id
        and one.result.outcome != "lost"
    ]
    full = next(one for one in trials if one.request.trial_id == full_trial_id)
    found = _named("full", trial_checks(plan, authorizations, full))
    for number, one in enumerate(mine, 1):
        found += _named(f"confirmation {number}", trial_checks(plan, authorizations, one))
    required = plan.contract.verification.confirmation_runs
    complete = check.equal("confirmations", required, len(mine))
    everything = (*checks, *found, _same_code([full, *mine]), complete)
    if not check.all_pass(everything):
        return None
    return _Finding(
        "verified",
        "verified_recovery",
        _verified_sentence(plan, proposal_id, mine, trials),
        everything,
        proposal_id,
        tuple(mine),
    )


def _same_code(trials: list[Trial]) -> Check:
    """Check that no file of the project had two contents in the trials that loaded it, late imports included."""
    contents: dict[str, set[str]] = {}
    for one in trials:
        code = one.result.identity.code if one.result.identity else None
        for path, content in (code.files if code else {}).items():
            contents.setdefault(path, set()).add(content)
    differing = sorted(path for path, found in contents.items() if len(found) > 1)
    return check.holds("code.same", "one content of each file", differing[0] if differing else "one", not differing)


def _nothing_confirmed(
    plan: RecoveryPlan,
    authorizations: tuple[Authorization, ...],
    trials: tuple[Trial, ...],
    checks: tuple[Check, ...],
    any_eligible: bool,
) -> _Finding:
    confirmations = [one for one in trials if one.request.role == "confirmation"]
    fulls = [one for one in trials if one.request.role == "full"]
    probes = [one for one in trials if one.request.role == "probe"]
    tried = len({one.request.proposal_id for one in probes + fulls})
    shown = f"{tried} of {len(plan.proposals)} proposals were tried."
    runs = plan.contract.verification.confirmation_runs
    required = f"a candidate with a full trial and {runs} confirmations that pass"
    evidence: tuple[Check, ...] = (*checks, check.holds("confirmed candidate", required, "none", False))
    evidence += (_same_code(fulls + confirmations),) if confirmations else ()
    for one in fulls + confirmations:
        evidence += _named(f"{one.request.role} {one.request.proposal_id}", trial_checks(plan, authorizations, one))
    if confirmations:
        return _Finding("not_recovered", "confirmation_failed", f"A candidate passed its full trial, but its"
                        f" confirmations did not hold. {shown}", evidence)  # fmt: skip
    if any_eligible:
        return _Finding("not_recovered", "confirmations_incomplete", f"A candidate passed its full trial, but was not"
                        f" confirmed. {shown}", evidence)  # fmt: skip
    if fulls:
        return _Finding("not_recovered", "no_eligible_candidate", f"No full trial kept the contract. {shown}", evidence)
    for one in probes:
        evidence += _named(f"probe {one.request.proposal_id}", probe_checks(plan, authorizations, one))
    if probes:
        return _Finding(
            "not_recovered", "no_candidate_passed_probe", f"No candidate survived its probe. {shown}", evidence
        )
    waiting = [one for one in plan.proposals if authority_check(plan, authorizations, one).outcome != "pass"]
    if len(waiting) == len(plan.proposals):
        sentence = "Every proposal needs a person's approval, and none was given."
        return _Finding("not_recovered", "needs_approval", sentence, evidence)
    return _Finding("not_recovered", "no_candidate_tried", f"No candidate was tried. {shown}", evidence)


def _named(prefix: str, checks: tuple[Check, ...]) -> tuple[Check, ...]:
    return tuple(one.replace(name=f"{prefix}: {one.name}"[:400]) for one in checks)


def _verified_sentence(
    plan: RecoveryPlan, proposal_id: str, confirmations: list[Trial], trials: tuple[Trial, ...]
) -> str:
    proposal = plan.proposal(proposal_id)
    changes = "; ".join(change.words for change in proposal.changes)
    peaks = [one.result.peak.compared_bytes for one in confirmations if one.result.peak]
    measured = [peak for peak in peaks if peak is not None]
    peak = f"peak {max(measured) / 2**20:.1f} MiB" if measured else "peak not measured"
    claimed = any(one.result.progress.source == "claimed" for one in confirmations)
    steps = " Steps are the entrypoint's own claim." if claimed else ""
    control = _control_words(plan, trials)
    batch = " The effective batch changes." if proposal.effective_batch == "changed" else ""
    return (
        f"Verified on {plan.contract.device.words}: {changes}. {len(confirmations)} of {len(confirmations)} independent"
        f" confirmations kept the contract; {peak}.{batch}{steps}{control}"
        f" {_ADDRESSED[cause_addressed(plan, proposal_id)]}"
    )


def _control_words(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> str:
    if not plan.contract.control:
        return " The control trial was switched off."
    again = sum(one.request.role == "control" and judge_control(plan, one).finding == "reproduced" for one in trials)
    return (
        " The control reproduced it before and after."
        if again > 1
        else (" The control reproduced it once, at the beginning.")
    )


_ADDRESSED = {
    "yes": "It acts on a cause that the diagnosis found.",
    "no": "It passes, but does not act on a cause that the diagnosis found.",
    "unknown": "Whether it acts on the cause is not known.",
}


def cause_addressed(plan: RecoveryPlan, proposal_id: str | None) -> Literal["yes", "no", "unknown"]:
    """Tell whether a proposal changes a control that acts on a diagnosed cause: yes, no, or unknown."""
    if proposal_id is None or not plan.source.supports:
        return "unknown"
    touched = {change.capability for change in plan.proposal(proposal_id).changes}
    return "yes" if touched & set(plan.source.supports) else "no"
