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


def device_sample() -> dict[str, Any]:
    """Return device kind, allocated and reserved bytes now, for the sampler."""
    simulated = active.current()
    if simulated is not None:
        return {
            "device_kind": "simulated",
            "device_allocated_bytes": int(simulated.current_bytes),
            "device_reserved_bytes": None,
        }
    cuda = cuda_in_use()
    if cuda is not None:
        return {
            "device_kind": "cuda",
            "device_allocated_bytes": int(cuda.memory_allocated()),
            "device_reserved_bytes": int(cuda.memory_reserved()),
        }
    return {"device_kind": "none", "device_allocated_bytes": None, "device_reserved_bytes": None}
