"""Which smaller batch is the same update, and which is another one."""

from __future__ import annotations

# Said beside every proposal that keeps the effective batch: what the arithmetic cannot see.
SAME_UPDATE_CAUTION = (
    "The same update if the loss is a mean over equal micro-batches; not with BatchNorm or in-batch negatives."
)


def divisors_down(batch: int) -> list[int]:
    """Return a ladder of exact divisors below ``batch``: each the largest that is at most half of the last.

    64 gives 32, 16, 8, 4, 2, 1; 96 gives 48, 24, 12, 6, 3, 1; a prime gives 1.
    """
    rungs: list[int] = []
    current = batch
    while current > 1:
        current = next(size for size in range(current // 2, 0, -1) if batch % size == 0)
        rungs.append(current)
    return rungs


def accumulation_for(batch: int, accumulation: int, micro_batch: int) -> int:
    """Return the accumulation steps that keep ``batch * accumulation`` samples behind one optimizer step.

    ``micro_batch`` must divide ``batch`` exactly; anything else is not the same update and raises ValueError.
    """
    if batch % micro_batch:
        raise ValueError(f"{micro_batch} does not divide {batch}")
    return accumulation * (batch // micro_batch)
