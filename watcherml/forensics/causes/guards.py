"""C2, C25, C26: requests and readings that no change of the configuration explains."""

from __future__ import annotations

from watcherml.forensics.capsule import Cause
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.text import amount


def sufficient(vector: Vector) -> list[Cause]:
    """Return the guard that applies, if one does."""
    if _above(vector.allocated, vector.capacity):
        return [
            _cause("C25", "driver oversubscription", vector.allocated,
                   f"torch holds {amount(vector.allocated)}, more than the device's {amount(vector.capacity)}:"
                   " the driver is lending system memory.")
        ]  # fmt: skip
    if vector.missing is not None and vector.missing.high <= 0:
        return [
            _cause("C26", "anomaly", vector.missing.middle,
                   "More was free than was asked for, so size alone does not explain the failure.")
        ]  # fmt: skip
    if _above(vector.requested, vector.capacity):
        return [
            _cause("C2", "request larger than the device", vector.requested,
                   f"One request of {amount(vector.requested)} exceeds the whole device"
                   f" ({amount(vector.capacity)}): look at the shapes in that line.")
        ]  # fmt: skip
    return []


def _above(value: int | None, limit: int | None) -> bool:
    return value is not None and limit is not None and value > limit


def _cause(cause_id: str, name: str, size: int | None, sentence: str) -> Cause:
    return Cause(cause_id, name, size, ("EV-6",), sentence)
