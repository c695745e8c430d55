"""What was seen of a training against what a candidate changed: in effect, not in effect, or not observable.

Pure. ``not_in_effect`` rejects a candidate, so it is said only of what was seen to be otherwise; what merely was not
seen is ``not_observable``, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from watcherml.protocol.proposal import Change
from watcherml.protocol.result import KnobReading
from watcherml.trials.seen import Seen

_IN, _OUT, _UNSEEN = "in_effect", "not_in_effect", "not_observable"
_Said = tuple[str, str]
# The types that a precision stands for, as torch names them.
_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
# Names in a graph of gradients: attention in one operator, of torch or of the usual packages; torch's own in parts.
_FUSED = ("ScaledDotProduct", "FlashAttn", "fMHA", "FlexAttention")
_IN_PARTS = "SafeSoftmaxBackward0"  # torch's attention where none of its kernels fits; written-out code has another
_WRITTEN_OUT = {"SoftmaxBackward0", "BmmBackward0"}
_REENTRANT = "CheckpointFunctionBackward"


def readings(changes: tuple[Change, ...], seen: Seen | None) -> tuple[KnobReading, ...]:
    """Return one reading for each capability that the changes name; ``seen`` is None where torch was not loaded."""
    found = {change.capability: _reading(change, seen) for change in changes}
    return tuple(found.values())


def _reading(change: Change, seen: Seen | None) -> KnobReading:
    if seen is None:
        return KnobReading(change.capability, "not_observable", "torch was not loaded in the trial")
    read = _READ.get(change.capability)
    if read is None:
        return KnobReading(change.capability, "not_observable", "nothing in a trial's process shows it")
    number = _whole(change.wanted)
    wanted = change.wanted if number is None else number
    try:
        state, observed = read(wanted, _whole(change.before), seen)
    except Exception as problem:  # noqa: BLE001 - training ended well; a thread that it left may still be adding facts
        return KnobReading(change.capability, "not_observable", f"{type(problem).__name__}: {problem}"[:300])
    if state == _OUT and _blind(seen):
        state, observed = _UNSEEN, f"{_blind(seen)}; seen was: {observed}"
    return KnobReading(change.capability, state, observed[:1000])  # type: ignore[arg-type]


def _blind(seen: Seen) -> str:
    """Return why what was seen is too little to deny anything."""
    if seen.compiled:
        return "the model was compiled, which hides what it does"
    if seen.problem:
        return f"watching broke ({seen.problem})"
    return "" if seen.steps else "no optimizer of torch made a step"


def _micro_batch(wanted: Any, before: int | None, seen: Seen) -> _Said:
    if not seen.first_rows:
        return _UNSEEN, "no module was called with a tensor"
    rows = _usual(seen.first_rows)
    # Two views of each sample, or the length as first dimension, make another number of it without being wrong.
    return (_IN if rows == wanted else _UNSEEN), f"forward passes begin with {rows} rows"


def _accumulation(wanted: Any, before: int | None, seen: Seen) -> _Said:
    if not seen.backwards or not _usual(seen.backwards):
        return _UNSEEN, "no backward pass was counted between optimizer steps"
    passes = _usual(seen.backwards)
    said = f"{passes} backward pass{'' if passes == 1 else 'es'} for each optimizer step"
    return (_IN if passes == wanted else _OUT if passes == before else _UNSEEN), said


def _checkpointing(wanted: Any, before: int | None, seen: Seen) -> _Said:
    reentrant = any(name.startswith(_REENTRANT) for name in seen.nodes)
    ran = bool(seen.checkpoints or seen.recomputed or reentrant)
    said = f"torch.utils.checkpoint ran {seen.checkpoints} times"
    if reentrant:
        said = "reentrant torch.utils.checkpoint ran"
    elif not seen.checkpoints:
        said = f"modules ran again {seen.recomputed} times while gradients were computed"
    if not ran and not (seen.calls and seen.nodes):
        return _UNSEEN, "no module's training was seen"
    if not ran:
        said = "torch.utils.checkpoint did not run, and no module ran again while gradients were computed"
    return (_IN if ran is bool(wanted) else _OUT), said


def _precision(wanted: Any, before: int | None, seen: Seen) -> _Said:
    kind = _TYPES.get(str(wanted))
    if kind is None or not (seen.calls or seen.parameters):
        return _UNSEEN, "no module's training was seen" if kind else f"{wanted} has no type of torch's own"
    shown = [
        *(f"autocast to {one}" for one in sorted(seen.autocast)),
        *([f"modules got {', '.join(sorted(seen.types))}"] if seen.types else []),
        *([f"parameters are {', '.join(sorted(seen.parameters))}"] if seen.parameters else []),
    ]
    said = "; ".join([*([] if seen.autocast else ["no autocast"]), *shown])
    if wanted == "fp32" and "float64" in seen.parameters | seen.types:
        return _OUT, said
    if kind in seen.autocast | seen.types | seen.parameters:
        return _IN, said
    return (_OUT if seen.types else _UNSEEN), said


def _attention(wanted: Any, before: int | None, seen: Seen) -> _Said:
    fused = sorted(name for name in seen.nodes if any(mark in name for mark in _FUSED))
    named = f"the model's configuration says {', '.join(sorted(seen.implementations))}" if seen.implementations else ""
    if wanted == "eager":
        return (_OUT, fused[0]) if fused else (_UNSEEN, named or "no attention in one operator was seen")
    mine = [name for name in fused if ("FlashAttn" in name) == (wanted not in ("sdpa", True))]
    if mine or (wanted is True and fused):
        return _IN, f"gradients go through {(mine or fused)[0]}"
    if wanted in ("sdpa", True) and _IN_PARTS in seen.nodes:
        return _IN, "torch's attention ran without a kernel of its own, so that scores are kept"
    if seen.implementations:
        return (_IN if wanted in seen.implementations else _OUT), named
    if wanted in ("sdpa", True) and not fused and seen.nodes_whole and seen.nodes >= _WRITTEN_OUT:
        return _OUT, "attention scores go through softmax and matrix products of the code's own"
    return _UNSEEN, f"gradients go through {fused[0]}" if fused else "no attention was recognised in the graph"


def _bits(wanted: Any, before: int | None, seen: Seen) -> _Said:
    classes, states = ", ".join(sorted(seen.optimizers)), ", ".join(sorted(seen.states))
    said = f"{classes or 'no optimizer'} keeps {states or 'no state'}"
    if not seen.states:
        return _UNSEEN, said
    widths = {_width(one) for one in seen.states}
    if wanted in widths or any(f"{wanted}bit" in one for one in seen.optimizers):
        return _IN, said
    ours = all(one.startswith("torch.optim.") for one in seen.optimizers)
    return (_OUT if ours and None not in widths else _UNSEEN), said


def _cache(wanted: Any, before: int | None, seen: Seen) -> _Said:
    if seen.caches is not None and seen.calls:
        said = f"{seen.caches} key-value caches were made in training"
        return (_IN if bool(seen.caches) is bool(wanted) else _OUT), said
    if len(seen.cache_flags) == 1:
        flag = next(iter(seen.cache_flags))
        # A call may say otherwise than the configuration.
        return (_IN if flag is bool(wanted) else _UNSEEN), f"the model's configuration says use_cache: {flag}"
    return _UNSEEN, "no model with such a switch was seen"


def _length(wanted: Any, before: int | None, seen: Seen) -> _Said:
    if not seen.token_shapes:
        return _UNSEEN, "no embedding got a batch of token ids"
    longest = max(shape[1] for shape in seen.token_shapes)
    said = f"the longest tokens of an embedding are {longest} a row"
    # Training on the next token takes one away or adds one.
    if _near(longest, wanted):
        return _IN, said
    turned = any(_near(shape[0], wanted) for shape in seen.token_shapes)
    return (_OUT if _near(longest, before) and not turned else _UNSEEN), said


def _saved(wanted: Any, before: int | None, seen: Seen) -> _Said:
    if seen.saved_to_host:
        return (_IN if wanted else _UNSEEN), "torch.autograd.graph.save_on_cpu was used"
    return _UNSEEN, "torch.autograd.graph.save_on_cpu was not used; other ways cannot be seen"


def _state_offload(wanted: Any, before: int | None, seen: Seen) -> _Said:
    if seen.state_on_host:
        return (_IN if wanted else _UNSEEN), "the optimizer's state is on the host"
    return _UNSEEN, "the optimizer's state was not seen on the host"


def _near(length: int, other: Any) -> bool:
    return isinstance(other, int) and not isinstance(other, bool) and abs(length - other) <= 1


def _usual(counts: Counter[int]) -> int:
    """Return the most frequent number, the larger one of two."""
    return max(counts, key=lambda one: (counts[one], one))


def _width(kind: str) -> int | None:
    """Return the bits of a number of a type of torch, or of a library's own class of quantised state."""
    for name, bits in (("8bit", 8), ("4bit", 4), ("Fp8", 8), ("float8", 8), ("16", 16), ("32", 32), ("64", 64)):
        if name in kind:
            return bits
    return 8 if kind in ("uint8", "int8") else None


def _whole(raw: Any) -> int | None:
    """Return a whole number that a configuration writes as 32, 32.0 or "32"; None for anything else."""
    if isinstance(raw, bool):
        return None
    text = str(int(raw)) if isinstance(raw, float) and raw.is_integer() else str(raw).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 17 else None


_READ: dict[str, Callable[[Any, int | None, Seen], _Said]] = {
    "micro_batch_size": _micro_batch,
    "gradient_accumulation_steps": _accumulation,
    "gradient_checkpointing": _checkpointing,
    "precision": _precision,
    "attention_backend": _attention,
    "memory_efficient_attention": _attention,
    "optimizer_bits": _bits,
    "model_cache": _cache,
    "sequence_length": _length,
    "activation_offload": _saved,
    "optimizer_state_offload": _state_offload,
}
