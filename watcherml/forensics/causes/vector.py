"""The evidence vector: plain numbers of one failure, None where nothing measured them."""

from __future__ import annotations

from dataclasses import dataclass

from watcherml.forensics.shortfall import Shortfall


@dataclass(frozen=True)
class Vector:
    """Bytes at the failure. ``capacity`` is the device's total or budget, ``allowed`` a cap below it."""

    device_kind: str
    phase: str
    step: int | None
    requested: int | None
    capacity: int | None
    allowed: int | None
    free: int | None
    allocated: int | None
    reserved: int | None
    missing: Shortfall | None

    @property
    def outside(self) -> int | None:
        """Bytes that are neither free nor torch's: other processes plus this one's context and libraries."""
        if self.device_kind == "simulated":
            return 0  # by construction: nothing else lives on that device
        if self.capacity is None or self.free is None or self.reserved is None:
            return None
        return self.capacity - self.free - self.reserved
