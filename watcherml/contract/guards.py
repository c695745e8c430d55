"""``MetricGuard``: how far a metric may fall behind its baseline."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

from watcherml.errors import UsageError
from watcherml.sealed.fields import Bound, MetricName
from watcherml.sealed.record import Record

NonNegative = Annotated[float, Bound(0)]


@dataclass(frozen=True, slots=True, eq=False)
class MetricGuard(Record):
    """A metric, the direction that is better, its baseline, and the regression that is still accepted.

    ``target_value`` can only make the boundary stricter. The boundary itself is accepted. All values are in
    the metric's own unit.
    """

    name: MetricName
    direction: Literal["minimize", "maximize"]
    baseline_value: float
    max_regression: NonNegative
    target_value: float | None = None

    @property
    def boundary(self) -> float:
        """The last accepted value: the largest for ``minimize``, the smallest for ``maximize``."""
        if self.direction == "minimize":
            edge = _sum(self.baseline_value, self.max_regression)
            return edge if self.target_value is None else min(edge, self.target_value)
        edge = _sum(self.baseline_value, -self.max_regression)
        return edge if self.target_value is None else max(edge, self.target_value)

    def accepts(self, value: float) -> bool:
        """Tell whether a finite value keeps the boundary (inclusive)."""
        return value <= self.boundary if self.direction == "minimize" else value >= self.boundary

    def wanted(self) -> str:
        """Return the rule in words, for a check or an error."""
        return f"{'at most' if self.direction == 'minimize' else 'at least'} {self.boundary:g}"


def _sum(first: float, second: float) -> float:
    # Added as the decimals that a person wrote: 0.42 + 0.03 is 0.45, and 0.45 is accepted.
    return float(Decimal(repr(first)) + Decimal(repr(second)))


def parse_guard(text: str) -> MetricGuard:
    """Read ``NAME:DIRECTION:BASELINE:MAX_REGRESSION[:TARGET]``; the name itself may hold colons.

    Raises ``UsageError`` naming the part that does not parse.
    """
    shape = "NAME:DIRECTION:BASELINE:MAX_REGRESSION[:TARGET]"
    parts = text.split(":")
    at = [index for index, part in enumerate(parts) if part in ("minimize", "maximize") and index > 0]
    if not at or len(parts) - at[-1] - 1 not in (2, 3):
        raise UsageError(
            "--metric", expected=shape, got=repr(text), remedy="Example: validation_loss:minimize:0.42:0.03"
        )
    numbers: list[float] = []
    for label, part in zip(("BASELINE", "MAX_REGRESSION", "TARGET"), parts[at[-1] + 1 :], strict=False):
        try:
            numbers.append(float(part))
        except ValueError:
            raise UsageError(f"--metric {label}", expected="a number", got=repr(part)) from None
    direction: Literal["minimize", "maximize"] = "minimize" if parts[at[-1]] == "minimize" else "maximize"
    return MetricGuard(":".join(parts[: at[-1]]), direction, *numbers)
