"""C3, C5, C7, C8, C9: memory that torch holds, or may not use, without the step needing it."""

from __future__ import annotations

from watcherml.forensics.causes.lasting import unowned
from watcherml.forensics.causes.thresholds import MIB
from watcherml.forensics.causes.vector import AT_WORK, Vector
from watcherml.forensics.causes.weigh import Finding, excluded, pool, unknown, weigh
from watcherml.forensics.text import amount

_SMALL_SEGMENT, _MIDDLE_SEGMENT, _STEP = 2 * MIB, 20 * MIB, 2 * MIB


def findings(vector: Vector) -> list[Finding]:
    """Return what each pool says."""
    return [_cap(vector), _left_over(vector), *_inside(vector)]


def _cap(vector: Vector) -> Finding:
    if vector.device_kind == "simulated":
        return excluded("C3", "A simulated device has its budget and no cap below it.")
    if vector.free is None:
        return unknown("C3", "Not measured: what was free on the device.")
    if vector.allowed is None:
        if vector.missing is not None and vector.missing.low > 0:
            return excluded("C3", "The device itself had less free than was asked for.")
        return unknown("C3", "Not measured: whether a cap is set.")
    if vector.reserved is None:
        return unknown("C3", "Not measured: what torch has reserved under the cap.")
    # What the cap withholds of what is free: had it been nothing, would the request have fitted?
    withheld = vector.free - (vector.allowed - vector.reserved)
    return pool(vector, "C3", withheld, lacking="the cap")


def _left_over(vector: Vector) -> Finding:
    """What was there at the start and is none of this run's own tensors.

    A model that an earlier cell built for this run, and its optimizer's state, are there at the start too: their bytes
    are taken off, and where either was not found nothing tells them from a left-over.
    """
    start = vector.at_start
    if start is None:
        return unknown("C5", "Not measured: what was allocated when the run began.")
    own = vector.static.total
    size = max(0, (start if vector.allocated is None else min(start, vector.allocated)) - (own or 0))
    holds: bool | None = None
    models, small = vector.static.models or 0, weigh(vector, size) == "small"
    more = unowned(vector) or 0
    if small and vector.phase in (*AT_WORK, "optimizer") and weigh(vector, more) == "enough":
        # The run began before it: an earlier model of the same run that a closure or a kept exception still holds.
        words = f"{amount(more)} stay from step to step and belong to no model or optimizer that was found"
        return unknown("C5", f"{words}; not measured: what holds them.", more)
    if models > 1 and small and not vector.step and weigh(vector, start) != "small":
        words = f"{amount(start)} were there when the run began; not measured: which of {models} models are this run's."
        return unknown("C5", words, start)
    if own is None or vector.static.optimizer is None:
        # At most so much: that it is small says something, that it is large does not.
        if weigh(vector, size) not in ("small", "enough"):
            return unknown("C5", f"At most {amount(size)}; not measured: this run's own model and optimizer.", size)
    elif vector.earlier_out_of_memory:
        holds = True
    elif vector.step is not None:
        holds = vector.step == 0
    lacking = "which of it is this run's own model, and whether an earlier failure left it"
    against = "steps were completed beside it"
    return pool(vector, "C5", size, holds=holds, lacking=lacking, against=against, otherwise="contributing")


def _inside(vector: Vector) -> list[Finding]:
    names = ("C7", "C8", "C9")
    if vector.device_kind == "simulated":
        return [excluded(one, "A simulated device has no segments, no private pools and no streams.") for one in names]
    if vector.allocator_backend not in (None, "native"):
        words = f"Not measured: the allocator is {vector.allocator_backend}, which keeps no such count."
        return [unknown(one, words) for one in names]
    return [_private(vector), _fragments(vector), _awaited(vector)]


def _private(vector: Vector) -> Finding:
    lacking = "what is reserved in private pools (a snapshot)"
    idle = vector.private_idle
    # A message states only the idle part: it can be enough, but that it is small says nothing of the rest.
    if vector.private_pools is None and idle is not None and weigh(vector, idle) == "small":
        return unknown("C7", f"{amount(idle)} lie idle in private pools; not measured: {lacking}.", idle)
    return pool(vector, "C7", idle if vector.private_pools is None else vector.private_pools, lacking=lacking)


def _fragments(vector: Vector) -> Finding:
    slack, pure = _slack(vector)
    if slack is None:
        return unknown("C8", "Not measured: what is reserved and unused.")
    if vector.expandable_segments and weigh(vector, slack) != "small":
        return excluded("C8", "Expandable segments are in effect already.", slack)
    fits = None if vector.largest_inactive is None else _fits(vector, vector.largest_inactive)
    holds = None if fits is None or not pure or vector.expandable_segments is None else not fits
    lacking = "the largest cached block, and what waits for other streams (a snapshot)"
    against = "one of them would have held the request"
    return pool(vector, "C8", slack, holds=holds, lacking=lacking, against=against)


def _slack(vector: Vector) -> tuple[int | None, bool]:
    """Return the unused reserved bytes, and whether they are free of what waits for other streams."""
    if vector.reserved is not None and vector.active is not None and vector.private_idle is not None:
        return max(0, vector.reserved - vector.active - vector.private_idle), True
    if vector.unallocated is not None:
        return vector.unallocated, False
    if vector.reserved is not None and vector.allocated is not None:
        return max(0, vector.reserved - vector.allocated), False
    return None, False


def _fits(vector: Vector, largest: int) -> bool | None:
    """Tell whether a cached block would have held the request; None where only the segment's size is known."""
    if vector.requested_block is not None:
        return largest >= vector.requested_block
    segment = vector.requested
    if segment is None:
        return None
    if largest >= segment:
        return True
    # A block of up to 1 MiB asks for 2 MiB, below 10 MiB for 20, else for the next multiple of 2 (facts/torch.md, 3).
    if segment <= _SMALL_SEGMENT:
        least = 1
    elif segment <= _MIDDLE_SEGMENT:
        least = MIB
    else:
        least = segment - _STEP
    return False if largest < least else None


def _awaited(vector: Vector) -> Finding:
    if vector.active is not None and vector.allocated is not None:
        return pool(vector, "C9", vector.active - vector.allocated, lacking="what waits for other streams")
    slack, _ = _slack(vector)
    if slack is not None and weigh(vector, slack) == "small":
        return excluded("C9", f"Only {amount(slack)} are reserved and unallocated, which contains it.", slack)
    return unknown("C9", "Not measured: what waits for other streams (memory_stats).")
