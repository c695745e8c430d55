"""What a capsule holds of the time up to a failure, as curves: device memory step by step, metrics, host memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.forensics.capsule import Capsule
from watcherml.report.curves import Curve, curves, sample_curves
from watcherml.report.units import format_bytes

_AFTER_STEP = "device memory after each step"


def memory_before(capsule: Capsule) -> list[Curve]:
    """Return the device's allocated bytes after each optimizer step, and the samples of memory, oldest first."""
    facts = capsule.memory
    limit = facts.capacity_bytes if facts.allowed_bytes is None else facts.allowed_bytes
    measured = _mapping(_mapping(_data(capsule, "EV-2")).get("device_memory"))
    steps, sizes = measured.get("steps"), measured.get("allocated_after_step_bytes")
    found = []
    if isinstance(steps, (list, tuple)) and isinstance(sizes, (list, tuple)) and len(steps) == len(sizes) > 0:
        points = tuple((float(step), float(size)) for step, size in zip(steps, sizes, strict=True))
        near = limit is not None and 4 * max(size for _, size in points) >= limit
        found.append(Curve(_AFTER_STEP, "step", points, format_bytes, limit if near else None))
    return [*found, *sample_curves(_rows(capsule, "EV-4"), limit)]


def metrics_before(capsule: Capsule) -> list[Curve]:
    """Return the last points of each metric that the capsule holds."""
    # A capsule holds what is not finite as a word.
    rows = [one for one in _rows(capsule, "EV-10") if one.get("value") is not None]
    return curves([{**one, "value": float(one["value"])} for one in rows])


def _rows(capsule: Capsule, piece_id: str) -> list[Mapping[str, Any]]:
    data = _data(capsule, piece_id)
    return [one for one in data if isinstance(one, Mapping) and "at" in one] if isinstance(data, (list, tuple)) else []


def _data(capsule: Capsule, piece_id: str) -> Any:
    return next((piece.data for piece in capsule.evidence if piece.id == piece_id), None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
