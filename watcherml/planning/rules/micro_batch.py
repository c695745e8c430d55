"""Smaller micro-batches by exact divisors, with accumulation up where there is a control for it."""

from __future__ import annotations

from dataclasses import dataclass

from watcherml.planning.controls_batch import batch_caution
from watcherml.planning.equivalence import (
    accumulation_for,
    changes_update,
    divisors,
    divisors_down,
    halves_down,
    update_sentences,
)
from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import value_of
from watcherml.protocol.proposal import Authority, Capability

NAME = "micro_batch_size"
_EVIDENCE = ("EV-1", "EV-6")


@dataclass(frozen=True)
class _Rung:
    """The present micro-batch and a smaller one."""

    size: int
    micro: int
    tier: float


def drafts(situation: Situation) -> Drafts:
    """Return one draft a rung, the largest micro-batch first."""
    batch = situation.found.get(NAME)
    if batch is None:
        return [], []
    size = int(value_of(batch))
    if size == 1:
        return left_out(NAME, "The micro-batch size is 1 already.")
    accumulation = situation.found.get("gradient_accumulation_steps")
    caution = batch_caution(situation.source.config, batch, accumulation is not None)
    exact = accumulation is not None  # without it no size keeps the effective batch, and any will do
    more = {micro for micro in situation.micro_batches if 0 < micro < size and not (exact and size % micro)}
    ladder = sorted({*(divisors_down(size) if exact else halves_down(size)), *more}, reverse=True)
    rungs = [_Rung(size, micro, tier=1 + 2 * rung) for rung, micro in enumerate(ladder)]
    return [_draft(situation, batch, accumulation, rung, caution) for rung in rungs], []


def _draft(
    situation: Situation, batch: Capability, accumulation: Capability | None, rung: _Rung, caution: str
) -> Draft:
    traits = situation.source.traits
    size, micro, tier = rung.size, rung.micro, rung.tier
    share = f"Activations of {micro} instead of {size} samples at a time."
    authority: Authority = "approval_required" if traits else "automatic"
    if accumulation is None:
        sentences = update_sentences(traits, micro) if traits else ()
        return Draft(
            f"batch-{micro}", f"Lower the micro-batch from {size} to {micro}", (change(batch, micro),), (batch,),
            "changed", "micro_batch_ladder", _EVIDENCE, share, (caution, *sentences), tier,
            least_authority=authority, changes_update=changes_update(traits),
        )  # fmt: skip
    before = int(value_of(accumulation))
    steps = accumulation_for(size, before, micro)
    return Draft(
        f"batch-{micro}x{steps}", f"Micro-batch {micro}, accumulated {steps} times",
        (change(batch, micro), change(accumulation, steps)), (batch, accumulation), "preserved", "micro_batch_ladder",
        _EVIDENCE, f"{share} The effective batch stays {size * before}.",
        (*([caution] if caution else []), *_many_passes(size, micro), *update_sentences(traits, micro)), tier,
        least_authority=authority, changes_update=changes_update(traits),
    )  # fmt: skip


# A step down to less than that share of the batch skips sizes that would have been tried.
_LEAP = 4


def _many_passes(size: int, micro: int) -> tuple[str, ...]:
    """Return that a batch has no divisor between, so that its micro-batches are smaller than they would have to be."""
    larger = [one for one in divisors(size) if micro < one]
    if larger[0] < _LEAP * micro:
        return ()
    other = larger[0] - larger[0] % 4
    return (
        f"{size} samples divide into no size between {micro} and {larger[0]}, so that this one takes many passes."
        f" Train on {size // larger[0] * other} instead if that does as well, and more sizes can be tried.",
    )
