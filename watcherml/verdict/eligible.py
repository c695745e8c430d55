"""Does one trial keep the contract? The same checks for full trials and for confirmations."""

from __future__ import annotations

from watcherml.contract.guards import MetricGuard
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import MeasuredIdentity, Trial, TrialResult
from watcherml.protocol.verdict import Check
from watcherml.verdict import check
from watcherml.verdict.bindings import NOTHING_MEASURED, authority_check, binding_checks, code_checks, proposal_of


def trial_checks(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trial: Trial) -> tuple[Check, ...]:
    """Return every check of a full or confirmation trial, in the order in which a person reads them."""
    proposal = proposal_of(plan, trial)
    named = trial.request.proposal_id
    return (
        check.holds("candidate", "a proposal of the plan", named, proposal is not None),
        *(() if proposal is None else (authority_check(plan, authorizations, proposal),)),
        *binding_checks(plan, trial),
        *_outcome_checks(plan, trial.result),
        *progress_checks(plan, trial.result),
        *(_guard_check(guard, trial.result) for guard in plan.contract.verification.metric_guards),
        *_peak_checks(plan, trial.result),
        *_identity_checks(plan, trial.result.identity or NOTHING_MEASURED),
    )


def probe_checks(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], trial: Trial) -> tuple[Check, ...]:
    """Return the checks a probe must pass before its candidate is worth a full trial."""
    proposal = proposal_of(plan, trial)
    if proposal is None:
        return (check.holds("candidate", "a proposal of the plan", trial.request.proposal_id, False),)
    steps = trial.result.progress.steps if _counted(trial.result) else None
    return (
        authority_check(plan, authorizations, proposal),
        *binding_checks(plan, trial),
        *_outcome_checks(plan, trial.result),
        check.holds("probe.steps", "at least 1 step", steps, bool(steps)),
        *code_checks(plan, trial.result.identity or NOTHING_MEASURED),
        *_peak_checks(plan, trial.result),
    )


def _outcome_checks(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    return (
        check.equal("outcome", "completed", result.outcome),
        check.holds("execution", "an execution id of the worker", result.execution_id, True),
        check.equal("device.kind", plan.contract.device.kind, result.device.kind if result.device else None),
        check.equal("device.budget_bytes", _budget(plan), _measured_budget(plan, result)),
    )


def progress_checks(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    """Check the steps: counted by marks or optimizer calls, or claimed where nothing could count them."""
    required = plan.contract.verification.minimum_progress_steps
    progress = result.progress
    steps = progress.steps if _counted(result) else None
    checks = [
        check.holds("progress.steps", f"at least {required} steps", steps, steps is not None and steps >= required),
        check.holds(
            f"progress.{plan.contract.progress_metric}", f"at least {required}", progress.claimed,
            progress.claimed is not None and progress.claimed >= required,
        ),
    ]  # fmt: skip
    if progress.claimed is not None and progress.source in ("marks", "optimizer"):
        checks.append(
            check.holds("progress.claim", f"no more than the {progress.steps} counted steps", progress.claimed,
                        progress.claimed <= progress.steps)
        )  # fmt: skip
    return tuple(checks)


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


def _identity_checks(plan: RecoveryPlan, measured: MeasuredIdentity) -> tuple[Check, ...]:
    declared = plan.contract.verification.workload_identity.declared()
    checks = [check.equal(f"identity.{name}", value, getattr(measured, name)) for name, value in declared.items()]
    recorded = plan.source.dataset_fingerprint
    if recorded is not None and "dataset_fingerprint" not in declared:
        # The failed run recorded its data, so a trial on other data is a trial of another workload.
        checks.append(check.equal("identity.dataset_fingerprint", recorded, measured.dataset_fingerprint))
    return (*checks, *code_checks(plan, measured))


def _budget(plan: RecoveryPlan) -> object:
    return plan.contract.device.budget_bytes if plan.contract.device.kind == "simulated" else "any"


def _measured_budget(plan: RecoveryPlan, result: TrialResult) -> object:
    if plan.contract.device.kind != "simulated":
        return "any"
    return result.device.budget_bytes if result.device else None
