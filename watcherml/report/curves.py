"""Metric points and resource samples as curves over step or time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watcherml.report.safe import one_line
from watcherml.report.units import format_bytes, format_number, format_seconds

_SAMPLES = (
    ("device_reserved_bytes", "device memory, reserved"),
    ("device_allocated_bytes", "device memory, allocated"),
    ("rss_bytes", "host memory of the process"),
)


@dataclass(frozen=True)
class Curve:
    """One series over ``axis`` (``step``, or ``time`` in seconds since its start); ``level`` is a limit in its unit."""

    name: str
    axis: str
    points: tuple[tuple[float, float | None], ...]
    words: Callable[[float | None], str]
    level: float | None = None

    @property
    def last(self) -> float | None:
        """The value logged last, finite or not."""
        return next((y for _, y in reversed(self.points) if y is not None), None)

    @property
    def low(self) -> float | None:
        """The smallest finite value."""
        return min(self._finite(), default=None)

    @property
    def high(self) -> float | None:
        """The largest finite value."""
        return max(self._finite(), default=None)

    @property
    def unusual(self) -> int:
        """How many values are NaN or infinite."""
        return sum(y is not None and not math.isfinite(y) for _, y in self.points)

    def x_words(self, x: float) -> str:
        """Return a place on the axis in words."""
        return format_seconds(x) if self.axis == "time" else f"step {x:,.0f}"

    def _finite(self) -> list[float]:
        return [y for _, y in self.points if y is not None and math.isfinite(y)]


def curves(metrics: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return one curve a metric, in the order of first appearance; over time where a point has no step."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for point in metrics:
        grouped.setdefault(str(point.get("name")), []).append(point)
    found = []
    for name, points in grouped.items():
        by_step = all(point.get("step") is not None for point in points)
        start = min((point.get("at") or 0.0 for point in points), default=0.0)
        placed = tuple(
            (float(point["step"]) if by_step else float(point.get("at") or 0.0) - start, point.get("value"))
            for point in points
        )
        found.append(Curve(one_line(name), "step" if by_step else "time", placed, _number))
    return found


def sample_curves(samples: Sequence[Mapping[str, Any]], budget_bytes: int | None) -> list[Curve]:
    """Return memory over time in bytes; the budget is drawn where the curve comes anywhere near it."""
    start = min((sample["at"] for sample in samples), default=0.0)
    found = []
    for key, name in _SAMPLES:
        points = tuple(
            (float(sample["at"] - start), float(sample[key])) for sample in samples if sample.get(key) is not None
        )
        if not points:
            continue
        near = budget_bytes is not None and key != "rss_bytes" and 4 * max(y for _, y in points) >= budget_bytes
        found.append(Curve(name, "time", points, format_bytes, budget_bytes if near else None))
    return found


def _number(value: float | None) -> str:
    return format_number(value, "–")
