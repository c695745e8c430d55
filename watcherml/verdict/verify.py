"""The only maker of a ``Verdict``.

The checks, in this order; each records what was required, what was observed, and pass, fail or missing. Missing is
never pass, and one check that does not pass is enough:

1. ``ending``: the trials settled it; nothing cut the campaign short
2. ``campaign_id``, ``ids.trial``, ``ids.run``, ``ids.request``, ``ids.execution``: one campaign, every id once
3. ``budget.trials``, ``budget.probes``, ``budget.full``, ``budget.seconds``, ``budget.gpu_seconds``: nothing beyond the
   contract
4. ``authorization``: each is bound to this plan and to one of its proposals
5. ``binding.plan``, ``binding.contract``, ``binding.source``, ``binding.candidate``, ``binding.candidate_config``,
   ``binding.config``, ``binding.floats``, ``binding.environment``, ``binding.changes``, ``binding.entrypoint``,
   ``binding.progress_metric``, ``binding.device``, ``binding.max_steps``, ``binding.timeout``, ``binding.grace``,
   ``binding.request``, ``binding.trial_id``, ``binding.run_id``: every trial of the campaign belongs to this plan and
   to its candidate
6. for the control: ``device.kind``, ``device.name``, ``device.budget_bytes``, ``identity``, ``code`` (the source's
   device and workload), ``control.outcome``, ``control.failure_class``, ``control.requested_bytes``, ``control.phase``,
   ``control``: the unchanged configuration failed the same way in a fresh process, and never passed
7. ``probe``: the candidate survived every probe of it, and had one where the contract has one for it
8. for each full trial and each confirmation of the candidate (one lost with its supervisor proves nothing either way):
   ``authority``; ``cause`` (not ruled out by the diagnosis); ``update`` (the same update, or approved); ``knob`` (the
   change was seen to take effect, or the trial said why it cannot be seen, and checkpointing saves memory);
   ``outcome``, ``execution``, ``exit``, ``duration``; device; ``progress.steps``, ``progress.metric``,
   ``progress.claim``; ``horizon`` (no shorter than what the diagnosis says would pass in any case); ``metric`` (every
   guard); ``peak_bytes``; identity; code
9. ``order``: control, probe, full trial and confirmations were started in that order
10. ``same_code``, ``same_workload``: no file of the project had two contents in the trials of the campaign, late
   imports included, and neither data nor packages nor model two identities
11. ``confirmations``: exactly as many as the contract requires

Whether the change acts on a diagnosed cause is said in ``cause_addressed``, and never claimed of what a person asked
for despite a cause. Everything is recomputed from the values; no flag inside them is trusted.

What an earlier version put on record is judged by the checks that it had: before version 3 nothing read controls back
(``earlier``), and whether checkpointing saves memory was not asked. Before version 4 a reason code did not ask whether
what was missing had failed or was never tried to its end. Before version 5 no trial told which files it had made
itself, so that their records have no such names.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.ranking import Ranked
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Check, Ending, Status, Verdict
from watcherml.verdict import check, sentences
from watcherml.verdict.bindings import authority_check
from watcherml.verdict.chain import chain_checks, in_order
from watcherml.verdict.control import Finding, judge_control
from watcherml.verdict.earlier import READS_BACK, as_read_now
from watcherml.verdict.eligible import contract_checks, probe_checks
from watcherml.verdict.rank import rank
from watcherml.verdict.saving import saving_checks
from watcherml.verdict.workload import same_workload, workload_changed

# Goes up with every change of the checks, the ranking or the reason codes.
VERIFIER_VERSION = 5
# From this version on a reason says "failed" only of what failed, and the control that reproduces comes first.
_TELLS_FAILED_FROM_MISSING = 4


@dataclass(frozen=True)
class _Case:
    """What there is to judge."""

    plan: RecoveryPlan
    authorizations: tuple[Authorization, ...]
    trials: tuple[Trial, ...]
    version: int

    def of(self, role: str, proposal_id: str | None = None) -> tuple[Trial, ...]:
        """Return the trials of a role (of one candidate), without those that were lost with their supervisor."""
        return tuple(
            one
            for one in self.trials
            if one.request.role == role
            and one.result.outcome != "lost"
            and proposal_id in (None, one.request.proposal_id)
        )

    @property
    def lost(self) -> int:
        """The number of trials that were lost with their supervisor."""
        return sum(one.result.outcome == "lost" for one in self.trials)

    def saving(self, proposal_id: str) -> tuple[Check, ...]:
        """Return whether checkpointing saves memory in a candidate, where that was asked when it was judged."""
        return saving_checks(self.plan, proposal_id, self.trials) if self.version >= READS_BACK else ()


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
    *,
    version: int = VERIFIER_VERSION,
) -> Verdict:
    """Judge a campaign from its parts. Deterministic; the order of authorizations and of trials does not matter.

    ``version`` is that of the verifier whose verdict is on record: what came later is not asked of its trials.
    """
    trials = trials if version >= READS_BACK else as_read_now(plan, trials)
    case = _Case(plan, authorizations, in_order(trials), version)
    found = _find(campaign_id, case, ending)
    verified = found.status == "verified" and found.candidate_id is not None
    return Verdict(
        campaign_id=campaign_id,
        plan_digest=plan.digest,
        status=found.status,
        reason_code=found.reason_code,
        sentence=sentences.despite(plan, found.sentence),
        checks=found.checks[:1000],
        candidate_id=found.candidate_id,
        config=plan.candidate_config(found.candidate_id) if verified and found.candidate_id else None,
        confirmation_run_ids=tuple(one.request.run_id for one in found.confirmations),
        device_kind=plan.contract.device.kind,
        cause_addressed=cause_addressed(plan, found.candidate_id) if verified else "unknown",
        verifier_version=version,
    )


def _find(campaign_id: str, case: _Case, ending: Ending) -> _Finding:
    ended = check.equal("ending", "decided", ending.reason)
    checks = (ended, *chain_checks(campaign_id, case.plan, case.authorizations, case.trials))
    if not check.all_pass((ended,)):
        status: Status = "integration_error" if ending.reason == "integration_error" else "stopped"
        return _Finding(status, ending.reason, sentences.cut_short(ending), checks)
    if not check.all_pass(checks):
        sentence = f"The trials do not form one chain: {'; '.join(check.broken(checks))}"
        return _Finding("stopped", "broken_chain", sentence, checks)
    if not case.plan.proposals and not case.plan.runs_control_only:
        code = "needs_approval" if sentences.lacks_permissions(case.plan) else "no_supported_intervention"
        return _Finding("not_recovered", code, sentences.nothing_proposed(case.plan), checks)
    if case.plan.contract.control or case.of("control"):
        refused, more = _control(case)
        checks += more
        if refused is not None:
            return _Finding(*refused, checks)
    if not case.plan.proposals:
        return _Finding("not_recovered", "no_supported_intervention", sentences.still_there(case.plan), checks)
    return _candidates(case, checks)


def _control(case: _Case) -> tuple[tuple[Status, str, str] | None, tuple[Check, ...]]:
    """Return why the control allows no verdict (None if it does), and its checks.

    There may be several controls: one that was lost, and one at the end. One that passed always counts: then the
    failure comes and goes, and no change of the configuration can be given credit for its absence. So does one that
    failed in another way, or on another workload; only one that gave no answer is passed over beside one that did.
    """
    required = "reproduces the failure, and never passes"
    judged = [judge_control(case.plan, one) for one in case.trials if one.request.role == "control"]
    found = {one.finding: one for one in reversed(judged)}
    order: tuple[Finding, ...] = ("passed", "another_workload", "different", "reproduced", "inconclusive")
    decisive = next((found[one] for one in order if one in found), None)
    if decisive is None:
        missing = (check.holds("control", required, None, False),)
        return (
            None if check.all_pass(missing) else ("stopped", "control_missing", "No control trial was run.")
        ), missing
    reproduced = decisive.finding == "reproduced"
    checks = (*decisive.checks, check.holds("control", required, decisive.finding, reproduced))
    if check.all_pass(checks):
        return None, checks
    if decisive.finding == "passed":
        return ("not_recovered", "source_failure_not_reproduced", decisive.sentence), checks
    codes = {"inconclusive": "control_inconclusive", "another_workload": "workload_differs"}
    code = codes.get(decisive.finding, "control_failed_differently")
    return ("stopped", code, decisive.sentence), checks


def _candidates(case: _Case, checks: tuple[Check, ...]) -> _Finding:
    ranking = rank(case.plan, case.authorizations, case.trials)
    for ranked in ranking.order:
        confirmations = case.of("confirmation", ranked.proposal_id)
        everything = checks + _confirmed_checks(case, ranked, confirmations)
        if check.all_pass(everything):
            addressed = cause_addressed(case.plan, ranked.proposal_id)
            sentence = sentences.verified(case.plan, ranked.proposal_id, confirmations, case.trials, addressed)
            return _Finding("verified", "verified_recovery", sentence, everything, ranked.proposal_id, confirmations)
    return _nothing_confirmed(case, checks, ranking.order)


def _confirmed_checks(case: _Case, ranked: Ranked, confirmations: tuple[Trial, ...]) -> tuple[Check, ...]:
    fulls = case.of("full", ranked.proposal_id)
    found = _probe(case, ranked.proposal_id)
    for name, trials in (("full", fulls), ("confirmation", confirmations)):
        for number, one in enumerate(trials, 1):
            prefix = name if len(trials) == 1 else f"{name} {number}"
            found += _named(prefix, contract_checks(case.plan, case.authorizations, one))
    found += case.saving(ranked.proposal_id)
    return (*found, _in_sequence(case, ranked.proposal_id), *same_workload(case.trials), _complete(case, confirmations))


def _in_sequence(case: _Case, proposal_id: str) -> Check:
    """Check that each stage was started no earlier than the one before it; trials without a start prove nothing."""
    controls = case.of("control")
    if case.version >= _TELLS_FAILED_FROM_MISSING:  # one that gave no answer is no beginning
        controls = tuple(one for one in controls if judge_control(case.plan, one).finding == "reproduced")
    stages = [
        sorted(one.result.started_at for one in controls)[:1],
        *([one.result.started_at for one in case.of(role, proposal_id)] for role in ("probe", "full", "confirmation")),
    ]
    seen = [stage for stage in stages if stage]
    ordered = all(max(earlier) <= min(later) for earlier, later in itertools.pairwise(seen))
    required = "control, probe, full trial, confirmations"
    return check.holds("order", required, "in that order" if ordered else "in another order", ordered)


def _complete(case: _Case, confirmations: tuple[Trial, ...]) -> Check:
    return check.equal("confirmations", case.plan.contract.verification.confirmation_runs, len(confirmations))


def _probe(case: _Case, proposal_id: str) -> tuple[Check, ...]:
    """Check that a candidate survived its probe; none is asked for where the control took the only one."""
    if case.plan.contract.probe_candidates == 0:
        return ()
    probes = case.of("probe", proposal_id)
    passed = tuple(one for one in probes if check.all_pass(probe_checks(case.plan, case.authorizations, one)))
    observed = None if not probes else f"{len(passed)} of {len(probes)} passed"
    return (check.holds("probe", "at least one, and each passes", observed, bool(probes) and passed == probes),)


def _nothing_confirmed(case: _Case, checks: tuple[Check, ...], eligible: tuple[Ranked, ...]) -> _Finding:
    """Return why no candidate is verified, the furthest stage first."""
    plan, confirmations, fulls, probes = case.plan, case.of("confirmation"), case.of("full"), case.of("probe")
    tried = len({one.request.proposal_id for one in probes + fulls})
    shown = f"{tried} of {len(plan.proposals)} proposals were tried.{_lost(case)}"
    runs = plan.contract.verification.confirmation_runs
    required = f"a candidate with a full trial and {runs} confirmations that pass"
    evidence: tuple[Check, ...] = (*checks, check.holds("confirmed candidate", required, "none", False))
    same = same_workload(case.trials)
    evidence += same
    for ranked in eligible:
        complete = _complete(case, case.of("confirmation", ranked.proposal_id))
        saving = case.saving(ranked.proposal_id)
        found = (*_probe(case, ranked.proposal_id), _in_sequence(case, ranked.proposal_id), *saving, complete)
        evidence += _named(f"candidate {ranked.proposal_id}", found)
    for one in fulls + confirmations:
        found = contract_checks(plan, case.authorizations, one)
        evidence += _named(f"{one.request.role} {one.request.proposal_id}", found)
    if not fulls and not confirmations:
        for one in probes:
            found = probe_checks(plan, case.authorizations, one)
            evidence += _named(f"probe {one.request.proposal_id}", found)
    changed = workload_changed(plan, case.trials) if check.broken(same) or case.version >= READS_BACK else ""
    code, sentence = (
        ("workload_changed" if check.broken(same) else "workload_differs", changed)
        if changed
        else _furthest(case, any(not check.broken(case.saving(one.proposal_id)) for one in eligible))
    )
    return _Finding("not_recovered", code, f"{sentence} {shown}", evidence)


def _lost(case: _Case) -> str:
    if not case.lost or case.version < _TELLS_FAILED_FROM_MISSING:
        return ""
    were = "1 trial was" if case.lost == 1 else f"{case.lost} trials were"
    return f" {were} lost with the supervisor, which proves nothing and counts in the budget all the same."


def _furthest(case: _Case, any_eligible: bool) -> tuple[str, str]:
    missing = _only_missing(case, any_eligible) if case.version >= _TELLS_FAILED_FROM_MISSING else None
    if missing is not None:
        return missing
    void = _too_short(case)
    if void is not None and (not case.of("confirmation") or void.request.role == "confirmation"):
        return "horizon_not_reached", sentences.too_short(case.plan, void)
    if case.of("confirmation"):
        return "confirmation_failed", "A candidate passed its full trial, but its confirmations did not hold."
    if any_eligible:
        return "confirmations_incomplete", "A candidate passed its full trial, but was not confirmed."
    waiting = _waiting(case)
    if waiting:
        names = ", ".join(waiting)
        return "needs_approval", (
            f"What passed is not the same update, because its trials met BatchNorm: a person has to approve {names}."
        )
    if case.of("full"):
        return "no_eligible_candidate", "No full trial kept the contract."
    if case.of("probe"):
        return "no_candidate_passed_probe", "No candidate survived its probe."
    closed = [authority_check(case.plan, case.authorizations, one).outcome != "pass" for one in case.plan.proposals]
    if all(closed):
        return "needs_approval", "Every proposal needs a person's approval, and none was given."
    return "no_candidate_tried", f"No candidate was tried{' to the end' if _lost(case) else ''}."


def _only_missing(case: _Case, any_eligible: bool) -> tuple[str, str] | None:
    """Return what was never tried to its end, where all that was tried at that stage held; None where something failed.

    A campaign comes to that where trials were lost with their supervisor and the budget has no room for them again.
    """
    plan, given_by = case.plan, case.authorizations
    confirmations, fulls, probes = case.of("confirmation"), case.of("full"), case.of("probe")
    if any(check.broken(contract_checks(plan, given_by, one)) for one in confirmations):
        return None
    if confirmations and any_eligible:
        per = [len(case.of("confirmation", one.proposal_id)) for one in plan.proposals]
        runs = plan.contract.verification.confirmation_runs
        if max(per) >= runs:
            return None  # it is the probe, the order or the number of them that does not hold
        return "confirmations_incomplete", (
            f"A candidate passed its full trial and {max(per)} of {runs} confirmations; no more came to their end."
        )
    if confirmations or fulls:
        return None
    if any(check.all_pass(probe_checks(plan, given_by, one)) for one in probes):
        return "no_full_trial", "A candidate passed its probe, but no full trial of it came to its end."
    return None


def _too_short(case: _Case) -> Trial | None:
    """Return the last full trial or confirmation that breaks nothing but the horizon."""
    for one in reversed(case.of("full") + case.of("confirmation")):
        broken = {each.name for each in contract_checks(case.plan, case.authorizations, one) if each.outcome != "pass"}
        if broken == {"horizon"}:
            return one
    return None


def _waiting(case: _Case) -> list[str]:
    """Return the candidates whose trial breaks nothing but the check of the update, in the plan's order."""
    ids = set()
    for role, checks_of in (("full", contract_checks), ("probe", probe_checks)):
        for one in case.of(role):
            broken = {each.name for each in checks_of(case.plan, case.authorizations, one) if each.outcome != "pass"}
            if broken == {"update"}:
                ids.add(one.request.proposal_id)
    return [one.proposal_id for one in case.plan.proposals if one.proposal_id in ids]


def _named(prefix: str, checks: tuple[Check, ...]) -> tuple[Check, ...]:
    return tuple(one.replace(name=f"{prefix}: {one.name}"[:400]) for one in checks)


def cause_addressed(plan: RecoveryPlan, proposal_id: str | None) -> sentences.CauseAddressed:
    """Tell whether a proposal changes a control that acts on a diagnosed cause: yes, no, or unknown."""
    if proposal_id is not None and plan.source.despite:
        return "no"
    if proposal_id is None or not plan.source.supports:
        return "unknown"
    return "yes" if set(plan.proposal(proposal_id).capabilities) & set(plan.source.supports) else "no"
