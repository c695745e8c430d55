"""Does a trial belong to this plan, candidate and configuration?"""

from __future__ import annotations

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Proposal, config_digest
from watcherml.protocol.result import MeasuredIdentity, Trial
from watcherml.protocol.verdict import Check
from watcherml.verdict import check


def binding_checks(plan: RecoveryPlan, trial: Trial) -> tuple[Check, ...]:
    """Return the checks that tie request and result to the contract, the source, the candidate, and each other."""
    request, result = trial.request, trial.result
    proposal = proposal_of(plan, trial)
    required = plan.contract.source_config_digest if request.role == "control" else _digest(proposal)
    return (
        check.equal("binding.plan", plan.digest, request.plan_digest),
        check.equal("binding.contract", plan.contract.digest, request.contract_digest),
        check.equal("binding.source", plan.source.run_id, request.source_run_id),
        check.equal("binding.entrypoint", plan.contract.entrypoint, request.entrypoint),
        check.equal("binding.progress_metric", plan.contract.progress_metric, request.progress_metric),
        check.equal("binding.device", plan.contract.device, request.device),
        check.equal("binding.environment", {} if proposal is None else dict(proposal.environment),
                    dict(request.environment)),
        check.equal("binding.candidate_config", required, request.config_digest),
        check.equal("binding.config", request.config_digest, config_digest(request.config)),
        check.equal("binding.max_steps", _length(plan, request.role), request.max_steps or "no limit"),
        check.holds("binding.proposal", "none for a control, a proposal of the plan otherwise",
                    request.proposal_id or "none", (request.role == "control") == (request.proposal_id is None)),
        check.equal("binding.request", request.digest, result.request_digest),
        check.equal("binding.trial_id", request.trial_id, result.trial_id),
        check.equal("binding.run_id", request.run_id, result.run_id),
    )  # fmt: skip


def proposal_of(plan: RecoveryPlan, trial: Trial) -> Proposal | None:
    """Return the plan's proposal that a trial names, None for a control or an unknown id."""
    for proposal in plan.proposals:
        if proposal.proposal_id == trial.request.proposal_id:
            return proposal
    return None


def authority_check(plan: RecoveryPlan, authorizations: tuple[Authorization, ...], proposal: Proposal) -> Check:
    """Check that a proposal was allowed to run: automatic, or approved by an authorization bound to it."""
    if proposal.authority == "automatic":
        return check.holds("authority", "automatic, or approved by a person", "automatic", True)
    bound = [
        one.approved_by
        for one in authorizations
        if (one.plan_digest, one.proposal_id, one.proposal_digest)
        == (plan.digest, proposal.proposal_id, proposal.digest)
    ]
    return check.holds("authority", "approved by a person", f"approved by {bound[0]}" if bound else None, bool(bound))


NOTHING_MEASURED = MeasuredIdentity(None, None, None, None, None)


def code_checks(plan: RecoveryPlan, measured: MeasuredIdentity) -> tuple[Check, ...]:
    """Check that a trial loaded every sealed file of the project with its sealed content."""
    files = None if measured.code is None else measured.code.files
    return tuple(
        check.equal(f"code.{path}"[:400], digest, None if files is None else files.get(path))
        for path, digest in plan.contract.code.files.items()
    )


def _length(plan: RecoveryPlan, role: str) -> object:
    if role == "control":
        return plan.control_max_steps
    return plan.contract.budget.probe_steps if role == "probe" else "no limit"


def _digest(proposal: Proposal | None) -> str | None:
    return None if proposal is None else proposal.config_digest
