"""Is as much device memory free for a trial as the failed run had?

The failed run could use what it held and what was free beside it. A trial that finds less, because another process
came or because the failed process still holds its memory, may run out of memory for a reason that no configuration
has. That is said before the trial starts; the trial still runs, and its own failure says what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from watcherml.forensics.capsule import Capsule, MemoryFacts
from watcherml.forensics.oom_message import parse
from watcherml.platform import ProcessId
from watcherml.recorder.nvml import Nvml

# What a CUDA context takes where the failure does not tell it: drivers and modules loaded make 300 to 600 MB of it.
CONTEXT_BYTES = 512 * 2**20
_MOST_PROCESSES = 16


@dataclass(frozen=True)
class Holder:
    """A process on the device: its bytes as NVML reports them (None where it does not), and whose it is."""

    pid: int
    held_bytes: int | None
    name: str = ""
    is_source: bool = False


@dataclass(frozen=True)
class State:
    """A GPU before a trial."""

    uuid: str
    free_bytes: int | None
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Look:
    """What the comparison showed. ``missing_bytes`` is 0 where enough is free, None (with a reason) if not compared."""

    missing_bytes: int | None
    reason: str = ""
    free_bytes: int | None = None
    source_bytes: int | None = None
    holders: tuple[Holder, ...] = ()

    def to_event(self) -> dict[str, Any]:
        """Return the body of a campaign's event, with its sentence."""
        return {
            "missing_bytes": self.missing_bytes,
            "free_bytes": self.free_bytes,
            "source_bytes": self.source_bytes,
            "processes": [vars(one) for one in self.holders],
            "sentence": self.sentence,
        }

    @property
    def sentence(self) -> str:
        """What is missing and who holds it, for a person; empty if nothing is missing."""
        if not self.missing_bytes:
            return ""
        held = "; ".join(map(_words, self.holders)) or "which process holds it is not known"
        mine = [one.pid for one in self.holders if one.is_source]
        offer = (
            f" Process {mine[0]} is the one in which the run failed: `%watcher free` there, or its end, gives the"
            " memory back."
            if mine
            else ""
        )
        return (
            f"{_mib(self.free_bytes)} of device memory are free, {_mib(self.missing_bytes)} less than the failed run"
            f" could use: {held}.{offer}"
        )


def compare(capsule: Capsule, states: Sequence[State], gpu: str | None = None, unknown: str = "") -> Look:
    """Compare a GPU's free bytes with what the failed run could use; ``gpu`` is the UUID of a trial's only GPU.

    Without one the GPU is that of the failure's text, counted as CUDA counts here, else the first. A difference of less
    than a context is none: contexts come and go with processes.
    """
    if capsule.device.kind != "cuda":
        whose = "belongs to each process alone" if capsule.device.kind == "simulated" else "is not known"
        return Look(None, f"Device memory is not compared: that of {capsule.device.words} {whose}.")
    available = usable_bytes(capsule.memory)
    if available is None:
        return Look(None, "Device memory is not compared: the failure does not say how much was free.")
    index = parse(capsule.failure.message).gpu_index or 0
    chosen = [one for one in states if one.uuid == gpu] if gpu else list(states[index : index + 1])
    if not chosen or chosen[0].free_bytes is None:
        return Look(None, f"Device memory is not compared: {unknown or 'its GPU could not be read'}.")
    state = chosen[0]
    missing = available - (state.free_bytes or 0)
    enough = missing <= context_bytes(capsule.memory)
    return Look(0 if enough else missing, "", state.free_bytes, available, state.holders)


def usable_bytes(memory: MemoryFacts) -> int | None:
    """Return what the failed process held and what was free beside it, in bytes; None where that was not stated."""
    held = memory.process_in_use_bytes if memory.process_in_use_bytes is not None else memory.reserved_bytes
    return None if memory.free_bytes is None or held is None else memory.free_bytes + held


def context_bytes(memory: MemoryFacts) -> int:
    """Return the bytes of the failed process that were not torch's, its context; a usual size if not known."""
    whole, torch = memory.process_in_use_bytes, memory.reserved_bytes
    return CONTEXT_BYTES if whole is None or torch is None or whole <= torch else whole - torch


class Gpus(Nvml):
    """The GPUs that the supervisor sees, with the processes on them."""

    def states(self, source: ProcessId | None = None) -> list[State]:
        """Return each GPU's free bytes and processes; ``source`` is the process of the failed run."""
        found = []
        for gpu in self._visible():
            used, total = self._memory(gpu.handle)
            free = None if used is None or total is None else max(0, total - used)
            running = self._ask("nvmlDeviceGetComputeRunningProcesses", gpu.handle) or ()
            holders = [_holder(int(one.pid), getattr(one, "usedGpuMemory", None), source) for one in running]
            holders.sort(key=lambda one: -(one.held_bytes or 0))
            found.append(State(gpu.uuid, free, tuple(holders[:_MOST_PROCESSES])))
        return found


def look(capsule: Capsule, gpu: str | None = None, source: ProcessId | None = None) -> Look:
    """Compare what is free now with what the failed run could use; asks NVML on CUDA only."""
    if capsule.device.kind != "cuda":
        return compare(capsule, ())
    gpus = Gpus()
    try:
        return compare(capsule, gpus.states(source), gpu, gpus.reason)
    finally:
        gpus.close()


def _holder(pid: int, held: Any, source: ProcessId | None) -> Holder:
    try:
        name = psutil.Process(pid).name()
    except psutil.Error:
        name = ""  # another namespace's number, or gone
    known = held if isinstance(held, int) and 0 <= held < 2**63 else None
    return Holder(pid, known, name, bool(name) and source is not None and pid == source.pid)


def _words(one: Holder) -> str:
    name = f" ({one.name})" if one.name else ""
    return f"process {one.pid}{name} holds {_mib(one.held_bytes)}"


def _mib(count: int | None) -> str:
    return "an unknown size" if count is None else f"{count / 2**20:,.0f} MiB"
