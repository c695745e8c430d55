"""C21, C22, C24: what is left when no waste was found, and other ranks on this device."""

from __future__ import annotations

from watcherml.forensics.causes.lasting import lasting, never_fits
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, cause, excluded, pool, unknown, weigh
from watcherml.forensics.text import amount


def findings(vector: Vector) -> list[Finding]:
    """Return what the step itself takes, and what other ranks hold here."""
    return [*_step(vector), _ranks(vector)]


def _step(vector: Vector) -> list[Finding]:
    if vector.phase == "unknown":
        return [unknown(one, "Not measured: in which part of the step it failed.") for one in ("C21", "C22")]
    if vector.phase == "optimizer":
        return [_kept(vector), excluded("C22", "It failed in optimizer, where a step's work is done.")]
    if not vector.at_work:
        return [excluded(one, f"It failed in {vector.phase}, where a step has no tensors.") for one in ("C21", "C22")]
    stays, held = lasting(vector), vector.allocated
    size = None if stays is None or held is None else held - stays
    plain = _plain(vector, size)
    smallest = _smallest(vector)
    if smallest is False:
        return [plain, excluded("C22", "The micro-batch can be smaller, or checkpointing is off.")]
    lacking = "the micro-batch, whether checkpointing is on, or the model's bytes"
    last = pool(vector, "C22", size, holds=smallest, lacking=lacking)
    if smallest:
        known = None if size is None else max(0, size)
        return [excluded("C21", "The micro-batch is 1 and checkpointing is on: see below.", known), last]
    return [plain, last]


def _plain(vector: Vector, size: int | None) -> Finding:
    static, held = vector.static.everything, vector.allocated
    plain = pool(
        vector, "C21", size, holds=not never_fits(vector), otherwise="contributing",
        lacking="how much of it is the model and how much the step",
        against="models, gradients and optimizer state alone are more than torch could have",
    )  # fmt: skip
    if static is None or held is None or size is None or plain.judgement == "sufficient":
        return plain
    if size < held - static and weigh(vector, held - static) == "enough":
        return unknown("C21", f"{_beside(static, held, size)}, so a smaller step need not free them.", held - static)
    return plain


def _beside(static: int, held: int, size: int) -> str:
    return (
        f"{amount(held - static)} are neither model nor gradients nor state;"
        f" {amount(held - static - size)} of them lay there after the last step too"
    )


def _kept(vector: Vector) -> Finding:
    """What lies beside model, gradients and state in the optimizer's step: a loop that still names its outputs."""
    static, stays, held = vector.static.everything, lasting(vector), vector.allocated
    if static is None or held is None or stays is None:
        return unknown("C21", "Not measured: whether tensors of this step are still kept while the optimizer steps.")
    size = max(0, held - static)
    if weigh(vector, size) in ("enough", "marginal"):
        if weigh(vector, max(0, held - stays)) not in ("enough", "marginal"):
            return unknown("C21", f"{_beside(static, held, held - stays)}, kept by a name or piling up.")
        # What an operator of the optimizer is given need have no name, and is about as large as what it asks for.
        if weigh(vector, max(0, size - (vector.requested or 0))) not in ("enough", "marginal"):
            words = f"{amount(size)} are neither model nor gradients nor state; they may be the optimizer's own."
            return unknown("C21", words, size)
        sentence = f"{amount(size)} are neither model nor gradients nor state: a smaller step would leave room."
        return Finding("contributing", cause("C21", size, sentence))
    if weigh(vector, size) == "open":
        return unknown(
            "C21", f"Not measured finely enough: {amount(size)} are neither model nor gradients nor state.", size
        )
    return excluded("C21", f"Only {amount(size)} are neither model nor gradients nor state.", size)


def _smallest(vector: Vector) -> bool | None:
    batch, checkpointing = vector.sizes.micro_batch, vector.sizes.checkpointing
    if (batch is not None and batch > 1) or checkpointing is False:
        return False
    return None if batch is None or checkpointing is None else True


def _ranks(vector: Vector) -> Finding:
    if vector.world_size is None:
        return unknown("C24", "Not measured: how many ranks there are.")
    if vector.world_size < 2:
        return excluded("C24", "There is one rank.", 0)
    alone = None if vector.ranks_failed is None else vector.ranks_failed == 1
    lacking = "which ranks failed, and what others hold here"
    return pool(vector, "C24", vector.sibling_bytes, holds=alone, lacking=lacking, against="other ranks failed too")
