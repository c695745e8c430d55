"""Evidence vectors by their figures in GiB, for tests of the causes' rules."""

from __future__ import annotations

from dataclasses import replace

from watcherml.forensics.causes.diagnose import diagnose
from watcherml.forensics.causes.vector import History, Sizes, Static, Vector
from watcherml.forensics.shortfall import shortfall

MIB, GIB = 2**20, 2**30
_DIRECT = {
    "static": Static,
    "sizes": Sizes,
    "history": History,
}
# Plain numbers and words; everything else among the arguments is GiB.
_AS_IS = {
    "device_kind", "phase", "step", "grad_enabled", "module_training", "expandable_segments", "allocator_backend",
    "other_frameworks", "host_signature", "error_is_disguised", "frames", "earlier_out_of_memory", "retries",
    "request_is_absurd", "request_scales", "evaluation_batches", "caught_ooms", "exit_signal", "host_kills",
    "world_size", "ranks_failed",
}  # fmt: skip


def gib(value):
    return None if value is None else round(value * GIB)


def vector(q=1.0, c=24.0, f=0.2, a=22.0, r=22.2, *, y=None, rounding=0, **more):
    """Return a vector: request, capacity, free, allocated, reserved and a cap in GiB, a full card by default."""
    fields = {key: value if key in {*_DIRECT, *_AS_IS} else gib(value) for key, value in more.items()}
    short = shortfall(gib(q), gib(f), allowed=gib(y), reserved=gib(r), rounding=rounding)
    base = {"device_kind": "cuda", "phase": "forward", "step": 5, **fields}
    return Vector(
        **base, requested=gib(q), capacity=gib(c), allowed=gib(y), free=gib(f), allocated=gib(a), reserved=gib(r),
        missing=short,
    )  # fmt: skip


def static(**more):
    """Return static bytes given in GiB."""
    return Static(**{key: gib(value) for key, value in more.items()})


def steps(first, slope, count, start=1):
    """Return a history that begins at ``first`` MiB and grows by ``slope`` MiB a step."""
    numbers = tuple(range(start, start + count))
    return {"steps": numbers, "allocated": tuple(round((first + slope * n) * MIB) for n in range(count))}


def ids(vector_or_diagnosis):
    """Return the cause ids of each list of a diagnosis."""
    found = diagnose(vector_or_diagnosis) if isinstance(vector_or_diagnosis, Vector) else vector_or_diagnosis
    names = ("sufficient", "contributing", "excluded", "unknown")
    return {name: [one.id for one in getattr(found, name)] for name in names}


def judged(a_vector, cause_id):
    """Return in which list a cause stands, or "absent"."""
    return next((name for name, found in ids(a_vector).items() if cause_id in found), "absent")


def changed(a_vector, **fields):
    """Return a vector with fields in bytes, and its shortfall computed again."""
    made = replace(a_vector, **fields)
    short = shortfall(made.requested, made.free, allowed=made.allowed, reserved=made.reserved)
    return made if "missing" in fields else replace(made, missing=short)
