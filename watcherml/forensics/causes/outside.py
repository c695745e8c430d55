"""C4, C6: memory that is not torch's. Without a split by process the two cannot be told apart."""

from __future__ import annotations

from watcherml.forensics.causes.thresholds import (
    CONTEXT_BYTES,
    FOREIGN_LEAST_BYTES,
    MATERIAL,
    OWN_OTHER_BYTES,
    OWN_OTHER_GROWTH_BYTES,
)
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, excluded, pool, unknown, weigh
from watcherml.forensics.text import amount

_SPLIT = "how it splits between this process and others (NVML)"


def findings(vector: Vector) -> list[Finding]:
    """Return what is known of other processes and of this process outside torch."""
    if vector.device_kind == "simulated":
        return [excluded(one, "Nothing else lives on a simulated device.", 0) for one in ("C4", "C6")]
    return [_foreign(vector), _own(vector)]


def above_context(vector: Vector, size: int) -> int:
    """Return what lies above the memory that a context takes anyway."""
    base = CONTEXT_BYTES if vector.context_base is None else vector.context_base
    return max(0, size - base)


def _foreign(vector: Vector) -> Finding:
    if vector.foreign is None:
        return _unsplit(vector, "C4")
    least = max(FOREIGN_LEAST_BYTES, int(MATERIAL * (vector.capacity or 0)))
    return pool(
        vector, "C4", vector.foreign, holds=vector.foreign >= least, lacking="other processes' memory (NVML)",
        against=f"a device that is shared has {amount(least)} or more in other hands", otherwise="contributing",
    )  # fmt: skip


def _own(vector: Vector) -> Finding:
    own = vector.own_other
    if own is None:
        return _unsplit(vector, "C6")
    grown = None if vector.own_other_at_start is None else own - vector.own_other_at_start
    large = own > OWN_OTHER_BYTES or (grown is not None and grown >= OWN_OTHER_GROWTH_BYTES)
    others = f" ({', '.join(vector.other_frameworks)[:200]} loaded)" if vector.other_frameworks else ""
    size = above_context(vector, own)
    return pool(
        vector, "C6", size, holds=large, lacking="this process's memory on the device (NVML)",
        against="that is what contexts and libraries take, and it did not grow", otherwise="contributing",
        held=f"this process held {amount(size)} outside torch, above a bare context{others}",
    )  # fmt: skip


def _unsplit(vector: Vector, cause_id: str) -> Finding:
    outside = vector.outside
    if outside is None:
        return unknown(cause_id, "Not measured: how much memory lies outside torch.")
    if outside < 0:
        return unknown(cause_id, "The figures add up to more than the device; nothing can be said of the rest.")
    # What one of the two is known to hold is not the other's.
    outside = max(0, outside - ((vector.own_other if cause_id == "C4" else vector.foreign) or 0))
    size = above_context(vector, outside) if vector.own_other is None else max(0, outside)
    if weigh(vector, size) == "small":
        return excluded(cause_id, f"Only {amount(outside)} lie outside torch, its context included.", outside)
    held = f"{amount(outside)} lie outside torch"
    if weigh(vector, size) == "enough":
        return pool(vector, cause_id, size, holds=None, lacking=_SPLIT, held=held)
    return unknown(cause_id, f"{held}; not measured: {_SPLIT}.", outside)
