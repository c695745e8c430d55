"""What a failure has to do with others: sibling ranks on its device, children that died, the same run without a switch.

Each answer is None, or empty, where it is not known. Sizes are bytes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import psutil

from watcherml.forensics.sizes import stated_checkpointing, without_checkpointing
from watcherml.recorder import host_memory
from watcherml.recorder.nvml import Nvml
from watcherml.recorder.run import Run
from watcherml.sealed.device import DeviceKind
from watcherml.store import related

# Ranks that fail for one reason fail within moments; one that fails alone is alone after this long.
OTHERS_FAIL_WITHIN_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 0.05
_MOST_RUNS = 40
# Sources of a peak that no reading between two samples can have missed.
_EXACT = ("simulated device", "torch, reserved")


def sibling_bytes(index: int) -> int | None:
    """Return what the other ranks of this job hold on a CUDA device of this process, None where nobody tells.

    Ranks are the processes that started with this one: children of its parent, or its own. The driver's process ids
    must be ours, as they are outside containers, which shows in its naming this process.
    """
    nvml = Nvml()
    try:
        held = nvml.processes(index)
    finally:
        nvml.close()
    if held is None or os.getpid() not in held:
        return None
    own = psutil.Process()
    parent = own.parent()
    family = {one.pid for one in [*own.children(), *(parent.children() if parent is not None else ())]} - {own.pid}
    found = [size for pid, size in held.items() if pid in family]
    return None if None in found else sum(size or 0 for size in found)


def ranks_failed(run: Run, world_size: int, seconds: float = OTHERS_FAIL_WITHIN_SECONDS) -> int:
    """Return how many ranks of the job have failed by now, this one included; waits a moment for the others.

    Other ranks note their failures in the run of rank 0.
    """
    deadline = time.monotonic() + seconds
    while True:
        facts = run.storage.runs.get(run.run_id)["facts"]
        others = min(sum(str(name).startswith("rank ") for name in facts), world_size - 1)
        if others == world_size - 1 or time.monotonic() >= deadline:
            return others + 1
        time.sleep(_LOOK_EVERY_SECONDS)


def exit_signal(errors: Iterable[BaseException]) -> str:
    """Return the signal that ended a child of this process, as ``SIGKILL``; empty for none.

    A data loader's own words about its worker come first; then what multiprocessing knows of its processes.
    """
    for error in errors:
        killed = host_memory.killed_child(_text(error))
        if killed is not None:
            return _named(killed["signal"])
    # Only what is loaded anyway; its own poll is what a program would do to look at its children.
    processes = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    for process in list(processes):
        code = getattr(process, "exitcode", None)
        if isinstance(code, int) and code < 0:
            try:
                return signal.Signals(-code).name
            except ValueError:
                continue
    return ""


def _named(words: str) -> str:
    """Return ``SIGKILL`` for the system's words for it, "Killed"."""
    wanted = words.strip().lower()
    for one in signal.Signals:
        said = (signal.strsignal(one) or "").lower()
        if said and (wanted == said or wanted.startswith(f"{said} ")):
            return one.name
    return ""


def _text(error: BaseException) -> str:
    try:
        return str(error)[:10_000]
    except BaseException:  # noqa: BLE001 - the user's own __str__, which may even want to exit
        return ""


def peak_without_checkpointing(run: Run, kind: DeviceKind | str, at: float) -> int | None:
    """Return the peak of the newest earlier run that had this configuration with checkpointing off and ended well.

    Only a peak that was counted is one; the largest of some samples may be less than it was.
    """
    if stated_checkpointing(run.config) is not True:
        return None
    wanted = without_checkpointing(run.config)
    for row in related.successes(run.storage.database, run.run_id, run.project, at, _MOST_RUNS):
        config = row["config"]
        same = isinstance(config, Mapping) and without_checkpointing(config) == wanted
        if same and stated_checkpointing(config) is False and (row["device"] or {}).get("kind") == kind:
            peak = _peak(run.storage.runs.get(row["run_id"]).get("receipt"))
            if peak is not None:
                return peak
    return None


def _peak(receipt: Any) -> int | None:
    if not isinstance(receipt, Mapping) or receipt.get("peak_source") not in _EXACT:
        return None
    size = receipt.get("peak_device_bytes")
    return size if isinstance(size, int) else None
