"""Everything that is measured at an out-of-memory failure, once: for the rules as a vector, for people as evidence.

None is what was not measured. Of the user's objects sizes are taken and nothing is kept.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from watcherml.forensics import allocator, others
from watcherml.forensics.capsule import MemoryFacts
from watcherml.forensics.causes.thresholds import CONTRIBUTES, MATERIAL
from watcherml.forensics.causes.vector import AT_WORK, History, Vector
from watcherml.forensics.classify import Classification
from watcherml.forensics.modes import grad_enabled, module_training
from watcherml.forensics.oom_message import OomMessage
from watcherml.forensics.origin import chain, frames_to
from watcherml.forensics.seen import Live, gradient_sizes, had_stepped, led_by, models, static_bytes
from watcherml.forensics.shortfall import shortfall
from watcherml.forensics.sizes import sizes
from watcherml.recorder import ranks
from watcherml.recorder.device_memory import last_readings, simulated_key
from watcherml.recorder.run import Run
from watcherml.sealed.device import Device
from watcherml.simulated import active

T = TypeVar("T")

_OTHER_FRAMEWORKS = ("tensorflow", "jax", "cupy", "paddle", "mxnet", "pycuda", "warp", "cudf")
# Texts of libraries that found no memory for themselves; also said of faults that have nothing to do with it.
_DISGUISED = {"cublas_alloc_failed", "cudnn_alloc_failed", "library_alloc_failed", "nccl_oom", "triton_oom",
              "cuda_error_oom", "driver_oom"}  # fmt: skip
_MOST_FRAMES = 200
_MOST_BATCHES = 500


@dataclass
class Measured:
    """The vector, and the same facts by the piece of evidence that shows them (units in the keys)."""

    vector: Vector
    memory: MemoryFacts
    training: dict[str, Any] = field(default_factory=dict)  # EV-2
    gpu: dict[str, Any] = field(default_factory=dict)  # EV-5
    framework: dict[str, Any] = field(default_factory=dict)  # EV-6


@dataclass
class _Scene:
    """What the parts of a measurement look at: objects of the user's, used inside one call and let go."""

    run: Run
    error: BaseException
    origin: BaseException
    found: Classification
    stated: OomMessage
    trace: list[tuple[FrameType, int]]
    live: Live
    key: str  # the name of the failing device in the run's memory log
    gpu: dict[str, Any]
    split: dict[str, Any]
    problems: list[str]

    def part(self, name: str, look: Callable[[], T], otherwise: T) -> T:
        """Return what a part of the measurement finds; where it raises, note that and return what there was."""
        try:
            return look()
        except Exception as problem:  # noqa: BLE001 - one broken source must not cost the rest
            self.problems.append(f"{name}: {type(problem).__name__}: {problem}"[:300])
            return otherwise


def measure(
    run: Run,
    error: BaseException,
    origin: BaseException,
    found: Classification,
    facts: tuple[MemoryFacts, int],
    stated: OomMessage,
    device: Device,
    phase: str,
) -> Measured:
    """Measure what can be: ``origin`` is the exception of the chain that states ``facts``, with their rounding.

    Collects garbage once where enough could be held by cycles to matter: it takes longer than all the rest.
    """
    scene = _Scene(run, error, origin, found, stated, frames_to(error, origin), Live(), "", {}, {}, [])
    scene.live = scene.part("models", lambda: Live.look(scene.trace, run.memory.optimizers()), scene.live)
    scene.key = scene.part("device", lambda: _key(device, stated), "")
    memory, rounding = facts
    if scene.key.startswith("cuda:"):
        scene.gpu, scene.split = scene.part("allocator", lambda: _cuda(scene.key, memory), (scene.gpu, scene.split))
    memory = _completed(memory, scene.gpu)
    vector = Vector(
        device.kind, phase, _step(run), memory.requested_bytes, memory.capacity_bytes, memory.allowed_bytes,
        memory.free_bytes, memory.allocated_bytes, memory.reserved_bytes,
        shortfall(memory.requested_bytes, memory.free_bytes, allowed=memory.allowed_bytes,
                  reserved=memory.reserved_bytes, rounding=rounding),
        unallocated=memory.reserved_unallocated_bytes,
    )  # fmt: skip
    for name, add in _PARTS.items():
        before = vector
        vector = scene.part(name, partial(add, before, scene), before)
    shown = {**scene.gpu, "nvml": scene.split} if scene.split else scene.gpu
    modes: dict[str, Any] = {"not_measured": scene.problems}
    modes.update(scene.part("models", lambda: _modes(vector, scene.live), modes))
    on_device = run.memory.of_device(scene.key)
    return Measured(vector, memory, training_facts(run, vector if on_device else None), shown, modes)


def _with_code(vector: Vector, scene: _Scene) -> Vector:
    frames = tuple((frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in scene.trace[-_MOST_FRAMES:])
    return replace(
        vector,
        grad_enabled=grad_enabled(scene.origin, scene.trace),
        module_training=module_training(scene.trace),
        other_frameworks=tuple(name for name in _OTHER_FRAMEWORKS if name in sys.modules),
        error_is_disguised=scene.found.subkind in _DISGUISED,
        request_is_absurd=scene.found.subkind == "absurd_size",
        frames=frames,
    )


def _with_model(vector: Vector, scene: _Scene) -> Vector:
    device = "cpu" if vector.device_kind == "simulated" else scene.key
    known = sizes(scene.run.config, scene.trace, scene.live)
    used = active.current() or active.last() if vector.device_kind == "simulated" else None
    holds = None if used is None else used.holds
    return replace(
        vector,
        static=static_bytes(scene.live, device, holds),
        sizes=known,
        request_scales=led_by(known.micro_batch, scene.trace),
        gradient_sizes=gradient_sizes(scene.live, device, holds),
        optimizer_stepped=had_stepped(scene.live),
    )


def _with_run(vector: Vector, scene: _Scene) -> Vector:
    run, log = scene.run, scene.run.memory
    if scene.key and not vector.error_is_disguised and not log.saw_refusal(scene.key):
        return replace(vector, step=run.last_step)  # it happened before the run began, which saw nothing of it
    return replace(
        vector,
        at_start=log.at_start(scene.key) if scene.key else None,
        earlier_out_of_memory=log.earlier_out_of_memory,
        evaluation_batches=log.batches_since_step if log.batch_elements else None,
        host_kills=None if run.host is None else run.host.kills(),
        history=_history(run, log.of_device(scene.key), vector.phase),
    )


def _with_collection(vector: Vector, scene: _Scene) -> Vector:
    if not worth_collecting(vector):
        return vector
    return replace(vector, gc_freed=_collected(scene.run, scene.key))


def _key(device: Device, stated: OomMessage) -> str:
    """Return the name under which a run's memory log keeps the failing device; empty for none."""
    if device.kind == "simulated":
        used = active.current() or active.last()
        return "" if used is None else simulated_key(used)
    if device.kind != "cuda":
        return ""
    index = stated.gpu_index
    if index is None:
        try:
            index = int(sys.modules["torch"].cuda.current_device())
        except Exception:  # noqa: BLE001 - a device that was lost
            index = 0
    return f"cuda:{index}"


def _cuda(key: str, memory: MemoryFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    index = int(key.partition(":")[2])
    gpu = allocator.read(index, memory.requested_bytes)
    return gpu, allocator.nvml_split(index, gpu.get("reserved_bytes"))


def _completed(memory: MemoryFacts, gpu: dict[str, Any]) -> MemoryFacts:
    """Return the stated figures with those that the text lacks as the allocator has them now."""
    snapshot = gpu.get("snapshot") or {}
    later = {
        "capacity_bytes": gpu.get("total_bytes"),
        "allowed_bytes": gpu.get("allowed_bytes"),
        "free_bytes": snapshot.get("free_bytes_at_failure", gpu.get("free_bytes_late")),
        "allocated_bytes": gpu.get("allocated_bytes"),
        "reserved_bytes": gpu.get("reserved_bytes"),
    }
    missing = {name: value for name, value in later.items() if value is not None and getattr(memory, name) is None}
    return replace(memory, **missing, source=f"{memory.source}, allocator afterwards") if missing else memory


def _with_allocator(vector: Vector, scene: _Scene) -> Vector:
    run, key, gpu, split = scene.run, scene.key, scene.gpu, scene.split
    if vector.device_kind == "simulated":
        return replace(vector, own_other=0, foreign=0, caught_ooms=0)  # nothing else lives on that device
    place = ranks.here()
    snapshot = gpu.get("snapshot") or {}
    settings = snapshot
    if not _of_the_failure(scene):
        # Unwinding gave the step's memory back to the cache, or a handler took more: what lies how is another moment's.
        gpu, snapshot = {**gpu, "active_bytes": None}, {"private_pool_bytes": snapshot.get("private_pool_bytes")}
    retries = run.memory.retries_since_start(key) if key else None
    ooms = run.memory.refusals_since_start(key) if key else None
    idle = snapshot.get("private_pool_idle_bytes")
    return replace(
        vector,
        active=_active(vector, gpu),
        private_pools=snapshot.get("private_pool_bytes"),
        private_idle=idle if idle is not None else scene.stated.private_pool_bytes,
        largest_inactive=snapshot.get("largest_inactive_bytes"),
        requested_block=settings.get("requested_block_bytes"),
        own_other=split.get("own_other_bytes"),
        own_other_at_start=_own_other_at_start(run, key),
        foreign=split.get("foreign_bytes"),
        retries=retries,
        caught_ooms=None if ooms is None else max(0, ooms - 1),
        expandable_segments=settings.get("expandable_segments"),
        allocator_backend=gpu.get("backend"),
        world_size=None if place is None else place.world_size,
    )


def _with_ranks(vector: Vector, scene: _Scene) -> Vector:
    """Add what sibling ranks hold on this device; they are no strangers, so it is taken from what others hold."""
    if vector.world_size is None or not scene.key.startswith("cuda:"):
        return vector
    held = others.sibling_bytes(int(scene.key[5:]))
    if held is None:
        return vector
    foreign = None if vector.foreign is None else max(0, vector.foreign - held)
    # Waiting for other ranks' failures is worth its time only where what they hold could explain this one.
    failed = others.ranks_failed(scene.run, vector.world_size) if held else None
    return replace(vector, sibling_bytes=held, foreign=foreign, ranks_failed=failed)


def _with_earlier(vector: Vector, scene: _Scene) -> Vector:
    now = scene.run.storage.clock()
    return replace(
        vector,
        exit_signal=others.exit_signal(chain(scene.error)),
        peak_without_checkpointing=others.peak_without_checkpointing(scene.run, vector.device_kind, now),
    )


def _of_the_failure(scene: _Scene) -> bool:
    """Tell whether the late readings are those of the failure: torch holds what the message says it held."""
    stated, late = scene.stated.allocated_bytes, scene.gpu.get("allocated_bytes")
    half = scene.stated.rounding_bytes.get("allocated_bytes", 0)
    return stated is not None and late is not None and abs(int(late) - stated) <= half


def _active(vector: Vector, gpu: dict[str, Any]) -> int | None:
    """Return what is allocated or waits for other streams; the difference of the two is that of one reading."""
    active, held = gpu.get("active_bytes"), gpu.get("allocated_bytes")
    if active is None or held is None or vector.allocated is None:
        return None
    return vector.allocated + max(0, int(active) - int(held))


def _own_other_at_start(run: Run, key: str) -> int | None:
    """Return this process' bytes outside torch in the first reading that has them, from the sampler's rows."""
    if not key.startswith("cuda:"):
        return None
    try:
        reserved = {row["at"]: row["device_reserved_bytes"] for row in run.storage.runs.samples(run.run_id)}
        rows = run.storage.runs.gpu_samples(run.run_id)
    except Exception:  # noqa: BLE001 - a store that cannot be read must not cost the rest
        return None
    for row in rows:
        held = reserved.get(row["at"])
        if row["gpu_index"] == int(key[5:]) and row["own_bytes"] is not None and held is not None:
            return max(0, int(row["own_bytes"]) - int(held))
    return None


def worth_collecting(vector: Vector) -> bool:
    """Tell whether something large enough to matter could be held by reference cycles alone.

    Memory that did not grow over steps or batches is not piling up; before the first step only what lies beside the
    model while it is loaded or its optimizer made can be garbage, and what was there before the run began.
    """
    short, capacity = vector.missing, vector.capacity
    if short is None or capacity is None:
        return True
    least = CONTRIBUTES * short.high if short.high > MATERIAL * capacity else MATERIAL * capacity
    series = (vector.history.allocated, vector.history.evaluation, vector.history.since_step)
    grown = [max(values) - min(values) for values in series if values]
    held = [vector.at_start or 0, *grown]
    if vector.phase in ("load", "optimizer") and vector.allocated is not None:
        held.append(vector.allocated - (vector.static.total or 0))
    return max(held) >= least


def _collected(run: Run, key: str) -> int | None:
    """Return what garbage collection has given back on the device since the failure; None where nothing counts."""
    before = run.memory.at_failure(key)
    if before is None:
        before = _held(key)
    gc.collect()
    after = _held(key)
    return None if before is None or after is None else max(0, before - after)


def _held(key: str) -> int | None:
    return {one.device: one.allocated for one in last_readings()}.get(key)


def _step(run: Run) -> int | None:
    """Return the completed optimizer steps: those that were counted, else the last one that the run logged."""
    if run.memory.step or (run.memory.watches_steps and not run.last_step):
        return run.memory.step
    return run.last_step


def _history(run: Run, on_device: bool, phase: str) -> History:
    log = run.memory
    elements = tuple(log.batches_of_last_loader()[-_MOST_BATCHES:])
    if not on_device:
        return History(batch_elements=elements)
    return History(
        steps=tuple(log.after_steps.numbers),
        allocated=tuple(log.after_steps.values),
        in_step_peak=log.in_step_peak,
        batch_elements=elements,
        evaluation=tuple(log.after_batches.values) if phase == "evaluation" else (),
        since_step=tuple(log.after_batches.values) if phase in AT_WORK else (),
        batch_numbers=tuple(log.after_batches.numbers),
    )


def _modes(vector: Vector, live: Live) -> dict[str, Any]:
    static = vector.static
    return {
        "grad_enabled": vector.grad_enabled,
        "module_training": vector.module_training,
        "models": models(live),
        "optimizers": sorted({type(one).__name__ for one in live.optimizers}),
        "parameter_bytes": static.parameters,
        "gradient_bytes": static.gradients,
        "optimizer_state_bytes": static.optimizer,
        "optimizer_state_expected_bytes": static.optimizer_expected,
        "first_step_still_makes_bytes": static.to_come,
        "optimizer_temporaries_bytes": static.working,
        "contained_models_bytes": static.contained,
        "contained_tensors_bytes": static.kept,
        "separate_models": static.models,
        "buffer_bytes": static.buffers,
        "garbage_collection_freed_bytes": vector.gc_freed,
        "other_frameworks": list(vector.other_frameworks),
    }


_PARTS: dict[str, Callable[[Vector, _Scene], Vector]] = {
    "code": _with_code,
    "model": _with_model,
    "run": _with_run,
    "allocator": _with_allocator,
    "ranks": _with_ranks,
    "earlier": _with_earlier,
    "garbage": _with_collection,
}


def training_facts(run: Run, vector: Vector | None) -> dict[str, Any]:
    """Return what was seen of the training while it went on; ``vector`` adds the memory of its device."""
    log = run.memory
    found: dict[str, Any] = {"optimizer_steps": log.step if log.watches_steps else None}
    elements = log.batches_of_last_loader()
    if elements:
        found["batches"] = {
            "count": len(elements), "failing_elements": elements[-1], "largest_elements": max(elements),
            "median_elements": sorted(elements)[len(elements) // 2], "last_elements": elements[-20:],
        }  # fmt: skip
    if vector is None:
        return found
    found["device_memory"] = {
        "at_start_bytes": vector.at_start,
        "steps": list(vector.history.steps),
        "allocated_after_step_bytes": list(vector.history.allocated),
        "in_step_peak_bytes": vector.history.in_step_peak,
        "evaluation_allocated_bytes": list(vector.history.evaluation),
        "allocated_since_step_bytes": list(vector.history.since_step),
        "earlier_out_of_memory": vector.earlier_out_of_memory,
    }
    return found
