"""The peak of a trial's process on its device, how much it left, and what that cost the allocator. Bytes.

On CUDA the peak is torch's own; what the process holds beside torch (context, libraries) is NVML's figure of it when
training is over, less what torch reserves then. Memory of libraries that was given back before is not in it.
"""

from __future__ import annotations

from typing import Any

from watcherml.protocol.result import Peak
from watcherml.recorder import framework
from watcherml.recorder.device_memory import MemoryLog
from watcherml.recorder.nvml import Nvml
from watcherml.simulated import active


def reset_peaks() -> None:
    """Start counting torch's peaks from here, on every CUDA device of this process."""
    cuda = framework.cuda_in_use()
    if cuda is not None:
        for index in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(index)


def peak_of(kind: str, memory: MemoryLog | None = None) -> Peak | None:
    """Return the peak of this process on the device kind, None where nothing measures it.

    Of several CUDA devices it is that of the largest peak, other memory included. ``memory`` is the log of the run
    that counted the allocator's retries.
    """
    if kind == "simulated":
        return _simulated()
    cuda = framework.cuda_in_use()
    if kind != "cuda" or cuda is None:
        return None
    own = _own_bytes()
    found = [_of_device(cuda, index, own.get(index), memory) for index in framework.cuda_indices()]
    return max((one for one in found if one is not None), key=lambda one: one.compared_bytes or 0, default=None)


def _simulated() -> Peak | None:
    device = active.last()
    if device is None:
        return None
    peak, budget = int(device.peak_bytes), device.budget_bytes
    left = None if budget is None else max(0, budget - peak)
    return Peak("simulated", "tracker of the simulated device", peak, None, limit_bytes=budget, headroom_bytes=left)


def _of_device(cuda: Any, index: int, own: int | None, memory: MemoryLog | None) -> Peak | None:
    try:
        reserved, allocated = int(cuda.max_memory_reserved(index)), int(cuda.max_memory_allocated(index))
        now = int(cuda.memory_reserved(index))
    except Exception:  # noqa: BLE001 - a device that was lost has no peak, which is missing and not 0
        return None
    other = None if own is None else max(0, own - now)
    # Asking the driver for free memory makes a context; a device that torch never used must not get one.
    limit, left = _room(cuda, index, reserved, now) if reserved else (None, None)
    key = f"cuda:{index}"
    return Peak(
        "cuda",
        f"torch allocator{'' if other is None else ', NVML at the end'}, largest device",
        allocated,
        reserved,
        other,
        limit_bytes=limit,
        headroom_bytes=left,
        retries=None if memory is None else _not_below_zero(memory.retries_since_start(key)),
        retrying_steps=None if memory is None else memory.retrying_steps(key),
    )


def _room(cuda: Any, index: int, reserved: int, now: int) -> tuple[int | None, int | None]:
    """Return the device's size, or the cap below it, and what the peak left of it beside all that is not torch's."""
    try:
        free, total = (int(one) for one in cuda.mem_get_info(index))
    except Exception:  # noqa: BLE001 - see above
        return None, None
    outside = max(0, total - free - now)
    left = total - outside - reserved
    fraction = _fraction(cuda, index)
    if fraction is None:
        return total, max(0, left)
    cap = int(fraction * total)
    return cap, max(0, min(left, cap - reserved))


def _fraction(cuda: Any, index: int) -> float | None:
    try:
        fraction = float(cuda.get_per_process_memory_fraction(index))  # not in every build
    except Exception:  # noqa: BLE001 - see above
        return None
    return fraction if 0 < fraction < 1 else None


def _own_bytes() -> dict[int, int]:
    """Return what NVML says this process holds, by CUDA index; a device of which it does not say so is left out."""
    nvml = Nvml()
    try:
        return {row["gpu_index"]: row["own_bytes"] for row in nvml.readings() if row["own_bytes"] is not None}
    except Exception:  # noqa: BLE001 - a driver in trouble is a missing reading
        return {}
    finally:
        nvml.close()


def _not_below_zero(count: int | None) -> int | None:
    return None if count is None else max(0, count)
