"""The plain sentence of a diagnosis: first what it means, then the numbers."""

from __future__ import annotations

from watcherml.forensics.causes.table import ROWS
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, upper
from watcherml.forensics.text import amount

_SHOWN = 3


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


def _capacity(vector: Vector, sufficient: list[Finding]) -> str:
    short = None if vector.missing is None else vector.missing.middle
    where = f" in {vector.phase}" if vector.phase != "unknown" else ""
    text = f"{amount(short)} were missing{where}: the device was full of this training's own tensors"
    text += f" ({amount(vector.allocated)} of {amount(vector.limit)})"
    if sufficient:
        last = sufficient[-1]
        return f"{text}. {upper(last.held)}: {ROWS[last.cause.id].remedy}."
    if vector.at_work:
        return f"{text}: {ROWS['C21'].remedy}."
    return f"{text}."


def _insufficient(vector: Vector, lacking: list[str]) -> str:
    what = "; ".join(one.rstrip(".") for one in lacking)
    if vector.requested is None and vector.free is None:
        return f"The failure gives no sizes, so the shortfall is not known. Not measured: {what}."
    if vector.missing is None:
        return f"The shortfall is not known. Not measured: {what}."
    where = f" in {vector.phase}" if vector.phase != "unknown" else ""
    short = amount(vector.missing.middle)
    return f"{short} were missing{where}, and why cannot be told yet. Not measured: {what}."


def _device(vector: Vector) -> str:
    return "The simulated device" if vector.device_kind == "simulated" else "The card"
