"""How many bytes were missing: ``S = requested - free``, or against a cap below the device's total.

Sizes read from a message are rounded to two decimals of their unit, so S is an interval; a decision holds only if
it holds on the whole interval.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shortfall:
    """Missing bytes as an interval; both ends equal where the figures are exact."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        """The best single figure, in bytes."""
        return (self.low + self.high) // 2


def shortfall(
    requested: int | None,
    free: int | None,
    *,
    allowed: int | None = None,
    reserved: int | None = None,
    rounding: int = 0,
) -> Shortfall | None:
    """Return what was missing, in bytes; None if neither the free bytes nor the room below a cap are known.

    ``allowed`` is a cap on reserved bytes, ``rounding`` the summed half-widths of the rounded figures.
    """
    if requested is None:
        return None
    rooms = []
    if free is not None:
        rooms.append(free)
    if allowed is not None and reserved is not None:
        rooms.append(allowed - reserved)
    if not rooms:
        return None
    missing = requested - min(rooms)
    return Shortfall(missing - rounding, missing + rounding)
