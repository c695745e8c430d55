"""Facts about the machine and this process, without names of hosts or users."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import psutil

from watcherml.recorder import ranks
from watcherml.recorder.nvml import Nvml


def collect() -> dict[str, Any]:
    """Return processor, memory (bytes), system, process and GPU facts; GPUs are those that this process may use."""
    memory = psutil.virtual_memory()
    nvml = Nvml()
    gpus = nvml.facts()
    nvml.close()
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": memory.total,
        "python": platform.python_version(),
        "in_notebook_kernel": "ipykernel" in sys.modules,
        "nvml": gpus,
    }


def process_state() -> dict[str, Any]:
    """Return what this process uses now: resident memory (bytes), threads; and its place in a job of several."""
    process = psutil.Process()
    with process.oneshot():
        facts: dict[str, Any] = {
            "pid": process.pid,
            "rss_bytes": process.memory_info().rss,
            "threads": process.num_threads(),
            "host_available_bytes": psutil.virtual_memory().available,
        }
    place = ranks.here()
    if place is not None:
        facts.update(place.to_data())
    return facts


def argv() -> list[str]:
    """Return the command line of this process."""
    return [str(word) for word in getattr(sys, "argv", ())]
