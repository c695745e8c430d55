"""A contract in sentences: what counts as success, what may be spent, what may be changed, on which device."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from watcherml.contract.contract import RecoveryContract
from watcherml.protocol.cost import worst_case
from watcherml.protocol.permitting import flag, permitting
from watcherml.protocol.plan import NOT_THERE, RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.report.safe import one_line
from watcherml.report.units import format_bytes, format_number, format_seconds, plural
from watcherml.sealed.device import Device

State = Literal["automatic", "approved", "rejected", "waiting"]
STATE_WORDS: dict[State, str] = {
    "automatic": "automatic",
    "approved": "approved",
    "rejected": "rejected",
    "waiting": "needs approval",
}

SIMULATED_NOTE = "Simulated device: a CPU with a declared memory limit. Nothing here says anything about a GPU."


def state_of(proposal: Proposal, authorized: Collection[str], rejected: Collection[str]) -> State:
    """Return whether a proposal may run: a rejection outweighs everything else."""
    if proposal.proposal_id in rejected:
        return "rejected"
    if proposal.authority == "automatic":
        return "automatic"
    return "approved" if proposal.proposal_id in authorized else "waiting"


def plan_headline(plan: RecoveryPlan, authorized: Collection[str], rejected: Collection[str]) -> str:
    """Return what is proposed and what a person has to do next."""
    states = [state_of(proposal, authorized, rejected) for proposal in plan.proposals]
    ready = sum(state in ("automatic", "approved") for state in states)
    waiting = states.count("waiting")
    if plan.runs_control_only:
        return "No change is proposed. Next: start the campaign, which tries the unchanged configuration once more."
    if not states and plan.withheld:
        count = len(plan.withheld)
        found = f"{plural(count, 'change')} {'was' if count == 1 else 'were'} found, none may be planned."
        return f"{found} Next: prepare it again {how_to_permit(plan)}."
    if not states:
        return "No change is proposed: nothing in this configuration is known to help. The reasons are listed below."
    found = f"{plural(len(states), 'change')} proposed"
    if not ready and waiting:
        return f"{found}, none may run yet. Next: approve or reject {'it' if waiting == 1 else 'them'}."
    if not ready:
        return f"{found}, all rejected. Nothing would be tried."
    text = f"{found}, {ready:,} may run. Next: start the campaign"
    undecided = f", or first decide on the {waiting:,} that {'needs' if waiting == 1 else 'need'} approval"
    return f"{text}{undecided}." if waiting else f"{text}."


def how_to_permit(plan: RecoveryPlan) -> str:
    """Return, as the end of a sentence, what gives a plan the permissions that its changes lack.

    As many as the one that lacks the fewest: nobody is led to permit more than a change needs.
    """
    return permitting(min((one.permissions or () for one in plan.withheld), key=len))


def permitted(plan: RecoveryPlan) -> str:
    """Return the flags that give a plan made again the permissions that this one has."""
    given = plan.contract.permissions.to_data()
    return " ".join(flag(name) for name, is_given in given.items() if is_given)


def success_sentences(contract: RecoveryContract) -> list[str]:
    """Return what every confirmation run has to show."""
    wanted = contract.verification
    runs = plural(wanted.confirmation_runs, "fresh confirmation run")
    lines = [
        f"{runs} must {'each ' if wanted.confirmation_runs > 1 else ''}complete and meet all of the following.",
        f"At least {plural(wanted.minimum_progress_steps, 'optimizer step')}.",
    ]
    for guard in wanted.metric_guards:
        name = one_line(guard.name, 80)
        lines.append(
            f"{name} {guard.wanted()} (baseline {format_number(guard.baseline_value)}, {guard.direction}d,"
            f" {format_number(guard.max_regression)} worse is accepted)."
        )
    if wanted.max_peak_vram_bytes is not None:
        lines.append(f"Peak device memory at most {format_bytes(wanted.max_peak_vram_bytes)}.")
    for key, value in wanted.workload_identity.declared().items():
        lines.append(f"The same {key.replace('_', ' ')}: {one_line(value, 80)}.")
    lines.append(f"The same code: {plural(len(contract.code.files), 'file')} of the training function, by content.")
    return lines


def worst_case_trials(plan: RecoveryPlan) -> int:
    """Return the most trials that this plan can start, in processes."""
    return worst_case(plan).trials


def worst_case_seconds(plan: RecoveryPlan) -> float:
    """Return the most wall time that this plan can take, in seconds."""
    return worst_case(plan).wall_seconds


def spending_sentences(plan: RecoveryPlan) -> list[str]:
    """Return what the campaign may spend at most."""
    budget, cost = plan.contract.budget, worst_case(plan)
    stages = [("control", cost.control), ("probe", cost.probes), ("full trial", cost.full)]
    stages.append(("confirmation", cost.confirmations))
    divided = ", ".join(plural(count, name) for name, count in stages if count)
    if not cost.trials:
        return ["No trial: there is nothing to try, and starting the campaign only puts that on record."]
    lines = [
        f"At worst {plural(cost.trials, 'trial')} ({divided}) and {format_seconds(cost.wall_seconds)}"
        f" of wall time; most campaigns take less.",
        f"One trial takes at most {format_seconds(budget.trial_timeout_seconds)}, a probe"
        f" {plural(budget.probe_steps or 0, 'step')}.",
    ]
    if budget.parallel_probes > 1:
        lines.append(f"Up to {plural(budget.parallel_probes, 'probe')} at once; everything else runs alone.")
    if budget.max_gpu_seconds is not None:
        lines.append(f"GPU time at most {format_seconds(budget.max_gpu_seconds)}.")
    elif plan.contract.device.kind == "cuda":
        lines.append("GPU time is not limited: at worst the wall time for every GPU that a trial sees.")
    return lines


def permission_sentence(contract: RecoveryContract) -> str:
    """Return which kinds of change the contract lets run at all."""
    permissions = contract.permissions
    allowed = ["automatic changes"]
    if permissions.allow_approval_required:
        allowed.append("changes a person approved")
    if permissions.allow_semantic_changes:
        allowed.append("changes of what is computed")
    if permissions.allow_high_risk:
        allowed.append("high-risk changes")
    return f"Only {allowed[0]} may run." if len(allowed) == 1 else f"May run: {', '.join(allowed)}."


def control_sentence(plan: RecoveryPlan) -> str:
    """Return what the control trial does, or that there is none."""
    if not plan.contract.control:
        return "No control trial: the contract turned it off, and the verdict will say so."
    steps = plural(plan.control_max_steps, "step")
    text = (
        f"First the unchanged configuration runs in a fresh process, for at most {steps}."
        " It has to fail as before; if it passes, nothing counts as a recovery."
    )
    if plan.proposals and plan.contract.probe_candidates <= 0:
        text += " It takes the whole probe budget, so candidates go straight to their full trial."
    return text


def device_sentence(device: Device) -> str:
    """Return the device with its memory: ``simulated device, 96.0 MiB``."""
    name = one_line(device.name, 80)
    if device.kind == "none":
        return "no device: only the text of the failure is known"
    words = "simulated device" if device.kind == "simulated" else "CUDA"
    parts = [words, name if name and name != words else ""]
    if device.budget_bytes is not None:
        parts.append(format_bytes(device.budget_bytes))
    return ", ".join(part for part in parts if part)


def device_words(plan: RecoveryPlan) -> str:
    """Return what limits the memory: a declared budget, or a device's total."""
    return "budget" if plan.contract.device.kind == "simulated" else "device's memory"


def predicted(proposal: Proposal, device: Device) -> str:
    """Return the predicted peak beside the budget, or that there is no prediction."""
    if proposal.predicted_peak_bytes is None:
        return "not predicted"
    text = format_bytes(proposal.predicted_peak_bytes)
    return text if device.budget_bytes is None else f"{text} of {format_bytes(device.budget_bytes)}"


def change_lines(proposal: Proposal) -> list[str]:
    """Return each change as one line: of the configuration, then of the trial's environment."""
    lines = [one_line(change.words, 300) for change in proposal.changes]
    lines.extend(f"environment {one_line(key, 80)}={one_line(value, 200)}" for key, value in environment(proposal))
    return lines


def left_out(plan: RecoveryPlan) -> list[tuple[tuple[str, ...], str]]:
    """Return (capabilities or proposals, reason) for everything left out; what shares a reason shares a line."""
    found: dict[str, list[str]] = {}
    for one in plan.skipped:
        found.setdefault(one.reason, []).append(one.capability)
    return [(tuple(names), reason) for reason, names in found.items()]


def batch_note(plan: RecoveryPlan) -> str:
    """Return that proposals change the effective batch, and how to name a key that accumulates; else an empty text."""
    changing = [one.proposal_id for one in plan.proposals if one.effective_batch == "changed"]
    if not changing:
        return ""
    which = f"{changing[0]} changes" if len(changing) == 1 else f"{changing[0]} and {len(changing) - 1} more change"
    left_out, hint = plan.left_out("gradient_accumulation_steps"), ""
    if left_out is not None and left_out.reason == NOT_THERE:
        hint = (
            " A key of another name that accumulates is told in a file, --capabilities FILE:"
            ' {"gradient_accumulation_steps": {"path": ["train", "accumulate"]}}.'
        )
    elif left_out is not None and left_out.declarable:
        hint = f" What accumulates: {left_out.reason.rstrip('.')}, in a file (--capabilities FILE)."
    return f"{which} the effective batch.{hint}"


def environment(proposal: Proposal) -> list[tuple[str, str]]:
    """Return the variables a proposal sets in its trials, by name."""
    return sorted(proposal.environment.items())


def entrypoint_sentence(contract: RecoveryContract) -> str:
    """Return which function is run, and where."""
    target, folder = one_line(contract.entrypoint.target, 160), one_line(contract.entrypoint.working_directory, 160)
    return target if folder in (".", "") else f"{target} in {folder}"


WRITES_SENTENCE = (
    "Each trial saves where the function saves: outside of watcherml.output_directory(...) it overwrites a checkpoint"
    " of yours, and the next trial may resume from it."
)


def budget_sentence(plan: RecoveryPlan) -> str:
    """Return how the trials are divided among the stages."""
    budget, runs = plan.contract.budget, plan.contract.verification.confirmation_runs
    control = "1 control, " if plan.contract.control else ""
    parts = (plural(max(plan.contract.probe_candidates, 0), "probe"), plural(budget.max_full_trials or 0, "full trial"))
    return f"{control}up to {', '.join(parts)}, {plural(runs, 'confirmation')} a candidate"
