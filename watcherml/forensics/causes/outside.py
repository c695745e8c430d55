"""C4/C6: memory that is not torch's. Without a split by process the two cannot be told apart."""

from __future__ import annotations

from watcherml.forensics.capsule import Cause
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.text import amount

# A CUDA context with its libraries takes 0.3-0.8 GiB; only what lies above counts (reasoned, not measured here).
CONTEXT_BYTES = 800 * 2**20
CONTRIBUTES = 0.25


def place(vector: Vector) -> tuple[list[Cause], list[Cause]]:
    """Return (unknown, excluded) entries for memory outside torch."""
    outside = vector.outside
    names = "memory of other processes, or of this one outside torch"
    if outside is None or vector.missing is None:
        sentence = "The message does not say how much memory lies outside torch."
        return [Cause("C4", names, None, ("EV-5",), sentence)], []
    above = max(0, outside - (0 if vector.device_kind == "simulated" else CONTEXT_BYTES))
    if above < CONTRIBUTES * max(vector.missing.low, 1):
        return [], [Cause("C4", names, outside, ("EV-5",), f"Only {amount(outside)} lie outside torch.")]
    sentence = f"{amount(outside)} lie outside torch; which process holds them was not measured."
    return [Cause("C4", names, outside, ("EV-5",), sentence)], []
