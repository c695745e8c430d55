"""The plain sentence of a diagnosis: first what it means, then the numbers."""

from __future__ import annotations

from watcherml.forensics.causes.lasting import frees_too_little, lasting, least, never_fits, unowned
from watcherml.forensics.causes.table import ROWS
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, upper
from watcherml.forensics.text import amount

_SHOWN = 3
_FULL = 0.9  # of the limit; below it the request was large rather than the rest small
_RECOVERY = "a recovery tries smaller micro-batches in fresh processes"
_LOAD = "load the model in a smaller type, keep part of it elsewhere, or take a smaller model or batch"
_EVALUATE = "use a smaller evaluation batch, and see what is kept from one to the next (outputs, a key-value cache)"
_AGAIN = "let go of models that were built before (lists, caches, outputs of cells); if there are none, "
_NO_TRAINING = "if this is no training, run it under torch.no_grad() first"
# What a cause would need that is enough but was not shown: looked for before anything is made smaller.
_LOOK = {
    "C10": "see what is kept from step to step (lists, detach, .item(), hooks)",
    "C10b": "see whether a graph is kept from batch to batch (backward() on each loss, no_grad() in evaluation)",
    "C12": _AGAIN.partition(";")[0],
    "C16b": "see what evaluation keeps from batch to batch",
}
_LOAD_LESS = "load the model in a smaller type, keep part of it elsewhere, or let go of a copy"
_MOVE = "move what is kept from step to step (data, copies of weights, outputs) to the CPU"
_FIND = "find what holds the rest (an earlier model, a kept exception or output, data, a cache)"
_STATE = "use an optimizer with smaller state or a shorter history"
_SHRINK = ("C1", "C3", "C13", "C14", "C15b", "C17", "C20", "C21")  # their remedies make the step smaller
# Kernels that keep no scores where they run; they were kept, so another one ran.
_FUSED = ("sdpa", "flash_attention_2", "flash_attention_3", "flash", "xformers", "mem_efficient")
_NOT_FUSED = "see why {} stores them here (dropout, a mask, the type or the device can keep its fused kernel out)"
_MUCH = 0.25  # of what lies there for good: worth naming
_MOST = 0.5  # of what is held
_MARK = "mark the part with watcherml.phase(...)"


def sentence_of(
    vector: Vector, status: str, sufficient: list[Finding], lacking: list[str], found: list[Finding]
) -> str:
    """Return what a tired person reads first of a diagnosis."""
    if status == "insufficient_evidence":
        return _insufficient(vector, lacking, action_of(vector, status, sufficient, found))
    if status == "capacity_bound":
        return _capacity(vector, sufficient)
    first = sufficient[0]
    remedy = _remedy(vector, first.cause.id)
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


def action_of(vector: Vector, status: str, sufficient: list[Finding], found: list[Finding]) -> str | None:
    """Return what to do next, without why; None where too little is known to say more than the sentence does."""
    look = _look(found) if status == "insufficient_evidence" else ""
    if look:
        return f"{look}; if nothing is, {_remedy(vector, 'C21')}" if vector.at_work else look
    if sufficient:
        cause = (sufficient[0] if status != "capacity_bound" else sufficient[-1]).cause.id
        return ROWS[cause].action if _remedy(vector, cause) == ROWS[cause].remedy else _remedy(vector, cause)
    if status != "capacity_bound":
        return ROWS["C2"].action if _exceeds(vector) else _EVALUATE if vector.phase == "evaluation" else None
    return _make_room(vector) if _stays(vector) else _remedy(vector, "C21") if vector.at_work else _next(vector)


def _remedy(vector: Vector, cause_id: str) -> str:
    remedy, static, short = ROWS[cause_id].remedy, vector.static, vector.missing
    if cause_id in _SHRINK and never_fits(vector):
        return _make_room(vector)
    if cause_id == "C21" and short is not None and (static.kept or 0) >= max(1, short.high):
        return f"{_MOVE}, or {remedy}"
    if cause_id == "C21" and _strange(vector):
        return f"{_FIND}, or {remedy}"
    if cause_id == "C21" and vector.grad_enabled and vector.module_training is False:
        return f"{_NO_TRAINING}; else {remedy}"
    if cause_id == "C21" and (static.models or 0) > 1 and _mostly_models(vector):
        return f"{_let_go(static.models)}, or {remedy}"
    if cause_id == "C13" and vector.sizes.attention in _FUSED:
        return f"{_NOT_FUSED.format(vector.sizes.attention)}, or use a smaller micro-batch"
    if cause_id in ("C15", "C15b") and (static.models or 0) > 1:
        return f"{remedy}, or {_let_go(static.models)}"
    return remedy


def _look(found: list[Finding]) -> str:
    return next((_LOOK[one.cause.id] for one in found if one.candidate and one.cause.id in _LOOK), "")


def _stays(vector: Vector) -> bool:
    return never_fits(vector) or frees_too_little(vector)


def _make_room(vector: Vector) -> str:
    """Return what frees memory that no smaller step frees: what was seen to take much of it, then the model."""
    static, stays = vector.static, lasting(vector) or 0
    ways = []
    known = static.everything or 0
    if (static.kept or 0) >= _MUCH * stays or stays - known >= _MUCH * stays:
        ways.append(_MOVE)
    if static.models is not None and static.models > 1:
        ways.append(_let_go(static.models))
    if max(static.optimizer or 0, static.optimizer_expected or 0) >= _MUCH * stays:
        ways.append(_STATE)
    end = "no smaller step helps" if never_fits(vector) else "a smaller step alone frees too little"
    ways.append("load the model in a smaller type" if ways else _LOAD_LESS)
    return f"{', or '.join(ways)}; {end}"


def _let_go(models: int | None) -> str:
    return f"let go of those of the {models} models that this training does not need" if models else "let go of a copy"


def _capacity(vector: Vector, sufficient: list[Finding]) -> str:
    short = None if vector.missing is None else vector.missing.middle
    where = f" in {vector.phase}" if vector.phase != "unknown" else ""
    text = f"{amount(short)} were missing{where}: {_held(vector)}"
    if sufficient:
        last = sufficient[-1]
        return f"{text}. {upper(last.held)}: {_remedy(vector, last.cause.id)}."
    several = (vector.static.models or 0) > 1
    what = f"{vector.static.models} models" if several else "the model"
    if never_fits(vector):
        need = f"{what} with gradients and optimizer state need {amount(least(vector))}"
        return f"{text}, and {need} of the {amount(vector.own_limit)} that torch could have: {_make_room(vector)}."
    if frees_too_little(vector):
        stays = f"{what} and what stays with {'them' if several else 'it'}"
        return f"{text}, {amount(lasting(vector))} of them {stays}: {_make_room(vector)}."
    if vector.at_work:
        return f"{text}: {_remedy(vector, 'C21')}."
    return f"{text}. Next: {_next(vector)}."


def _mostly_models(vector: Vector) -> bool:
    """Tell whether models with all that is theirs take most of what is held, and more than was missing."""
    own, short = vector.static.everything or 0, vector.missing
    return short is not None and own >= max(1, short.high) and own >= _MOST * (vector.allocated or 0)


def _strange(vector: Vector) -> int:
    """Return the bytes that stay and that nothing found explains, where they are much and were enough; else 0."""
    more, short = unowned(vector) or 0, vector.missing
    enough = vector.at_work and short is not None and more >= max(1, short.high)
    return more if enough and more >= _MUCH * (vector.allocated or 0) else 0


def _held(vector: Vector) -> str:
    figures = f"({amount(vector.allocated)} of {amount(vector.limit)})"
    if _strange(vector):
        more = f"{amount(_strange(vector))} of them stay from step to step and belong to no model or optimizer found"
        figures = f"({amount(vector.allocated)} of {amount(vector.limit)}; {more})"
    full = vector.allocated is None or vector.limit is None or vector.allocated >= _FULL * vector.limit
    if full or vector.requested is None:
        return f"the device was full of this training's own tensors {figures}"
    return f"{amount(vector.requested)} were asked for beside this training's own tensors {figures}"


def _next(vector: Vector) -> str:
    if vector.phase == "load":
        return f"{_AGAIN}{_LOAD}" if vector.step or vector.history.batch_elements else _LOAD
    if vector.phase == "evaluation":
        return _EVALUATE
    if vector.phase == "optimizer" and (vector.static.optimizer or 0) >= _MUCH * (vector.allocated or 0):
        return _STATE
    return f"{_RECOVERY}; {_MARK}" if vector.phase == "unknown" else _RECOVERY


def _exceeds(vector: Vector) -> bool:
    return vector.requested is not None and vector.capacity is not None and vector.requested > vector.capacity


def _insufficient(vector: Vector, lacking: list[str], action: str | None) -> str:
    what = "; ".join(one.rstrip(".") for one in lacking)
    then = action or _next(vector)
    end = f"Not measured: {what}. Next: {then}."
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
