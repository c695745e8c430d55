"""C16: evaluation that keeps gradients, evaluation that keeps its outputs, or simply a large evaluation batch."""

from __future__ import annotations

from watcherml.forensics.causes.history import between_steps, even_sizes, trend
from watcherml.forensics.causes.thresholds import EVALUATION_BATCHES, LEAK_RISING
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, excluded, pool, unknown
from watcherml.forensics.text import amount

IDS = ("C16a", "C16b", "C16c")


def findings(vector: Vector) -> list[Finding]:
    """Return what is known of a failing evaluation."""
    if vector.phase == "unknown":
        return [unknown(one, "Not measured: in which part of the run it failed.") for one in IDS]
    if vector.phase != "evaluation":
        return [excluded(one, f"It failed in {vector.phase}.") for one in IDS]
    gradients, outputs = _gradients(vector), _outputs(vector)
    return [gradients, outputs, _batch(vector, gradients, outputs)]


def _above(vector: Vector) -> int | None:
    """Return what the evaluation holds above the memory between training steps."""
    rest = between_steps(vector)
    return None if rest is None or vector.allocated is None else max(0, vector.allocated - rest)


def _gradients(vector: Vector) -> Finding:
    if vector.grad_enabled is None:
        return unknown("C16a", "Not measured: whether gradients were on.")
    if not vector.grad_enabled:
        return excluded("C16a", "Gradients were off.")
    return pool(vector, "C16a", _above(vector), lacking="the memory between training steps")


def _outputs(vector: Vector) -> Finding:
    values = vector.history.evaluation
    if vector.evaluation_batches == 0:
        return excluded("C16b", "It failed in the first batch of this evaluation.", 0)
    seen = trend(vector.history.numbers, values)
    if seen is None or seen.points < EVALUATION_BATCHES:
        return unknown("C16b", f"Not measured: the memory after {EVALUATION_BATCHES} or more batches of evaluation.")
    growth = max(0, seen.growth)
    words = f"evaluation kept {amount(max(0, int(seen.slope)))} of each batch, {amount(growth)} so far"
    holds = None if seen.rising >= LEAK_RISING else False
    # Batches sorted by length, the shortest first, take more each time without anything being kept.
    if holds is None and even_sizes(_sizes(vector)):
        holds = True
    return pool(vector, "C16b", growth, holds=holds, held=words, lacking="that its batches are of even size",
                against="it also gave memory back between batches")  # fmt: skip


def _sizes(vector: Vector) -> tuple[int, ...]:
    """Return the sizes of this evaluation's batches, the failing one last; an earlier one may have had the loader."""
    sizes, finished = vector.history.batch_elements, vector.evaluation_batches
    count = (finished if finished else len(vector.history.evaluation)) + 1
    return sizes[-count:] if len(sizes) >= EVALUATION_BATCHES else ()


def _batch(vector: Vector, gradients: Finding, outputs: Finding) -> Finding:
    found = [one for one in (gradients, outputs) if one.judgement in ("sufficient", "contributing")]
    if any(one.judgement == "sufficient" for one in found):
        return excluded("C16c", "What evaluation keeps explains it.")
    above = _above(vector)
    size = None if above is None or vector.requested is None else above + vector.requested
    if size is not None and found:
        size = max(0, size - max(one.cause.bytes or 0 for one in found))
    open_ones = any(one.judgement == "unknown" for one in (gradients, outputs))
    lacking = "whether gradients were on, what evaluation keeps from batch to batch, and the memory between steps"
    return pool(vector, "C16c", size, holds=None if open_ones else True, lacking=lacking)
