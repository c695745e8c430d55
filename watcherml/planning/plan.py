"""Turning capabilities into an ordered, permitted, sealed plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from watcherml.contract.contract import RecoveryContract
from watcherml.planning.predict import NO_PREDICTIONS, Predictions, too_large
from watcherml.planning.rules import (
    allocator,
    attention,
    cache,
    checkpointing,
    micro_batch,
    offload,
    optimizer,
    precision,
    sequence,
)
from watcherml.planning.rules.draft import Draft, Drafts, Situation, combine
from watcherml.planning.wording import cut
from watcherml.protocol.permitting import ASKED
from watcherml.protocol.plan import RecoveryPlan, Skipped, Source, control_steps
from watcherml.protocol.proposal import Capability, Proposal, apply_changes, config_digest

PLANNER_VERSION = 6
_RULES: tuple[Callable[[Situation], Drafts], ...] = (
    micro_batch.drafts,
    checkpointing.drafts,
    sequence.drafts,
    precision.drafts,
    attention.drafts,
    offload.drafts,
    optimizer.drafts,
    cache.drafts,
    allocator.drafts,
)
# Controls of activations; before the first batch there are none.
_NEED_A_BATCH = ("micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "sequence_length",
                 "activation_offload", "attention_backend", "memory_efficient_attention")  # fmt: skip


def make_plan(
    contract: RecoveryContract,
    source: Source,
    capabilities: tuple[Capability, ...],
    skipped: tuple[Skipped, ...],
    *,
    include_approval_required: bool,
    max_proposals: int,
    predictions: Predictions = NO_PREDICTIONS,
) -> RecoveryPlan:
    """Return the plan: proposals in the order in which they would be tried, and what was left out and why.

    Controls that act on a diagnosed cause come first, then the gentlest change of each family. Where the cause lies
    outside the configuration nothing is proposed and only the control runs. Where a person insisted despite every cause
    that refuses, whatever it is needs approval. Deterministic: equal arguments give equal bytes.
    """
    drafts, left_out = considered(contract, source, capabilities, skipped, predictions.micro_batches)
    permitted = [one for one in drafts if not not_permitted(one, contract, include_approval_required)]
    hopeless = _hopeless(permitted, contract, source, predictions)
    proposals: list[Proposal] = []
    for draft in drafts:
        lacking = _lacking(draft, contract, include_approval_required)
        reason = not_permitted(draft, contract, include_approval_required) or hopeless.get(draft.slug, "")
        if not reason and len(proposals) >= max_proposals:
            reason = f"The plan holds at most {max_proposals} proposals."
        if reason:
            left_out.append(Skipped(draft.slug, reason, lacking or None))
        else:
            proposals.append(_seal(draft, source, predictions))
    return RecoveryPlan(
        contract=contract,
        source=source,
        capabilities=capabilities,
        proposals=tuple(proposals),
        skipped=tuple(left_out),
        control_max_steps=control_steps(source, contract.verification.minimum_progress_steps),
        notes=(
            *_notes(contract, proposals, bool(source.control_only)),
            *_notes_on_causes(contract, source),
            *_why_withheld(drafts, contract, include_approval_required),
            *predictions.notes(source, contract.device),
            *_without_effect(permitted, source, predictions),
        ),
        planner_version=PLANNER_VERSION,
    )


def considered(
    contract: RecoveryContract,
    source: Source,
    capabilities: tuple[Capability, ...],
    skipped: tuple[Skipped, ...],
    micro_batches: tuple[int, ...] = (),
) -> tuple[list[Draft], list[Skipped]]:
    """Return every draft in the order in which it would be tried, permitted or not, and what no rule drafts."""
    usable, left_out = _usable(source, capabilities, skipped)
    situation = Situation({one.name: one for one in usable}, source, contract.device.kind, micro_batches)
    drafts: list[Draft] = []
    if source.control_only:
        left_out = [Skipped("every intervention", source.control_only)]
    for rule in () if source.control_only or source.still_refused_by else _RULES:
        made, reasons = rule(situation)
        drafts += made
        left_out += reasons
    drafts += _combinations(drafts)
    drafts = [_despite(one, source) for one in drafts]
    return sorted(drafts, key=lambda one: (_indirect(situation, one), one.tier, one.slug)), left_out


def _hopeless(
    drafts: list[Draft], contract: RecoveryContract, source: Source, predictions: Predictions
) -> dict[str, str]:
    """Return the drafts that need not be tried, with the reason; never all of them.

    A prediction may order and leave out, but that nothing helps is for a trial to say: the draft that is predicted to
    come closest stays.
    """
    peaks = {one.slug: predictions.of(_digest(one, source)) for one in drafts}
    reasons = {slug: too_large(peak, source, contract.device, predictions) for slug, peak in peaks.items()}
    if reasons and all(reasons.values()):
        reasons[min(peaks, key=lambda slug: peaks[slug] or 0)] = ""
    return reasons


def _without_effect(drafts: list[Draft], source: Source, predictions: Predictions) -> tuple[str, ...]:
    """Return that no smaller micro-batch changes the predicted peak, as of a function that does not read it."""
    unchanged = predictions.of(config_digest(source.config))
    rungs = [one for one in drafts if one.rule == "micro_batch_ladder"]
    peaks = {peak for one in rungs if (peak := predictions.of(_digest(one, source))) is not None}
    if unchanged is None or peaks != {unchanged}:
        return ()
    key = next(".".join(one.path) for one in rungs[0].changes if one.capability == "micro_batch_size")
    return (
        cut(f"A smaller {key} is predicted to need just as much. See that the function reads {key} from its config:"
            " a loader, model or batch that is made when a module is imported sees no change."),
    )  # fmt: skip


def _digest(draft: Draft, source: Source) -> str:
    return config_digest(apply_changes(source.config, draft.changes))


def automatic_ids(plan: RecoveryPlan) -> tuple[str, ...]:
    """Return the proposals that may run without anybody's approval, in order."""
    return tuple(one.proposal_id for one in plan.proposals if one.authority == "automatic")


def approval_ids(plan: RecoveryPlan) -> tuple[str, ...]:
    """Return the proposals that need an authorization, in order."""
    return tuple(one.proposal_id for one in plan.proposals if one.authority == "approval_required")


def _usable(
    source: Source, capabilities: tuple[Capability, ...], skipped: tuple[Skipped, ...]
) -> tuple[list[Capability], list[Skipped]]:
    """Divide the controls into those that the failure leaves open and those that it rules out, with the reason."""
    despite = {one.cause for one in source.despite}
    ruled_out = {one.capability: one.sentence for one in source.ruled_out if one.cause not in despite}
    if source.phase == "load":
        reason = "Memory ran out while the model was loaded, before any batch."
        ruled_out = {**dict.fromkeys(_NEED_A_BATCH, reason), **ruled_out}
    open_ones = [one for one in capabilities if one.name not in ruled_out]
    closed = [Skipped(one.name, ruled_out[one.name]) for one in capabilities if one.name in ruled_out]
    return open_ones, [*skipped, *closed]


def _indirect(situation: Situation, draft: Draft) -> bool:
    """Tell whether a draft touches no control that acts on a diagnosed cause, although there are such controls."""
    supports = situation.source.supports
    return bool(supports) and not any(one.name in supports for one in draft.capabilities)


def _combinations(drafts: list[Draft]) -> list[Draft]:
    """Return each micro-batch rung together with checkpointing."""
    switches = [draft for draft in drafts if draft.rule == "checkpointing_on"]
    rungs = [draft for draft in drafts if draft.rule == "micro_batch_ladder"]
    return [combine(rung, switch, tier=rung.tier + 3.5) for switch in switches for rung in rungs]


def _despite(draft: Draft, source: Source) -> Draft:
    """Return a draft that a person has to approve, told of each cause that it is tried despite."""
    words = tuple(f"It is tried despite {one.words}, which refuses it." for one in source.despite)
    return replace(draft, least_authority="approval_required", cautions=(*words, *draft.cautions)) if words else draft


def not_permitted(draft: Draft, contract: RecoveryContract, include_approval_required: bool) -> str:
    """Return why a draft may not be planned under the contract, or an empty text."""
    missing = _lacking(draft, contract, include_approval_required)
    if ASKED in missing:
        return "Needs a person's approval, and this plan was asked for automatic proposals only."
    off = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} off"
    return f"The contract does not permit it: {off}." if missing else ""


def _lacking(draft: Draft, contract: RecoveryContract, include_approval_required: bool) -> tuple[str, ...]:
    """Return what a draft would need and was not given: that it was asked for, and the contract's permissions."""
    approval = draft.authority == "approval_required"
    asked = () if include_approval_required or not approval else (ASKED,)
    permissions = contract.permissions.lacking(
        approval=approval, semantic=draft.semantic, high_risk=draft.risk == "high"
    )
    return (*asked, *permissions)


def _why_withheld(drafts: list[Draft], contract: RecoveryContract, include_approval_required: bool) -> tuple[str, ...]:
    """Return why the first change that is usually automatic needs a person here; nobody would guess it."""
    for one in drafts:
        usual = all(control.authority == "automatic" for control in one.capabilities)
        if usual and one.cautions and _lacking(one, contract, include_approval_required):
            return (cut(f"{one.slug} needs a person's approval. {one.cautions[-1]}"),)
    return ()


def _seal(draft: Draft, source: Source, predictions: Predictions) -> Proposal:
    return Proposal(
        proposal_id=draft.slug,
        title=draft.title,
        changes=draft.changes,
        environment=draft.environment,
        authority=draft.authority,
        risk=draft.risk,
        semantic=draft.semantic,
        effective_batch=draft.effective_batch,
        policy_rule=draft.rule,
        evidence_ids=draft.evidence_ids,
        expected_effect=draft.expected_effect,
        cautions=draft.cautions,
        predicted_peak_bytes=predictions.of(_digest(draft, source)),
        config_digest=_digest(draft, source),
    )


def _notes(contract: RecoveryContract, proposals: list[Proposal], control_only: bool) -> tuple[str, ...]:
    notes = []
    if contract.control and contract.probe_candidates == 0 and not control_only:
        notes.append("The control takes the only probe; candidates go straight to their full trial.")
    if not contract.control:
        notes.append("The control trial is off: nothing shows that the failure repeats in a fresh process.")
    if contract.control and control_only:
        notes.append(
            "Only the unchanged configuration is tried, to see whether the failure repeats in a fresh process."
        )
    waiting = sum(one.authority == "approval_required" for one in proposals)
    if waiting:
        notes.append(f"{waiting} of {len(proposals)} proposals run only after a person approves them.")
    return tuple(notes)


def _notes_on_causes(contract: RecoveryContract, source: Source) -> list[str]:
    notes = []
    if source.how_to_insist:
        notes.append(cut(source.how_to_insist))
    if source.despite:
        causes = " ".join(f"{one.words}: {one.sentence}" for one in source.despite)
        first = (
            "Asked for despite what refuses it, so a person has to approve each change, and the verdict will say so."
        )
        notes.append(cut(f"{first} {causes}"))
    if source.horizon_step is not None:
        steps = contract.verification.minimum_progress_steps
        short = f" This contract asks for {steps:,}." if steps < source.horizon_step else ""
        notes.append(
            f"Memory piles up over the steps and would fill the device by itself at step {source.horizon_step:,}: a run"
            f" that ends earlier proves nothing, and one with fewer samples in a step has to be longer still.{short}"
        )
    return notes
