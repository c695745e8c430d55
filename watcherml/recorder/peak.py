"""Which device a run used, and the largest memory it held there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watcherml.recorder import framework
from watcherml.sealed.device import Device
from watcherml.simulated import active

if TYPE_CHECKING:
    from watcherml.simulated.device import SimulatedDevice


class DeviceWatch:
    """Made when a run starts. Counters of the process are the run's own only if they rose while it went on."""

    def __init__(self) -> None:
        self._peaks = framework.peaks()
        self._simulated: object = active.last()
        self._simulated_peak = _peak_of(self._simulated)
        self._known: Device | None = None

    def device(self) -> Device | None:
        """Return the device that is or was used since the start, None while there is none."""
        if self._known is None:
            found = framework.device_here()
            used = active.last()
            if used is not None and used is not self._simulated and used.budget_bytes is not None:
                found = Device("simulated", used.device_id, used.budget_bytes)
            self._known = None if found.kind == "none" else found
        return self._known

    def news(self) -> Device | None:
        """Return the device once, when it is first seen after ``device`` had none; None otherwise."""
        return None if self._known is not None else self.device()

    def held(self) -> int | None:
        """Return what is on the simulated device now, in bytes, also after its context; None if the run used none."""
        used = self._used()
        return None if used is None else int(used.current_bytes)

    def _used(self) -> SimulatedDevice | None:
        """Return the simulated device that was filled since the start, None while there is none."""
        used = active.last()
        peak = _peak_of(used)
        return used if peak is not None and (used is not self._simulated or peak != self._simulated_peak) else None

    def peak(self, sampled: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return ``bytes`` and ``source``; None where nothing was measured.

        ``sampled`` holds the largest readings of the sampler: ``device_bytes`` and ``own_bytes`` (NVML). A peak
        between two samples is missed, so that such a figure is a lower bound, and its source says so.
        """
        used = self._used()
        if used is not None:
            return {"bytes": int(used.peak_bytes), "source": "simulated device"}
        risen = [peak for name, peak in framework.peaks().items() if peak > self._peaks.get(name, 0)]
        held, own = sampled.get("device_bytes"), sampled.get("own_bytes")
        if risen:
            return {"bytes": max(*risen, held or 0), "source": "torch, reserved"}
        if held is not None:
            return {"bytes": int(held), "source": "samples, at least"}
        return None if own is None else {"bytes": int(own), "source": "NVML samples, at least"}


def _peak_of(device: object) -> int | None:
    peak = getattr(device, "peak_bytes", None)
    return peak if isinstance(peak, int) else None
