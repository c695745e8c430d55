"""Does a trial belong to this plan, candidate and configuration?"""

from __future__ import annotations

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Change, Proposal, config_digest
from watcherml.protocol.result import MeasuredIdentity, Trial, TrialResult
from watcherml.protocol.verdict import Check
from watcherml.verdict import check

MEMORY_TOLERANCE = 0.02


def binding_checks(plan: RecoveryPlan, trial: Trial) -> tuple[Check, ...]:
    """Return the checks that tie request and result to the contract, the source, the candidate, and each other."""
    request, result = trial.request, trial.result
    contract, budget = plan.contract, plan.contract.budget
    proposal = proposal_of(plan, trial)
    named = request.proposal_id or "none"
    belongs = proposal is not None if request.role != "control" else contract.control and request.proposal_id is None
    required = contract.source_config_digest if proposal is None else proposal.config_digest
    return (
        check.equal("binding.plan", plan.digest, request.plan_digest),
        check.equal("binding.contract", contract.digest, request.contract_digest),
        check.equal("binding.source", plan.source.run_id, request.source_run_id),
        check.holds("binding.candidate", "a proposal of the plan, none for a control", named, belongs),
        check.equal("binding.candidate_config", required, request.config_digest),
        check.equal("binding.config", request.config_digest, config_digest(request.config)),
        check.holds("binding.floats", "the floats of the source's configuration", len(request.float_paths),
                    request.float_paths == plan.source.float_paths),
        check.equal("binding.environment", {} if proposal is None else dict(proposal.environment),
                    dict(request.environment)),
        check.holds("binding.changes", "the changes of the proposal, none for a control", _words(request.changes or ()),
                    (request.changes or ()) == (() if proposal is None else proposal.changes)),
        check.equal("binding.entrypoint", contract.entrypoint, request.entrypoint),
        check.equal("binding.progress_metric", contract.progress_metric, request.progress_metric),
        check.equal("binding.device", contract.device, request.device),
        check.equal("binding.max_steps", _length(plan, request.role), request.max_steps or "no limit"),
        check.holds("binding.timeout", f"at most {budget.trial_timeout_seconds} s", request.timeout_seconds,
                    request.timeout_seconds <= (budget.trial_timeout_seconds or 0)),
        check.equal("binding.grace", budget.termination_grace_seconds, request.grace_seconds),
        check.equal("binding.request", request.digest, result.request_digest),
        check.equal("binding.trial_id", request.trial_id, result.trial_id),
        check.equal("binding.run_id", request.run_id, result.run_id),
    )  # fmt: skip


def _words(changes: tuple[Change, ...]) -> str:
    return "; ".join(one.words for one in changes) or "none"


def proposal_of(plan: RecoveryPlan, trial: Trial) -> Proposal | None:
    """Return the plan's proposal that a trial names, None for a control or an unknown id."""
    if trial.request.role == "control":
        return None
    return next((one for one in plan.proposals if one.proposal_id == trial.request.proposal_id), None)


def approvals(
    plan: RecoveryPlan, authorizations: tuple[Authorization, ...], proposal: Proposal, before: float | None = None
) -> tuple[str, ...]:
    """Return who approved a proposal of this very plan (by ``before``, seconds since 1970), in alphabetical order."""
    bound = (plan.digest, proposal.proposal_id, proposal.digest)
    return tuple(
        sorted(
            one.approved_by
            for one in authorizations
            if (one.plan_digest, one.proposal_id, one.proposal_digest) == bound
            and (before is None or one.approved_at <= before)
        )
    )


def authority_check(
    plan: RecoveryPlan, authorizations: tuple[Authorization, ...], proposal: Proposal, before: float | None = None
) -> Check:
    """Check that a proposal was allowed to run: automatic, or approved before by an authorization bound to it."""
    if proposal.authority == "automatic":
        return check.holds("authority", "automatic, or approved by a person", "automatic", True)
    by = approvals(plan, authorizations, proposal, before)
    required = "approved by a person before it ran"
    return check.holds("authority", required, f"approved by {by[0]}" if by else None, bool(by))


_NOTHING_MEASURED = MeasuredIdentity(None, None, None, None, None)


def device_checks(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    """Check that a trial ran on the source's device: its kind, the model of a GPU, the budget of a simulated one."""
    required, device = plan.contract.device, result.device
    checks = [check.equal("device.kind", required.kind, device.kind if device else None)]
    if required.kind == "cuda":
        checks.append(check.equal("device.name", required.name, device.name if device else None))
    if required.kind != "none" and required.budget_bytes is not None:
        budget = device.budget_bytes if device else None
        # Two drivers may report the memory of one model of GPU a little differently; a declared budget is exact.
        slack = 0 if required.kind == "simulated" else int(required.budget_bytes * MEMORY_TOLERANCE)
        near = budget is not None and abs(budget - required.budget_bytes) <= slack
        words = f"{required.budget_bytes} bytes" + (f" within {MEMORY_TOLERANCE:.0%}" if slack else "")
        checks.append(check.holds("device.budget_bytes", words, budget, near))
    return tuple(checks)


def identity_checks(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    """Check what the trial measured of its workload: every declared identity, the recorded data, the sealed
    packages and code.
    """
    measured = result.identity or _NOTHING_MEASURED
    declared = plan.contract.verification.workload_identity.declared()
    checks = [check.equal(f"identity.{name}", value, getattr(measured, name)) for name, value in declared.items()]
    recorded = plan.source.dataset_fingerprint
    if recorded is not None and "dataset_fingerprint" not in declared:
        # The failed run recorded its data, so a trial on other data is a trial of another workload.
        checks.append(check.equal("identity.dataset_fingerprint", recorded, measured.dataset_fingerprint))
    packages = plan.contract.environment_fingerprint
    if packages is not None and "environment_fingerprint" not in declared:
        checks.append(check.equal("identity.environment_fingerprint", packages, measured.environment_fingerprint))
    return (*checks, _code_check(plan, measured))


def _code_check(plan: RecoveryPlan, measured: MeasuredIdentity) -> Check:
    sealed = plan.contract.code.files
    required = f"{len(sealed)} sealed file{'' if len(sealed) == 1 else 's'} with their contents"
    if measured.code is None:
        return check.holds("code", required, None, False)
    wrong = sorted(path for path, digest in sealed.items() if measured.code.files.get(path) != digest)
    shown = (
        "the same" if not wrong else f"{wrong[0]} is {'another' if wrong[0] in measured.code.files else 'not loaded'}"
    )
    return check.holds("code", required, shown, not wrong)


def _length(plan: RecoveryPlan, role: str) -> object:
    if role == "control":
        return plan.control_max_steps
    return plan.contract.budget.probe_steps if role == "probe" else "no limit"
