"""Optimizer state in fewer bits."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import spelled, value_of
from watcherml.planning.wording import shown

NAME = "optimizer_bits"
_TARGET = 8


def drafts(situation: Situation) -> Drafts:
    """Return the step to 8-bit state."""
    control = situation.found.get(NAME)
    if control is None:
        return [], []
    bits = int(value_of(control))
    if bits <= _TARGET:
        return left_out(NAME, f"The state has {bits} bits already.")
    reason = not_the_optimizer(situation, NAME)
    if reason:
        return left_out(NAME, reason)
    if spelled(control, _TARGET) is None:
        return left_out(NAME, f"{shown(control.path)} cannot say {_TARGET}; declare the control that can.")
    draft = Draft(
        "optimizer-8bit", f"Keep optimizer state in 8 bits instead of {bits}", (change(control, _TARGET),), (control,),
        "untouched", "optimizer_bits", ("EV-1", "EV-6"),
        "The optimizer's state takes about a quarter of its bytes.",
        ("Quantised state is another optimizer: watch convergence; the library that does it is needed.",),
        tier=50,
    )  # fmt: skip
    return [draft], []


def not_the_optimizer(situation: Situation, capability: str) -> str:
    """Return why the optimizer's state is not what stands in the way, or an empty string where it may be.

    Forward and backward fail for want of activations' memory as long as the micro-batch can go down; a cause that the
    diagnosis found, or another phase, says otherwise.
    """
    batch = situation.found.get("micro_batch_size")
    activations = situation.source.phase in ("forward", "backward", "recompute")
    if situation.supported(capability) or not activations or batch is None:
        return ""
    size = int(value_of(batch))
    if size == 1:
        return ""
    return f"Memory ran out in {situation.source.phase} at micro-batch {size}: activations come first."
