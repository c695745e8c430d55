"""Putting the rules together into one diagnosis."""

from __future__ import annotations

from collections.abc import Collection

from watcherml.forensics.capsule import Cause, Diagnosis
from watcherml.forensics.causes import guards, history, outside, phase, pools, rest, size
from watcherml.forensics.causes.effects import ruled_out_by, supported_by
from watcherml.forensics.causes.plausible import plausible
from watcherml.forensics.causes.sentence import action_of, sentence_of
from watcherml.forensics.causes.table import CONTROL_ONLY, ORDER, REFUSES, REST
from watcherml.forensics.causes.thresholds import RULES_VERSION
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, unknown

_FAMILIES = (guards, outside, pools, history, size, phase, rest)
# Pools that only support a control where they are large enough to matter.
_POOLS = ("C3", "C4", "C5", "C6", "C7", "C8", "C9")


def diagnose(vector: Vector) -> Diagnosis:
    """Return the diagnosis of one out-of-memory failure from its numbers.

    ``diagnosed`` is one sufficient cause, ``ambiguous`` several, in the order of the table. Without one it is
    ``capacity_bound`` if the figures that would show waste are known, else ``insufficient_evidence``, which names them.
    """
    vector = plausible(vector)
    found = _findings(vector)
    sufficient = [one for one in found if one.judgement == "sufficient"]
    explained = [one for one in sufficient if one.cause.id not in REST]
    if explained:
        status = "diagnosed" if len(explained) == 1 else "ambiguous"
        sufficient, found = explained, [_left(vector, one) for one in found]
    else:
        status = "insufficient_evidence" if missing_fields(vector, found) else "capacity_bound"
    lists = {
        name: tuple(one.cause for one in found if one.judgement == name)
        for name in ("contributing", "excluded", "unknown")
    }
    short = None if vector.missing is None else vector.missing.middle
    piles_up = any(one.cause.id == "C10" and one.judgement in ("sufficient", "contributing") for one in found)
    return Diagnosis(
        status=status,  # type: ignore[arg-type]
        shortfall_bytes=short,
        phase=vector.phase,
        sufficient=tuple(one.cause for one in sufficient),
        rules_version=RULES_VERSION,
        sentence=sentence_of(vector, status, sufficient, missing_fields(vector, found), found)[:2000],
        horizon_step=history.horizon(vector) if piles_up else None,
        action=action_of(vector, status, sufficient, found),
        **lists,
    )


def _findings(vector: Vector) -> list[Finding]:
    first = guards.findings(vector)
    alone = [one.cause.id for one in first if one.judgement == "sufficient" and one.cause.id in guards.DECIDE_ALONE]
    if alone:
        rest = [one for one in ORDER if one not in {known.cause.id for known in first}]
        found = [*first, *(unknown(one, f"Not judged: where {alone[0]} holds, the figures mean something else.")
                           for one in rest)]  # fmt: skip
    else:
        found = [one for family in _FAMILIES for one in family.findings(vector)]
    return sorted(found, key=lambda one: ORDER.index(one.cause.id))


def _left(vector: Vector, one: Finding) -> Finding:
    """Return a finding beside a cause that explains the failure: the step's own tensors are what is left without one.

    Kept while the optimizer steps, they count beside it.
    """
    judged = one.judgement in ("sufficient", "contributing") and one.cause.id in REST and vector.phase != "optimizer"
    words = "Not judged: the step's own tensors are what is left where nothing else explains the failure."
    return unknown(one.cause.id, words, one.cause.bytes) if judged else one


def missing_fields(vector: Vector, found: list[Finding]) -> list[str]:
    """Return in words what would have to be measured before the card can be called simply full."""
    figures = {
        "the size of the request": vector.requested,
        "what was free": vector.free,
        "what torch had allocated": vector.allocated,
        "what torch had reserved": vector.reserved,
        "the device's size": vector.capacity,
    }
    named = [words for words, value in figures.items() if value is None]
    if vector.outside is None and not named and (vector.foreign is None or vector.own_other is None):
        named.append("how much memory lies outside torch")
    if vector.missing is not None and vector.missing.low <= 0 < vector.missing.high:
        named.append("the request and the free bytes more exactly than the message rounds them")
    if vector.phase == "unknown":
        named.append("in which part of training it failed (no mark, and the traceback does not tell)")
    open_ = [one.cause.sentence for one in found if one.candidate and one.cause.id not in REST]
    return named + list(dict.fromkeys(open_))  # what is not split between two owners is said of both


def supported_capabilities(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the capabilities that act on what was found; empty where nothing was."""
    short = diagnosis.shortfall_bytes
    marginal = {
        one.id
        for one in diagnosis.contributing
        if one.id in _POOLS and short is not None and one.bytes is not None and one.bytes >= short
    }
    found = [one.id for one in diagnosis.sufficient + diagnosis.contributing if one.id not in marginal]
    at_work = diagnosis.phase in ("forward", "backward", "recompute")
    # A full card in forward or backward is full of activations.
    if diagnosis.status == "capacity_bound" and at_work and "C22" not in found:
        found.append("C21")
    return supported_by(tuple(found))


def ruled_out(diagnosis: Diagnosis) -> tuple[tuple[str, str, str], ...]:
    """Return (capability, cause id, sentence) for what cannot help; only one measured cause rules anything out."""
    if diagnosis.status != "diagnosed":
        return ()
    cause = diagnosis.sufficient[0]
    # Tensors that may still be there while the optimizer steps were not measured, so they are not ruled out.
    open_rest = [one for one in diagnosis.unknown if one.id in REST and diagnosis.phase == "optimizer"]
    helping = supported_by(tuple(one.id for one in (*diagnosis.contributing, *open_rest)))
    return tuple(
        (name, cause.id, f"{cause.id} ({cause.name}) rules it out: {why}.")
        for name, why in ruled_out_by(cause.id)
        if name not in helping
    )


def refuses(diagnosis: Diagnosis) -> str:
    """Return the sentence with which every trial is refused, or an empty string: only measured causes refuse.

    Where several causes are sufficient, each of them has to refuse.
    """
    ids = [one.id for one in diagnosis.sufficient]
    return diagnosis.sentence if ids and all(one in REFUSES for one in ids) else ""


def control_only(diagnosis: Diagnosis) -> str:
    """Return why nothing but the unchanged configuration is tried, or an empty string.

    So it is where every sufficient cause lies outside the configuration and one of them may be gone in another hour.
    """
    ids = [one.id for one in diagnosis.sufficient]
    outside_of_it = bool(ids) and all(one in REFUSES + CONTROL_ONLY for one in ids)
    return diagnosis.sentence if outside_of_it and any(one in CONTROL_ONLY for one in ids) else ""


def refusing(diagnosis: Diagnosis) -> tuple[Cause, ...]:
    """Return the causes for which changes are refused: every sufficient one, or none."""
    return diagnosis.sufficient if refuses(diagnosis) or control_only(diagnosis) else ()


def citing(diagnosis: Diagnosis, captured: Collection[str]) -> Diagnosis:
    """Return the diagnosis with only captured evidence cited; what is not known keeps naming what would tell."""
    lists = {
        name: tuple(
            one.replace(evidence_ids=tuple(piece for piece in one.evidence_ids if piece in captured))
            for one in getattr(diagnosis, name)
        )
        for name in ("sufficient", "contributing", "excluded")
    }
    return diagnosis.replace(**lists)


def not_memory(sentence: str) -> Diagnosis:
    """Return the empty diagnosis of a failure that is not about memory."""
    return Diagnosis("insufficient_evidence", None, "unknown", (), (), (), (), RULES_VERSION, sentence)
