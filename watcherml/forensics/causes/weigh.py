"""One pool against the shortfall: had it been zero, would the request have fitted?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watcherml.forensics.capsule import Cause
from watcherml.forensics.causes.table import ROWS
from watcherml.forensics.causes.thresholds import CONTRIBUTES, MATERIAL
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.text import amount
from watcherml.sealed.canonical import MAX_SAFE_INTEGER

Judgement = Literal["sufficient", "contributing", "excluded", "unknown"]
# "marginal" covers the shortfall but is too small a part of the device; "open" is not decided by the figures.
Weight = Literal["small", "part", "marginal", "enough", "open"]


@dataclass(frozen=True)
class Finding:
    """What one rule says. ``candidate`` marks an unknown that would suffice if the rest of its evidence held."""

    judgement: Judgement
    cause: Cause
    held: str = ""
    candidate: bool = False


def weigh(vector: Vector, size: int) -> Weight:
    """Compare a pool's bytes with the shortfall, on the whole interval of the shortfall."""
    short, limit = vector.missing, vector.limit
    if short is None or limit is None or short.low <= 0:
        return "open"
    if size >= short.high:
        return "enough" if size >= MATERIAL * limit else "marginal"
    if size >= short.low:
        return "open"
    if size >= CONTRIBUTES * short.high:
        return "part"
    return "small" if size < CONTRIBUTES * short.low else "open"


def pool(
    vector: Vector,
    cause_id: str,
    size: int | None,
    *,
    holds: bool | None = True,
    lacking: str,
    against: str = "",
    otherwise: Judgement = "excluded",
    held: str = "",
) -> Finding:
    """Return the finding of a pool of ``size`` bytes.

    ``holds`` tells whether the cause's other evidence is there (None: not measured, which ``lacking`` names). Where it
    is against the cause, ``against`` says why and a pool that would have been enough is judged ``otherwise``.
    """
    if size is None:
        return unknown(cause_id, f"Not measured: {lacking}.", None)
    size = max(0, size)
    words = held or ROWS[cause_id].held.format(size=amount(size))
    if vector.missing is None:
        return unknown(cause_id, f"{upper(words)}; how much was missing is not known.", size)
    if vector.missing.high <= 0:
        return unknown(cause_id, f"{upper(words)}; by these figures nothing was missing.", size)
    weight, short = weigh(vector, size), amount(max(0, vector.missing.middle))
    if weight == "open":
        return unknown(cause_id, f"{upper(words)}; the figures are too coarse to compare it with {short}.", size)
    if weight == "small":
        return excluded(cause_id, f"{upper(words)}; {short} were missing.", size)
    if holds is False:
        judged: Judgement = "excluded" if otherwise == "excluded" else "contributing"
        return Finding(judged, cause(cause_id, size, f"{upper(words)}, but {against}."), words)
    if weight == "part":
        return Finding("contributing", cause(cause_id, size, f"{upper(words)}: part of the {short} missing."), words)
    if weight == "marginal":
        share = f"{100 * size / (vector.limit or 1):.1f} %"
        sentence = f"{upper(words)}: more than the {short} missing, but only {share} of a full device."
        return Finding("contributing", cause(cause_id, size, sentence), words)
    if holds is None:
        sentence = f"{upper(words)}, enough for the {short} missing; not measured: {lacking}."
        return Finding("unknown", cause(cause_id, size, sentence), words, candidate=True)
    return Finding("sufficient", cause(cause_id, size, f"{upper(words)}; {short} were missing."), words)


def sufficient(cause_id: str, sentence: str, size: int | None, held: str = "") -> Finding:
    """Return a cause that alone explains the failure."""
    return Finding("sufficient", cause(cause_id, size, sentence), held)


def excluded(cause_id: str, sentence: str, size: int | None = None) -> Finding:
    """Return a cause that what was measured rules out."""
    return Finding("excluded", cause(cause_id, size, sentence))


def unknown(cause_id: str, sentence: str, size: int | None = None) -> Finding:
    """Return a cause that nothing measured decides."""
    return Finding("unknown", cause(cause_id, size, sentence))


def cause(cause_id: str, size: int | None, sentence: str) -> Cause:
    """Return a row of the table as it goes into a capsule."""
    row = ROWS[cause_id]
    size = None if size is None or abs(size) > MAX_SAFE_INTEGER else size
    return Cause(cause_id, row.name, size, row.evidence_ids, sentence)


def upper(words: str) -> str:
    """Return words as the begin of a sentence."""
    return words[:1].upper() + words[1:]
