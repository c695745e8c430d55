"""Does one trial keep the contract? The same checks for full trials and for confirmations."""

from __future__ import annotations

from watcherml.contract.guards import MetricGuard
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import ALLOCATOR, SEMANTIC_TRAITS, Proposal
from watcherml.protocol.result import Trial, TrialResult
from watcherml.protocol.verdict import Check
from watcherml.verdict import check
from watcherml.verdict.bindings import (
    approvals,
    authority_check,
    binding_checks,
    device_checks,
    identity_checks,
    proposal_of,
)

# Controls that every trial's process can look at, so that a change of them counts only if it was seen to act.
ALWAYS_READ_BACK = (ALLOCATOR,)
# What ending a trial and collecting its report may take beyond its timeout and grace.
END_SECONDS = 60.0
_BATCH = "micro_batch_size"


def trial_checks(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trial: Trial) -> tuple[Check, ...]:
    """Return every check of a full or confirmation trial: its bindings, then the contract's."""
    return (*binding_checks(plan, trial), *contract_checks(plan, authorizations, trial))


def contract_checks(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trial: Trial) -> tuple[Check, ...]:
    """Return the checks of a full or confirmation trial beyond its bindings, in the order in which a person reads."""
    return (
        *_candidate_checks(plan, authorizations, trial),
        *_outcome_checks(plan, trial),
        *progress_checks(plan, trial.result),
        *_horizon_checks(plan, trial),
        *(_guard_check(guard, trial.result) for guard in plan.contract.verification.metric_guards),
        *_peak_checks(plan, trial.result),
        *identity_checks(plan, trial.result),
    )


def probe_checks(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trial: Trial) -> tuple[Check, ...]:
    """Return the checks a probe must pass before its candidate is worth a full trial."""
    steps = trial.result.progress.steps if _counted(trial.result) else None
    return (
        *binding_checks(plan, trial),
        *_candidate_checks(plan, authorizations, trial),
        *_outcome_checks(plan, trial),
        check.holds("probe.steps", "at least 1 step", steps, bool(steps)),
        *identity_checks(plan, trial.result),
        *_peak_checks(plan, trial.result),
    )


def _candidate_checks(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trial: Trial) -> tuple[Check, ...]:
    proposal = proposal_of(plan, trial)
    if proposal is None:
        return ()  # which the binding of the candidate has refused
    return (
        authority_check(plan, authorizations, proposal, trial.result.started_at),
        _cause_check(plan, proposal),
        *_update_checks(plan, authorizations, proposal, trial.result),
        *_knob_checks(proposal, trial.result),
    )


def _cause_check(plan: RecoveryPlan, proposal: Proposal) -> Check:
    """Check that the change is not made of controls alone that the diagnosed cause rules out.

    What a cause rules out is open where a person insisted despite it.
    """
    required, despite = "a control that the diagnosis leaves open", [one.words for one in plan.source.despite]
    if despite:
        return check.holds("cause", required, f"insisted on despite {', '.join(despite)}"[:500], True)
    sentences = {one.capability: one.sentence for one in plan.source.ruled_out}
    against = [sentences[name] for name in proposal.capabilities if name in sentences]
    useless = len(against) == len(proposal.capabilities)
    return check.holds("cause", required, against[0] if useless else "open", not useless)


def _update_checks(
    plan: RecoveryPlan, authorizations: tuple[Authorization, ...], proposal: Proposal, result: TrialResult
) -> tuple[Check, ...]:
    """Check that a smaller micro-batch met nothing that makes it another update and that nobody has approved."""
    if _BATCH not in proposal.capabilities:
        return ()
    new = sorted(set(result.traits) - {trait.name for trait in plan.source.traits})
    missing = plan.contract.permissions.missing_for(
        approval=True, semantic=any(name in SEMANTIC_TRAITS for name in new), high_risk=False
    )
    approved = bool(approvals(plan, authorizations, proposal, result.started_at)) and not missing
    required = "nothing that makes it another update, or a permission and a person's approval"
    return (check.holds("update", required, ", ".join(new) or "nothing", not new or approved),)


def _knob_checks(proposal: Proposal, result: TrialResult) -> tuple[Check, ...]:
    """Check that each changed control took effect, as far as the trial's process could see.

    A trial that ended well and does not speak of one has not looked, which is missing; one that says why it cannot be
    seen has, and that is held against a control only where every process can look.
    """
    checks = []
    for name in proposal.capabilities:
        states = {one.state: one.observed for one in result.knobs if one.capability == name}
        denied, unseen = states.get("not_in_effect"), states.get("not_observable")
        observed: str | None = states.get("in_effect")
        if denied is not None:
            observed = f"not in effect: {denied}"
        elif observed is None and unseen is not None and name not in ALWAYS_READ_BACK:
            observed = f"not observable: {unseen}"
        if observed is None and result.outcome != "completed":
            continue  # it may have ended before there was anything to see
        required = "in effect" if name in ALWAYS_READ_BACK else "in effect, or not observable"
        checks.append(check.holds(f"knob.{name}"[:400], required, observed and observed[:500], denied is None))
    return tuple(checks)


def _outcome_checks(plan: RecoveryPlan, trial: Trial) -> tuple[Check, ...]:
    result, allowed = trial.result, trial.request.timeout_seconds + trial.request.grace_seconds + END_SECONDS
    return (
        check.equal("outcome", "completed", result.outcome),
        check.holds("execution", "an execution id of the worker", result.execution_id, True),
        _exit_check(result),
        check.holds("duration", f"at most {allowed:g} s", result.wall_seconds, result.wall_seconds <= allowed),
        *device_checks(plan, result),
    )


def _exit_check(result: TrialResult) -> Check:
    """Check that nothing else in the result contradicts its ending well."""
    signs = [
        *([f"exit code {result.exit_code}"] if result.exit_code != 0 else []),
        *([result.exit_signal] if result.exit_signal else []),
        *([f"a failure: {result.failure.exception_type}"] if result.failure is not None else []),
    ]
    return check.holds("exit", "exit code 0, no signal, no failure", ", ".join(signs)[:300] or "so it was", not signs)


def progress_checks(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    """Check the steps: counted by marks or optimizer calls, or claimed where nothing could count them."""
    required = plan.contract.verification.minimum_progress_steps
    name, progress = plan.contract.progress_metric, result.progress
    steps = progress.steps if _counted(result) else None
    claimed = result.metrics.get(name)
    checks = [
        check.holds("progress.steps", f"at least {required} steps", steps, steps is not None and steps >= required),
        check.holds(
            "progress.metric", f"{name} of at least {required}, the same as was claimed", claimed,
            claimed is not None and claimed >= required and claimed == progress.claimed,
        ),
    ]  # fmt: skip
    if progress.claimed is not None and progress.source in ("marks", "optimizer"):
        checks.append(
            check.holds("progress.claim", f"no more than the {progress.steps} counted steps", progress.claimed,
                        progress.claimed <= progress.steps)
        )  # fmt: skip
    return tuple(checks)


def _horizon_checks(plan: RecoveryPlan, trial: Trial) -> tuple[Check, ...]:
    """Check that a run came as far as what piles up over its steps would not have let it; counted steps alone count."""
    proposal = proposal_of(plan, trial)
    horizon = None if proposal is None else plan.horizon(proposal)
    if horizon is None:
        return ()
    seen = trial.result.progress.source in ("marks", "optimizer")
    steps = trial.result.progress.steps if seen else None
    required = f"at least {horizon} counted steps, by which memory that piles up as before fills the device"
    return (check.holds("horizon", required, steps, steps is not None and steps >= horizon),)


def _counted(result: TrialResult) -> bool:
    return result.progress.source != "none"


def _guard_check(guard: MetricGuard, result: TrialResult) -> Check:
    value = result.metrics.get(guard.name)
    return check.holds(f"metric.{guard.name}"[:400], guard.wanted(), value, value is not None and guard.accepts(value))


def _peak_checks(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    ceiling = plan.contract.verification.max_peak_vram_bytes
    if ceiling is None:
        return ()
    peak = result.peak.compared_bytes if result.peak and result.peak.kind == plan.contract.device.kind else None
    return (check.holds("peak_bytes", f"at most {ceiling} bytes", peak, peak is not None and peak <= ceiling),)
