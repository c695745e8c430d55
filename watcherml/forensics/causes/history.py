"""C10, C10b, C11: what grew from step to step or batch to batch, and whether a garbage collection gives it back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from watcherml.forensics.causes.thresholds import (
    EVALUATION_BATCHES,
    EVEN,
    GROWN,
    GROWTH_POINTS,
    LEAK_COLLECTED,
    LEAK_POINTS,
    LEAK_RISING,
    LEAK_STEP_LEAST,
    LEAK_STEP_TOLERANCE,
    MATERIAL,
    SLOPE_POINTS,
)
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, excluded, pool, unknown, weigh
from watcherml.forensics.text import amount


@dataclass(frozen=True)
class Trend:
    """How the bytes between steps moved: per step, in all, and which share of the steps did not shrink."""

    slope: float
    growth: int
    rising: float
    points: int


def findings(vector: Vector) -> list[Finding]:
    """Return what the memory between steps says."""
    return [_leak(vector), _batches(vector), _cycles(vector)]


def trend(steps: tuple[int, ...], values: tuple[int, ...]) -> Trend | None:
    """Return the trend of values over steps, in bytes; None for fewer than two points.

    The slope is the median of all pairwise slopes (Theil and Sen), so that one jump, such as the optimizer's state in
    the first step, does not make a trend. ``growth`` is the slope over the whole stretch.
    """
    points = sorted(dict(zip(steps, values, strict=False)).items())
    if len(points) < 2:
        return None
    rises = [later[1] >= earlier[1] for earlier, later in pairwise(points)]
    stride = -(-len(points) // SLOPE_POINTS)
    few = points[::stride] if len(points[::stride]) > 1 else points
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for index, a in enumerate(few) for b in few[index + 1 :]]
    slope = float(median(slopes))
    return Trend(slope, int(slope * (points[-1][0] - points[0][0])), sum(rises) / len(rises), len(points))


def predicted_step(limit: int, in_step_peak: int, first: int, slope: float) -> int | None:
    """Return how many steps it takes from ``first`` bytes to the limit; None where nothing grows. Bytes, per step."""
    return int((limit - in_step_peak - first) / slope) if slope > 0 else None


def horizon(vector: Vector) -> int | None:
    """Return the step that what piles up would not let end with nothing beside it; None where nothing piles up.

    No change that leaves the growth as it was lasts longer. The growth has to be a leak's and a material part of the
    device, but need not explain the failure at hand: it predicts the next one.
    """
    seen, room, limit = trend(vector.history.steps, vector.history.allocated), vector.own_limit, vector.limit
    if seen is None or room is None or limit is None or seen.points < LEAK_POINTS or vector.step == 0:
        return None
    if seen.growth < MATERIAL * limit or _piles_up(vector, seen)[0] is not True:
        return None
    step, held = max(zip(vector.history.steps, vector.history.allocated, strict=False))
    return step + 1 + max(0, predicted_step(room, 0, held, seen.slope) or 0)


def _leak(vector: Vector) -> Finding:
    seen = trend(vector.history.steps, vector.history.allocated)
    if vector.step == 0:
        return excluded("C10", "No step was completed, so nothing can have piled up over steps.")
    if seen is None:
        return unknown("C10", "Not measured: the memory between steps.")
    growth = max(0, seen.growth)
    words = f"memory grew by {amount(max(0, int(seen.slope)))} a step, {amount(growth)} in {seen.points} measured steps"
    if seen.points < LEAK_POINTS and weigh(vector, growth) != "small":
        found = unknown("C10", f"In so few steps ({seen.points}) a leak cannot be told; {words}.", growth)
        grows = seen.points >= GROWTH_POINTS and weigh(vector, growth) == "enough"
        return replace(found, candidate=grows and _piles_up(vector, seen)[0] is not False)
    holds, against = _is_leak(vector, seen)
    lacking = "that the batches are of even size, or what a garbage collection gives back"
    return pool(vector, "C10", growth, holds=holds, lacking=lacking, against=against, otherwise="contributing",
                held=words)  # fmt: skip


def between_steps(vector: Vector) -> int | None:
    """Return what lies on the device between two steps: after the last one, else the model's own bytes.

    Steps that were not read after the last reading add what a step adds, where the memory grows with them.
    """
    steps, values = vector.history.steps, vector.history.allocated
    if not values:
        return vector.static.total
    seen = trend(steps, values)
    if seen is None or seen.points < LEAK_POINTS or seen.rising < LEAK_RISING or vector.step is None:
        return values[-1]
    return values[-1] + int(max(0.0, seen.slope) * max(0, vector.step - steps[-1]))


def _batches(vector: Vector) -> Finding:
    """Losses that are summed before one backward, or an evaluation that nothing shows to be one."""
    if vector.phase == "unknown":
        return unknown("C10b", "Not measured: in which part of the step it failed.")
    if not vector.at_work:
        return excluded("C10b", f"It failed in {vector.phase}.")
    values = vector.history.since_step
    if vector.evaluation_batches is not None and vector.evaluation_batches < 1:
        return excluded("C10b", "It failed in the first batch after an optimizer step.", 0)
    seen = trend(vector.history.numbers, values)
    if seen is None or seen.points < EVALUATION_BATCHES:
        return unknown("C10b", f"Not measured: the memory after {EVALUATION_BATCHES} or more batches of one step.")
    growth = max(0, seen.growth)
    words = (
        f"{amount(max(0, int(seen.slope)))} of each batch were kept, {amount(growth)} in"
        f" {vector.history.numbers[-1]} batches without an optimizer step"
    )
    even = even_sizes(vector.history.batch_elements[-(vector.history.numbers[-1] + 1) :])
    collected = vector.gc_freed is not None and vector.gc_freed >= LEAK_COLLECTED * growth
    holds = False if seen.rising < LEAK_RISING or even is False or collected else even
    against = "the batches grew too, or memory came back between them"
    return pool(vector, "C10b", growth, holds=holds, held=words, lacking="that the batches are of even size",
                against=against)  # fmt: skip


def _is_leak(vector: Vector, seen: Trend) -> tuple[bool | None, str]:
    holds, against = _piles_up(vector, seen)
    peak, limit = vector.history.in_step_peak, vector.own_limit
    if holds is not False and peak is not None and limit is not None:
        # It failed after the last step, which need not be the last one whose memory was read.
        first, last = vector.history.steps[0], max(vector.history.steps[-1], vector.step or 0)
        steps = predicted_step(limit, peak, vector.history.allocated[0], seen.slope)
        near = max(LEAK_STEP_LEAST, int(LEAK_STEP_TOLERANCE * last))
        if steps is None or abs(first + steps - last) > near:
            return False, f"at that pace it would have lasted to step {first + (steps or 0)}, not {last}"
    return holds, against


def _piles_up(vector: Vector, seen: Trend) -> tuple[bool | None, str]:
    """Tell whether the growth is a leak's, at whatever pace; None where that was not measured."""
    if seen.rising < LEAK_RISING:
        return False, f"only {100 * seen.rising:.0f} % of the steps did not shrink"
    own = (vector.static.total or 0) - vector.history.allocated[0]
    if 2 * own >= seen.growth > 0:
        return False, f"{amount(own)} of it are in the model's gradients and its optimizer's state"
    sizes = vector.history.batch_elements
    even = even_sizes(sizes) if len(sizes) >= LEAK_POINTS else None
    if even is False:
        return False, "the batches grew too"
    if vector.gc_freed is not None and vector.gc_freed >= LEAK_COLLECTED * seen.growth:
        return False, f"a garbage collection gave back {amount(vector.gc_freed)}"
    # Longer batches leave longer outputs behind, which is what a curriculum does and no leak.
    return (True if even and vector.gc_freed is not None else None), ""


def even_sizes(sizes: tuple[int, ...]) -> bool | None:
    """Tell whether batches (elements of each, in order) stayed of one size; None where they are too few to tell."""
    batches = trend(tuple(range(len(sizes))), sizes)
    if batches is None:
        return None
    typical = median(sizes)
    if batches.growth > GROWN * typical:
        return False
    return True if batches.growth <= EVEN * typical else None


def _cycles(vector: Vector) -> Finding:
    return pool(vector, "C11", vector.gc_freed, lacking="what a garbage collection gives back")
