"""C13, C14, C12, C12b: what the sizes of the request and of the model say."""

from __future__ import annotations

import re

from watcherml.forensics.causes.thresholds import MIB, STATIC_SHARE
from watcherml.forensics.causes.vector import Vector
from watcherml.forensics.causes.weigh import Finding, excluded, pool, unknown
from watcherml.forensics.text import amount

_LOSS = re.compile(r"cross_entropy|log_softmax|nll_loss|lm_head|logits|loss|head|decoder", re.I)
_ATTENTION = re.compile(r"attention|attn|softmax|bmm|baddbmm", re.I)
_CHECKPOINT = re.compile(r"load_state_dict|^(?:torch_)?serialization\.py$|safetensors|load_checkpoint|resume", re.I)
_LINEAR = "torch/nn/modules/linear.py"
_GRANULE = 512  # bytes to which the simulated device rounds


def findings(vector: Vector) -> list[Finding]:
    """Return what the sizes say, the ones of the model first."""
    return [_static(vector), _second_copy(vector), _scores(vector), _logits(vector)]


def named(vector: Vector) -> str:
    """Return what a request is by its exact size, in words; empty where it is no known tensor."""
    if _is_one_of(vector, _logit_bytes(vector)) and _seen(vector, _LOSS, linear=True) is not False:
        return "the size of the logits"
    if _is_one_of(vector, _score_bytes(vector)) and _seen(vector, _ATTENTION):
        return "the size of attention scores"
    return ""


def segment(size: int, device_kind: str) -> int:
    """Return what the allocator asks for to hold so many bytes (facts/torch.md, 3)."""
    if device_kind == "simulated":
        return -(-size // _GRANULE) * _GRANULE
    if size <= MIB:
        return 2 * MIB
    return 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB


def _logit_bytes(vector: Vector) -> list[int] | None:
    sizes = vector.sizes
    if sizes.micro_batch is None or sizes.sequence_length is None or sizes.vocabulary is None:
        return None
    # Shifted by one word where the loss predicts the next one.
    lengths = (sizes.sequence_length, sizes.sequence_length - 1)
    return [sizes.micro_batch * length * sizes.vocabulary * width for length in lengths for width in (4, 2)]


def _score_bytes(vector: Vector) -> list[int] | None:
    sizes = vector.sizes
    if sizes.micro_batch is None or sizes.sequence_length is None or sizes.heads is None:
        return None
    widths = (sizes.element_bytes,) if sizes.element_bytes else (4, 2)
    return [sizes.micro_batch * sizes.heads * sizes.sequence_length**2 * width for width in widths]


def _is_one_of(vector: Vector, sizes: list[int] | None) -> bool | None:
    """Tell whether the request is one of the sizes, within the rounding of its figure; None where not known."""
    if sizes is None or vector.requested is None:
        return None
    short = vector.missing
    half = 0 if short is None else (short.high - short.low) // 2
    return any(abs(segment(size, vector.device_kind) - vector.requested) <= half for size in sizes if size > 0)


def _seen(vector: Vector, words: re.Pattern[str], *, linear: bool = False) -> bool | None:
    """Tell whether the failing frames speak of something; None without frames."""
    if not vector.frames:
        return None
    spoken = any(
        words.search(function) or words.search(re.split(r"[/\\]", file)[-1]) for file, function in vector.frames
    )
    last = vector.frames[-1][0].replace("\\", "/")
    return spoken or (linear and last.endswith(_LINEAR))


def _tensor(
    vector: Vector, cause_id: str, sizes: list[int] | None, seen: bool | None, fields: str, backward_too: bool
) -> Finding:
    """Return the finding of a tensor whose size is known from the configuration."""
    if vector.phase == "unknown":
        return unknown(cause_id, "Not measured: in which part of the step it failed.")
    if not vector.at_work:
        return excluded(cause_id, f"It failed in {vector.phase}, where there are none.")
    equal = _is_one_of(vector, sizes)
    if equal is None:
        if seen is False:
            return excluded(cause_id, "The failing frames do not speak of it.")
        return unknown(cause_id, f"Not measured: {fields}, or the request.")
    if not equal:
        return excluded(cause_id, f"The request of {amount(vector.requested)} is not of that size.", vector.requested)
    if vector.phase == "backward" and _is_one_of(vector, list(vector.gradient_sizes)):
        words = f"{amount(vector.requested)} were asked for: its size, and that of a parameter's gradient."
        return unknown(cause_id, words, vector.requested)
    # Only the engine's frames stand in a backward traceback: a size that other layers may have too says little there.
    if vector.phase == "backward" and not backward_too and not seen:
        words = f"{amount(vector.requested)} were asked for, which is its size; a backward shows no line to tell by."
        return unknown(cause_id, words, vector.requested)
    holds = True if backward_too and vector.phase == "backward" else seen
    against = "the failing line is another one, so the equal size is chance"
    return pool(vector, cause_id, vector.requested, holds=holds, lacking="the failing line", against=against)


def _scores(vector: Vector) -> Finding:
    fields = "micro-batch, sequence length and heads"
    return _tensor(vector, "C13", _score_bytes(vector), _seen(vector, _ATTENTION), fields, backward_too=False)


def _logits(vector: Vector) -> Finding:
    fields = "micro-batch, sequence length and vocabulary"
    return _tensor(vector, "C14", _logit_bytes(vector), _seen(vector, _LOSS, linear=True), fields, backward_too=True)


def _static(vector: Vector) -> Finding:
    if vector.phase == "unknown":
        return unknown("C12", "Not measured: in which part of the run it failed.")
    size, limit = _model_bytes(vector), vector.own_limit
    if size is None or limit is None:
        if vector.phase != "load" and vector.step:
            return excluded("C12", "Whole steps were completed with this model.")
        return unknown("C12", "Not measured: the bytes of the model, or what torch could have.")
    share = size / max(limit, 1)
    words = f"{_what(vector, size)} {amount(size)}, {100 * share:.0f} % of what torch could have"
    if share < STATIC_SHARE:
        if vector.phase == "load":
            return pool(vector, "C12", size, holds=False, lacking="", held=words, otherwise="contributing",
                        against="that alone would have fitted")  # fmt: skip
        return excluded("C12", f"{words[0].upper()}{words[1:]}.", size)
    holds: bool | None = vector.phase == "load" and not vector.step
    against = f"it failed later, in {vector.phase}"
    if vector.phase == "load" and vector.step:
        against = "steps were completed before, with a model that may still be there"
    elif holds and (vector.static.contained or vector.history.batch_elements):
        holds = None  # something worked already: an earlier model may be counted
    lacking = "whether an earlier model is still there"
    return pool(vector, "C12", size, holds=holds, held=words, lacking=lacking, against=against,
                otherwise="contributing")  # fmt: skip


def _what(vector: Vector, size: int) -> str:
    """Return whose bytes they are: gradients and state are no part of a model itself, and there may be several."""
    static = vector.static
    several = f"{static.models} models" if (static.models or 0) > 1 else "the model"
    if size != static.total or size == (static.parameters or 0) + (static.buffers or 0):
        return f"{several} take" if several != "the model" else "the model itself takes"
    return f"{several} with gradients and optimizer state take{'' if several != 'the model' else 's'}"


def _model_bytes(vector: Vector) -> int | None:
    """Return the model's bytes: summed over its tensors, or while it is loaded what the run has allocated so far."""
    total = vector.static.total
    if vector.phase != "load" or vector.allocated is None or vector.at_start is None:
        return total
    if total is not None and _seen(vector, _CHECKPOINT):
        return total  # what lies above it is the checkpoint's copy
    # Half loaded: the tensors that no module holds yet count too.
    return max(total or 0, vector.allocated - vector.at_start)


def _second_copy(vector: Vector) -> Finding:
    if vector.phase == "unknown":
        return unknown("C12b", "Not measured: in which part of the run it failed.")
    if vector.phase not in ("load", "checkpoint"):
        return excluded("C12b", f"It failed in {vector.phase}.")
    loading = _seen(vector, _CHECKPOINT)
    if loading is False:
        return excluded("C12b", "No checkpoint was being loaded.")
    own, held, start = vector.static.total, vector.allocated, vector.at_start
    if own is None or held is None or start is None:
        return unknown("C12b", "Not measured: the bytes of the model, or what was there before.")
    return pool(vector, "C12b", held - start - own, holds=loading, lacking="the failing line")
