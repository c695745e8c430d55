"""How many probes run at once, and which GPU each of them sees.

On CUDA every lane is one GPU of the source's model, so that a probe has a device to itself; full trials, confirmations
and controls see what the supervisor sees and run alone. On the simulated device, and where only the failure's text is
known, memory belongs to each process, so lanes are bounded by the processors alone: what a probe measures there does
not depend on how fast it runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import TrialResult
from watcherml.recorder.nvml import Nvml


@dataclass(frozen=True)
class Lanes:
    """One entry a lane: the GPU that its probes see (as in ``CUDA_VISIBLE_DEVICES``), None for no restriction.

    ``reason`` says why there are fewer than the contract asks for; empty if there are not.
    """

    gpus: tuple[str | None, ...] = (None,)
    reason: str = ""


def lanes_here(plan: RecoveryPlan) -> Lanes:
    """Return the lanes of a plan on this machine; one where the contract asks for no more. Never raises."""
    if plan.contract.budget.parallel_probes == 1:
        return Lanes()
    if plan.contract.device.kind != "cuda":
        return choose(plan, [], processors())
    nvml = Nvml()
    try:
        facts = nvml.facts()
    finally:
        nvml.close()
    return choose(plan, facts.get("gpus") or [], processors(), str(facts.get("reason") or ""))


def gpus_here(plan: RecoveryPlan) -> int:
    """Return how many GPUs a trial sees that is held to none of them: 1 where it has none, or none can be counted."""
    if plan.contract.device.kind != "cuda":
        return 1
    nvml = Nvml()
    try:
        return max(1, len(nvml.facts().get("gpus") or []))
    finally:
        nvml.close()


def charged(result: TrialResult, gpus: int) -> TrialResult:
    """Return a result with the GPU seconds of one that left no report, and so did not say how many GPUs it saw."""
    if result.execution_id is not None:
        return result
    return result.replace(gpu_seconds=round(result.wall_seconds * gpus, 3))


def choose(plan: RecoveryPlan, gpus: list[dict[str, Any]], processors: int, unknown: str = "") -> Lanes:
    """Return the lanes among ``gpus`` (rows with uuid and name); ``unknown`` says why none could be listed."""
    asked, device = plan.contract.budget.parallel_probes, plan.contract.device
    if asked == 1:
        return Lanes()
    if device.kind != "cuda":
        count = max(1, min(asked, processors))
        return Lanes((None,) * count, "" if count == asked else f"{asked} were asked for; {processors} processors.")
    # A probe on another model of GPU would be refused for it, and its candidate with it.
    fitting = [str(one["uuid"]) for one in gpus if one["name"] == device.name]
    if len(fitting) < 2:
        seen = unknown or f"{len(fitting)} of {len(gpus)} visible GPUs is the source's ({device.name or 'unknown'})."
        return Lanes(reason=f"Probes run one after another: {seen}")
    few = "" if len(fitting) >= asked else f"{asked} were asked for; {len(fitting)} GPUs are like the source's."
    return Lanes(tuple(fitting[:asked]), few)


def processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
