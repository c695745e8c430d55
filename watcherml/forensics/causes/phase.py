"""C15 to C20: causes that belong to one part of training."""

from __future__ import annotations

import re
from math import ceil
from statistics import median

from watcherml.forensics.causes import evaluation
from watcherml.forensics.causes.history import between_steps, even_sizes, trend
from watcherml.forensics.causes.thresholds import (
    CHECKPOINTING_SAVES,
    FLAT,
    FLAT_POINTS,
    HUGE_BLOCK,
    LONG_BATCHES,
    LONG_QUANTILE,
    LONG_RATIO,
)
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, excluded, pool, unknown
from watcherml.forensics.text import amount

_NO_PHASE = "Not measured: in which part of the step it failed."
_STATE = re.compile(r"_init_group|_init_state|init_state|_get_value|state_init", re.I)
_TUNING = re.compile(r"inductor|autotune|cudnn|benchmark|[/\\]conv\.py$|_conv_forward", re.I)
_CACHE = re.compile(r"cache_utils|DynamicCache|StaticCache|kv_cache|past_key_values", re.I)


def findings(vector: Vector) -> list[Finding]:
    """Return what the part of training says."""
    return [
        _first_step(vector), _second_step(vector), *evaluation.findings(vector), _longest(vector), _tuning(vector),
        _cache(vector), _checkpointing(vector),
    ]  # fmt: skip


def _matches(vector: Vector, words: re.Pattern[str]) -> bool:
    return any(words.search(file) or words.search(function) for file, function in vector.frames)


def _first_step(vector: Vector) -> Finding:
    if vector.phase == "unknown":
        return unknown("C15", _NO_PHASE)
    if vector.phase != "optimizer":
        return excluded("C15", f"It failed in {vector.phase}.")
    making = _matches(vector, _STATE)
    if vector.optimizer_stepped and not making:
        return excluded("C15", "This optimizer had made a step before, so its state was there.")
    # Another optimizer's steps say nothing of this one's state.
    if vector.step is not None and vector.step > 0 and not making and vector.optimizer_stepped is None:
        return excluded("C15", f"{vector.step} optimizer steps were completed, so its state was there.")
    expected = vector.static.optimizer_expected
    held = "" if expected is not None else "the optimizer asked for {} while it makes its state"
    size = vector.requested if expected is None else expected
    # Of a state that is half made only one request is seen; what is still to come is at least that.
    first = True if making else None if vector.step is None else True
    return pool(vector, "C15", size, holds=first, lacking="which step this was", held=held.format(amount(size)))


def _second_step(vector: Vector) -> Finding:
    if vector.phase == "unknown":
        return unknown("C15b", _NO_PHASE)
    if not vector.at_work:
        return excluded("C15b", f"It failed in {vector.phase}.")
    if vector.step is None:
        return unknown("C15b", "Not measured: how many steps were completed.")
    if vector.step != 1:
        return excluded("C15b", f"It failed after {vector.step} completed steps, not right after the first.")
    size = vector.static.optimizer
    if size is None and len(vector.history.allocated) > 1:
        size = vector.history.allocated[-1] - vector.history.allocated[0]
    return pool(vector, "C15b", size, lacking="the bytes of the optimizer's state")


def _longest(vector: Vector) -> Finding:
    if vector.phase == "unknown":
        return unknown("C17", _NO_PHASE)
    if not vector.at_work:
        return excluded("C17", f"It failed in {vector.phase}.")
    sizes, rests = vector.history.batch_elements, vector.history.allocated
    if len(sizes) < LONG_BATCHES or (sizes[-1] and not median(sizes)):  # most batches were of no tensors
        return unknown("C17", f"Not measured: the sizes of {LONG_BATCHES} batches or more.")
    typical, this = median(sizes), sizes[-1]
    if this == 0 or this < LONG_RATIO * typical or this < sorted(sizes)[ceil(LONG_QUANTILE * len(sizes)) - 1]:
        return excluded("C17", f"The failing batch ({this} elements) is not the longest by far (typical {typical:g}).")
    rest = between_steps(vector)
    if rest is None or vector.allocated is None or vector.requested is None:
        return unknown("C17", "Not measured: the memory between steps.")
    excess = int((vector.allocated + vector.requested - rest) * (1 - typical / this))
    words = f"this batch is {this / typical:.1f} times the typical one and takes about {amount(excess)} more"
    # Where batches grow from step to step, what they leave behind grows with them and is no leak.
    flat = True if even_sizes(sizes) is False else _flat(rests)
    return pool(vector, "C17", excess, holds=flat, lacking="the memory between steps", held=words,
                against="the memory between steps grew too", otherwise="contributing")  # fmt: skip


def _flat(values: tuple[int, ...]) -> bool | None:
    if len(values) < FLAT_POINTS:
        return None
    # The trend, not the range: what is read after a step holds the batch and its outputs as well.
    seen = trend(tuple(range(len(values))), values)
    return seen is None or abs(seen.growth) <= 2 * FLAT * median(values)


def _tuning(vector: Vector) -> Finding:
    if vector.device_kind == "simulated":
        return excluded("C18", "A simulated device tries out no kernels.")
    if not vector.frames:
        return unknown("C18", "Not measured: the failing line.")
    if not _matches(vector, _TUNING):
        return excluded("C18", "The failing frames compile and try out nothing.")
    if vector.step is not None and vector.step > 0:
        return excluded("C18", f"{vector.step} steps were completed, so the kernels were chosen.")
    tried = None if vector.caught_ooms is None or vector.step is None else vector.caught_ooms > 0
    return pool(vector, "C18", vector.requested, holds=tried, against="no trial of a kernel failed before",
                lacking="whether this is the first step, and the failures that torch caught itself")  # fmt: skip


def _cache(vector: Vector) -> Finding:
    if not vector.at_work:
        return unknown("C19", _NO_PHASE) if vector.phase == "unknown" else excluded("C19", "No model was at work.")
    if vector.sizes.model_cache is False:
        return excluded("C19", "The configuration keeps no key-value cache.")
    if not vector.frames:
        return unknown("C19", "Not measured: the failing line.")
    if not _matches(vector, _CACHE):
        if vector.sizes.model_cache:
            return unknown("C19", "The cache is on; how much of it was there was not measured.")
        return excluded("C19", "The failing frames touch no key-value cache.")
    return pool(vector, "C19", vector.requested, holds=vector.sizes.model_cache, lacking="whether the cache is on")


def _checkpointing(vector: Vector) -> Finding:
    if vector.sizes.checkpointing is None:
        return unknown("C20", "Not measured: whether checkpointing is on.")
    if not vector.sizes.checkpointing:
        return excluded("C20", "Checkpointing is off.")
    without, held = vector.peak_without_checkpointing, vector.allocated
    if without is not None and held is not None and vector.requested is not None:
        peak = held + vector.requested
        if peak >= (1 - CHECKPOINTING_SAVES) * without:
            words = f"checkpointing is on, yet the peak of {amount(peak)} is that without it ({amount(without)})"
            return pool(vector, "C20", peak, lacking="", held=words)
        return excluded("C20", f"The peak is {amount(peak)}, without checkpointing {amount(without)}.", peak)
    if vector.phase == "unknown":
        return unknown("C20", _NO_PHASE)
    rest = between_steps(vector)
    if vector.phase != "recompute":
        if not vector.at_work:
            return excluded("C20", f"It failed in {vector.phase}.")
        return unknown("C20", "Not measured: the peak of the same run without checkpointing.")
    if rest is None or held is None or vector.limit is None:
        return unknown("C20", "Not measured: the memory between steps.")
    block = held - rest
    huge = block >= HUGE_BLOCK * vector.limit
    return pool(vector, "C20", block, holds=huge, lacking="", otherwise="contributing",
                against="less than half of the device is recomputed at once")  # fmt: skip
