"""What torch knows, looked at only if this process has it, and never waking CUDA up."""

from __future__ import annotations

import os
import sys
from typing import Any

from watcherml.sealed.device import Device
from watcherml.simulated import active

_MEMORY_KEYS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "active_bytes.all.current",
    "inactive_split_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
)


def cuda_in_use() -> Any:
    """Return ``torch.cuda`` if torch is loaded and has a CUDA context in this process, else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        return cuda if cuda is not None and cuda.is_initialized() else None
    except Exception:  # noqa: BLE001 - a half-imported torch must not break recording
        return None


def device_here() -> Device:
    """Return the device that training in this process uses now: simulated, CUDA, or none."""
    simulated = active.current()
    if simulated is not None and simulated.budget_bytes is not None:
        return Device("simulated", simulated.device_id, simulated.budget_bytes)
    cuda = cuda_in_use()
    if cuda is not None:
        properties = cuda.get_device_properties(cuda.current_device())
        return Device("cuda", str(properties.name), int(properties.total_memory))
    return Device("none")


def collect() -> dict[str, Any]:
    """Return torch's version, build, allocator settings and, on CUDA, its memory counters (bytes)."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    facts: dict[str, Any] = {
        "name": "torch",
        "version": str(getattr(torch, "__version__", "unknown")),
        "cuda_build": str(getattr(getattr(torch, "version", None), "cuda", None)),
        "cuda_initialized": cuda_in_use() is not None,
        "allocator_settings": {
            name: os.environ[name] for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if name in os.environ
        },
    }
    cuda = cuda_in_use()
    if cuda is not None:
        # Decides which half precision the device computes natively.
        facts["compute_capability"] = list(cuda.get_device_capability())
    try:
        facts["threads"] = int(torch.get_num_threads())
    except Exception:  # noqa: BLE001 - a half-imported torch has no such function yet
        facts["threads"] = None
    return facts


def gpus() -> list[dict[str, Any]]:
    """Return the CUDA devices of this process with memory counters in bytes; empty without a CUDA context."""
    cuda = cuda_in_use()
    if cuda is None:
        return []
    found = []
    for index in range(cuda.device_count()):
        properties = cuda.get_device_properties(index)
        stats = cuda.memory_stats(index)
        found.append(
            {
                "index": index,
                "name": str(properties.name),
                "uuid": str(getattr(properties, "uuid", "")),
                "total_bytes": int(properties.total_memory),
                "memory": {key: int(stats[key]) for key in _MEMORY_KEYS if key in stats},
            }
        )
    return found


def cuda_uuids() -> list[str]:
    """Return the UUIDs (``GPU-...``) of this process' CUDA devices in CUDA's order; empty without a CUDA context."""
    cuda = cuda_in_use()
    try:
        count = 0 if cuda is None else int(cuda.device_count())
        found = [str(getattr(cuda.get_device_properties(index), "uuid", "")) for index in range(count)]
    except Exception:  # noqa: BLE001 - a device that has just been lost
        return []
    if not all(found):  # torch before 2.4 does not tell
        return []
    return [one if one.startswith("GPU-") else f"GPU-{one}" for one in found]


def reserved_bytes(index: int) -> int:
    """Return what torch's allocator holds on a CUDA device; 0 without a CUDA context in this process."""
    cuda = cuda_in_use()
    try:
        return 0 if cuda is None else int(cuda.memory_reserved(index))
    except Exception:  # noqa: BLE001 - an index that torch does not know
        return 0


def peaks() -> dict[str, int]:
    """Return the largest reserved bytes by CUDA device, since this process began or somebody reset the counter."""
    cuda = cuda_in_use()
    try:
        count = 0 if cuda is None else int(cuda.device_count())
        return {f"cuda:{index}": int(cuda.max_memory_reserved(index)) for index in range(count)}
    except Exception:  # noqa: BLE001 - see above
        return {}


def cuda_indices() -> range:
    """Return the indices of this process' CUDA devices; empty without a CUDA context."""
    cuda = cuda_in_use()
    try:
        return range(0 if cuda is None else int(cuda.device_count()))
    except Exception:  # noqa: BLE001 - see above
        return range(0)


def allocated(index: int) -> tuple[int, int] | None:
    """Return the bytes that torch has allocated on a CUDA device now and at most; None without a context."""
    cuda = cuda_in_use()
    try:
        # One call instead of two: flattening the counters is what a reading costs.
        stats = None if cuda is None else cuda.memory_stats(index)
    except Exception:  # noqa: BLE001 - see above
        return None
    if not stats:  # another allocator counts nothing
        return None
    return int(stats.get("allocated_bytes.all.current", 0)), int(stats.get("allocated_bytes.all.peak", 0))


def retries() -> dict[str, int]:
    """Return how often the allocator of each CUDA device has emptied its cache and tried again."""
    return _counters("num_alloc_retries")


def retries_of(index: int) -> int | None:
    """Return the same of one CUDA device; None where it is not counted. Cheap enough for every step."""
    cuda = cuda_in_use()
    for name in ("memory_stats_as_nested_dict", "memory_stats"):  # flattening the counters is what a reading costs
        try:
            return int(getattr(cuda, name)(index)["num_alloc_retries"])
        except Exception:  # noqa: BLE001 - no context, a build without the first, an allocator that counts nothing
            continue
    return None


def refusals() -> dict[str, int]:
    """Return how many requests the allocator of each CUDA device has refused, those included that torch caught."""
    return _counters("num_ooms")


def _counters(name: str) -> dict[str, int]:
    cuda = cuda_in_use()
    try:
        stats = {} if cuda is None else {f"cuda:{index}": cuda.memory_stats(index) for index in cuda_indices()}
    except Exception:  # noqa: BLE001 - see above
        return {}
    return {device: int(found[name]) for device, found in stats.items() if name in found}


def device_sample() -> dict[str, Any]:
    """Return device kind, allocated and reserved bytes now; of several CUDA devices, of the one that holds most."""
    simulated = active.current()
    if simulated is not None:
        return _device_row("simulated", int(simulated.current_bytes), None)
    cuda = cuda_in_use()
    if cuda is None:
        return _device_row("none", None, None)
    try:
        # By index: the current device is a thread's own, and the sampler's thread never chose one.
        held = [(int(cuda.memory_reserved(i)), int(cuda.memory_allocated(i))) for i in range(cuda.device_count())]
    except Exception:  # noqa: BLE001 - see above
        held = []
    reserved, allocated = max(held, default=(None, None))
    return _device_row("cuda", allocated, reserved)


def _device_row(kind: str, allocated: int | None, reserved: int | None) -> dict[str, Any]:
    return {"device_kind": kind, "device_allocated_bytes": allocated, "device_reserved_bytes": reserved}
