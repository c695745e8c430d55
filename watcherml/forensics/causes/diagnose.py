"""Putting the rules together into one diagnosis."""

from __future__ import annotations

from watcherml.forensics.capsule import Cause, Diagnosis
from watcherml.forensics.causes import guards, outside
from watcherml.forensics.causes.effects import ruled_out_by, supported_by
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.text import amount

RULES_VERSION = 1


def diagnose(vector: Vector) -> Diagnosis:
    """Return the diagnosis of one out-of-memory failure from its numbers."""
    found = guards.sufficient(vector)
    unknown, excluded = outside.place(vector)
    missing = vector.missing
    short = None if missing is None else missing.middle
    if found:
        return _make("diagnosed", vector, found, excluded, unknown, found[0].sentence)
    if missing is None:
        sentence = "The message gives no sizes, so the shortfall is not known."
        return _make("insufficient_evidence", vector, [], excluded, unknown, sentence)
    where = f" in {vector.phase}" if vector.phase != "unknown" else ""
    shown = f"{amount(short)} were missing{where}"
    if unknown or vector.phase == "unknown":
        gap = unknown[0].sentence if unknown else "The phase could not be told from the traceback."
        return _make("insufficient_evidence", vector, [], excluded, unknown, f"{shown}. {gap}")
    sentence = f"{shown}: the device was full of this training's own tensors ({amount(vector.allocated)} of"
    sentence += f" {amount(vector.capacity)})."
    return _make("capacity_bound", vector, [], excluded, unknown, sentence)


def supported_capabilities(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the capabilities that act on what was found; empty where nothing was."""
    found = tuple(cause.id for cause in diagnosis.sufficient + diagnosis.contributing)
    at_work = diagnosis.phase in ("forward", "backward", "recompute")
    # A full card in forward or backward is full of activations.
    default = ("C21",) if diagnosis.status == "capacity_bound" and at_work else ()
    return supported_by(found + default)


def ruled_out(diagnosis: Diagnosis) -> tuple[tuple[str, str, str], ...]:
    """Return (capability, cause id, sentence) for what cannot help; only one measured cause rules anything out."""
    if diagnosis.status != "diagnosed":
        return ()
    cause = diagnosis.sufficient[0]
    helping = supported_by(tuple(one.id for one in diagnosis.contributing))
    return tuple(
        (name, cause.id, f"{cause.id} ({cause.name}) rules it out: {why}.")
        for name, why in ruled_out_by(cause.id)
        if name not in helping
    )


def refuses(diagnosis: Diagnosis) -> str:
    """Return the sentence with which trials are refused, or an empty string: only a measured cause refuses."""
    ruled_out = {"C2", "C25"}
    if diagnosis.status == "diagnosed" and diagnosis.sufficient[0].id in ruled_out:
        return diagnosis.sufficient[0].sentence
    return ""


def not_memory(sentence: str) -> Diagnosis:
    """Return the empty diagnosis of a failure that is not about memory."""
    return Diagnosis("insufficient_evidence", None, "unknown", (), (), (), (), RULES_VERSION, sentence)


def _make(
    status: str, vector: Vector, sufficient: list[Cause], excluded: list[Cause], unknown: list[Cause], sentence: str
) -> Diagnosis:
    short = None if vector.missing is None else vector.missing.middle
    return Diagnosis(
        status,  # type: ignore[arg-type]
        short,
        vector.phase,
        tuple(sufficient),
        (),
        tuple(excluded),
        tuple(unknown),
        RULES_VERSION,
        sentence,
    )
