"""The control trial: does the unchanged configuration fail the same way in a fresh process?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import Trial, TrialResult
from watcherml.protocol.verdict import Check
from watcherml.verdict import check
from watcherml.verdict.bindings import binding_checks, device_checks, identity_checks
from watcherml.verdict.workload import other_words

# The requested size may differ this much between two runs of the same failure.
REQUEST_TOLERANCE = 0.05

Finding = Literal["reproduced", "passed", "different", "another_workload", "inconclusive"]


@dataclass(frozen=True)
class ControlJudgement:
    """What the control showed, with the checks behind it."""

    finding: Finding
    sentence: str
    checks: tuple[Check, ...]


def judge_control(plan: RecoveryPlan, trial: Trial) -> ControlJudgement:
    """Judge a control trial.

    ``reproduced``: the source's workload on the source's device ran out of memory with the source's class, phase where
    both are known, and a request within 5 %. ``passed``: it ended well. ``different``: it failed otherwise, or is not
    this plan's. ``another_workload``: other code, data, model or device, or not measured. ``inconclusive``: a limit or
    the system ended it.
    """
    result = trial.result
    checks = binding_checks(plan, trial)
    if not check.all_pass(checks):
        return ControlJudgement("different", "The control trial does not belong to this plan.", checks)
    if result.outcome in ("timeout", "killed", "exited", "host_oom", "lost"):
        return ControlJudgement("inconclusive", f"The control trial gave no answer: {result.sentence}"[:2000], checks)
    checks += device_checks(plan, result) + identity_checks(plan, result)
    if not check.all_pass(checks):
        sentence = f"The control trial was not shown to run the failed run's workload: {other_words(checks)}"
        return ControlJudgement("another_workload", sentence[:2000], checks)
    if result.outcome == "completed":
        return ControlJudgement("passed", _passed_sentence(plan, trial), checks)
    checks += _same_failure(plan, result)
    if check.all_pass(checks):
        return ControlJudgement("reproduced", "The unchanged configuration failed the same way again.", checks)
    reason = "; ".join(check.broken(checks))
    sentence = f"The control trial failed in another way: {result.sentence} ({reason})"
    return ControlJudgement("different", sentence[:2000], checks)


def _same_failure(plan: RecoveryPlan, result: TrialResult) -> tuple[Check, ...]:
    source, failure = plan.source, result.failure
    checks = [
        check.equal("control.outcome", "oom", result.outcome),
        check.equal("control.failure_class", source.failure_class, failure.failure_class if failure else None),
    ]
    if source.requested_bytes:
        asked = failure.requested_bytes if failure else None
        near = asked is not None and abs(asked - source.requested_bytes) <= REQUEST_TOLERANCE * source.requested_bytes
        required = f"{source.requested_bytes} bytes within {REQUEST_TOLERANCE:.0%}"
        checks.append(check.holds("control.requested_bytes", required, asked, near))
    if failure is not None and _known(source.phase) and _known(failure.phase):
        checks.append(check.equal("control.phase", source.phase, failure.phase))
    return tuple(checks)


def _known(phase: str) -> bool:
    return phase not in ("", "unknown")


def _passed_sentence(plan: RecoveryPlan, trial: Trial) -> str:
    steps = trial.result.progress.steps
    seen = f"after {steps} steps" if trial.result.progress.source in ("marks", "optimizer") else "without counted steps"
    return (
        f"The control trial passed: in a fresh process the unchanged configuration ended {seen} and did not run out of"
        f" memory, so the failure of {plan.source.run_id} was not reproduced and nothing can be called its recovery."
    )
