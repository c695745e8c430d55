"""The plain sentence of a diagnosis: first what it means, then the numbers."""

from __future__ import annotations

from watcherml.forensics.causes.table import ROWS
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, upper
from watcherml.forensics.text import amount

_SHOWN = 3
_FULL = 0.9  # of the limit; below it the request was large rather than the rest small
_RECOVERY = "a recovery tries smaller micro-batches in fresh processes"
_LOAD = "load the model in a smaller type, keep part of it elsewhere, or take a smaller model or batch"
_LOAD_LESS = (
    "load the model in a smaller type, keep part of it elsewhere, or let go of a copy; a smaller step alone frees"
    " too little"
)
_MARK = "mark the part with watcherml.phase(...)"


def sentence_of(vector: Vector, status: str, sufficient: list[Finding], lacking: list[str]) -> str:
    """Return what a tired person reads first of a diagnosis."""
    if status == "insufficient_evidence":
        return _insufficient(vector, lacking)
    if status == "capacity_bound":
        return _capacity(vector, sufficient)
    first = sufficient[0]
    remedy = ROWS[first.cause.id].remedy
    # A guard has no pool that was weighed: its own sentence says it all.
    if not first.held or vector.missing is None:
        text = first.cause.sentence
        rest = [one.cause.sentence for one in sufficient[1:_SHOWN]]
        return " ".join([text, *rest])
    text = f"{_device(vector)} was {amount(vector.missing.middle)} short because {first.held}"
    if status == "diagnosed":
        return f"{text}: {remedy}."
    others = "; ".join(f"{one.held} ({one.cause.id})" for one in sufficient[1:_SHOWN] if one.held)
    return f"{text}; each of these alone would explain it too: {others}. First: {remedy}."


def action_of(vector: Vector, status: str, sufficient: list[Finding]) -> str | None:
    """Return what to do next, without why; None where too little is known to say more than the sentence does."""
    if sufficient:
        return ROWS[(sufficient[0] if status != "capacity_bound" else sufficient[-1]).cause.id].action
    if status != "capacity_bound":
        return ROWS["C2"].action if _exceeds(vector) else None
    return _LOAD_LESS if _is_model(vector) else ROWS["C21"].action if vector.at_work else _next(vector)


def _capacity(vector: Vector, sufficient: list[Finding]) -> str:
    short = None if vector.missing is None else vector.missing.middle
    where = f" in {vector.phase}" if vector.phase != "unknown" else ""
    text = f"{amount(short)} were missing{where}: {_held(vector)}"
    if sufficient:
        last = sufficient[-1]
        return f"{text}. {upper(last.held)}: {ROWS[last.cause.id].remedy}."
    if _is_model(vector):
        return f"{text}, {amount(vector.static.total)} of them the model and what stays with it: {_LOAD_LESS}."
    if vector.at_work:
        return f"{text}: {ROWS['C21'].remedy}."
    return f"{text}. Next: {_next(vector)}."


def _is_model(vector: Vector) -> bool:
    """Tell whether all tensors of the step, gone, would not leave room: then no smaller step helps."""
    total, held, short = vector.static.total, vector.allocated, vector.missing
    if not vector.at_work or total is None or held is None or short is None or vector.request_scales:
        return False
    return max(0, held - total) < short.low


def _held(vector: Vector) -> str:
    figures = f"({amount(vector.allocated)} of {amount(vector.limit)})"
    full = vector.allocated is None or vector.limit is None or vector.allocated >= _FULL * vector.limit
    if full or vector.requested is None:
        return f"the device was full of this training's own tensors {figures}"
    return f"{amount(vector.requested)} were asked for beside this training's own tensors {figures}"


def _next(vector: Vector) -> str:
    if vector.phase == "load":
        return _LOAD
    return f"{_RECOVERY}; {_MARK}" if vector.phase == "unknown" else _RECOVERY


def _exceeds(vector: Vector) -> bool:
    return vector.requested is not None and vector.capacity is not None and vector.requested > vector.capacity


def _insufficient(vector: Vector, lacking: list[str]) -> str:
    what = "; ".join(one.rstrip(".") for one in lacking)
    end = f"Not measured: {what}. Next: {_RECOVERY}{f'; {_MARK}' if vector.phase == 'unknown' else ''}."
    if _exceeds(vector):
        asked = f"One request of {amount(vector.requested)} exceeds the whole device ({amount(vector.capacity)})"
        return f"{asked}: look at the shapes in that line first. {end}"
    if vector.requested is None and vector.free is None:
        return f"The failure gives no sizes, so the shortfall is not known. {end}"
    if vector.missing is None:
        return f"The shortfall is not known. {end}"
    where = f" in {vector.phase}" if vector.phase != "unknown" else ""
    return f"{amount(vector.missing.middle)} were missing{where}, and why cannot be told yet. {end}"


def _device(vector: Vector) -> str:
    return "The simulated device" if vector.device_kind == "simulated" else "The card"
