"""Smaller micro-batches by exact divisors, with accumulation up where there is a control for it."""

from __future__ import annotations

from watcherml.planning.equivalence import SAME_UPDATE_CAUTION, accumulation_for, divisors_down
from watcherml.planning.rules.draft import Draft, Found, change
from watcherml.protocol.plan import Skipped


def drafts(found: Found) -> tuple[list[Draft], list[Skipped]]:
    """Return one draft a rung, the largest micro-batch first."""
    batch = found.get("micro_batch_size")
    if batch is None:
        return [], [Skipped("micro_batch_size", "The configuration has no micro-batch size that could be lowered.")]
    size = int(batch.value)
    if size == 1:
        return [], [Skipped("micro_batch_size", "The micro-batch size is 1 already.")]
    accumulation = found.get("gradient_accumulation_steps")
    made = []
    for rung, micro in enumerate(divisors_down(size)):
        share = f"Activations of {micro} instead of {size} samples at a time."
        if accumulation is None:
            made.append(
                Draft(
                    f"batch-{micro}", f"Lower the micro-batch from {size} to {micro}", (change(batch, micro),),
                    (batch,), "changed", "micro_batch_ladder", ("EV-1", "EV-6"), share,
                    ("Changes the effective batch: no accumulation control was found in the configuration.",),
                    tier=1 + 2 * rung,
                )
            )  # fmt: skip
            continue
        before = int(accumulation.value)
        steps = accumulation_for(size, before, micro)
        made.append(
            Draft(
                f"batch-{micro}x{steps}", f"Micro-batch {micro}, accumulated {steps} times",
                (change(batch, micro), change(accumulation, steps)), (batch, accumulation),
                "preserved", "micro_batch_ladder", ("EV-1", "EV-6"),
                f"{share} The effective batch stays {size * before}.", (SAME_UPDATE_CAUTION,),
                tier=1 + 2 * rung,
            )
        )  # fmt: skip
    return made, []
