"""The sizes of a training step, as its configuration states them and as the failing frames show them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from watcherml.forensics.causes.vector import Sizes
from watcherml.forensics.origin import names_of
from watcherml.forensics.seen import Live

# Names as common trainers spell them; the first one that a configuration has counts.
_KEYS: dict[str, tuple[str, ...]] = {
    "micro_batch": ("micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "batch_size",
                    "per_gpu_train_batch_size", "train_batch_size", "micro_batch", "local_batch_size"),
    "accumulation": ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "accumulation_steps",
                     "gradient_accumulation", "accumulation"),
    "sequence_length": ("sequence_length", "max_seq_length", "max_sequence_length", "seq_len", "seq_length",
                        "max_seq_len", "block_size", "context_length", "max_length", "n_positions", "cutoff_len"),
    "vocabulary": ("vocab_size", "vocabulary_size", "n_vocab", "vocabulary"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads", "heads", "nhead"),
    "checkpointing": ("gradient_checkpointing", "activation_checkpointing", "use_checkpoint", "checkpointing"),
    "model_cache": ("use_cache",),
    "attention": ("attn_implementation", "_attn_implementation", "_attn_implementation_internal",
                  "attention_backend", "attn_backend"),
}  # fmt: skip
_SWITCHES = {"checkpointing", "model_cache"}
_WORDS = {"attention"}
_DEPTH = 4


def sizes(config: Mapping[str, Any], found: list[tuple[FrameType, int]], live: Live) -> Sizes:
    """Return what is known. Shapes of the failing frames outrank the model's attributes, these the configuration."""
    stated = {name: _stated(config, name) for name in _KEYS}
    batch, length = _token_ids(found, stated["micro_batch"])
    attributes = {
        name: _attribute(live, name) for name in ("vocabulary", "heads", "checkpointing", "model_cache", "attention")
    }
    vocabulary = attributes["vocabulary"] or stated["vocabulary"] or _embedding(live)
    return Sizes(
        micro_batch=batch or stated["micro_batch"],
        accumulation=stated["accumulation"],
        sequence_length=length or stated["sequence_length"],
        vocabulary=vocabulary,
        heads=attributes["heads"] or stated["heads"],
        element_bytes=_element_bytes(found, live),
        checkpointing=_known(attributes["checkpointing"], stated["checkpointing"]),
        model_cache=_known(attributes["model_cache"], stated["model_cache"]),
        attention=attributes["attention"] or stated["attention"],
    )


def stated_checkpointing(config: Mapping[str, Any]) -> bool | None:
    """Return whether a configuration switches checkpointing on; None where it does not say."""
    found = _stated(config, "checkpointing")
    return found if isinstance(found, bool) else None


def without_checkpointing(config: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return a configuration without its switches of checkpointing, to tell whether two differ in nothing else."""
    return {
        str(key): without_checkpointing(value, depth + 1) if isinstance(value, Mapping) and depth < _DEPTH else value
        for key, value in config.items()
        if key not in _KEYS["checkpointing"]
    }


def _stated(config: Mapping[str, Any], name: str) -> Any:
    wanted: Any = _kind(name)
    found: dict[str, Any] = {}
    for key, value in _leaves(config, 0):
        if type(value) is wanted and key not in found and (not isinstance(value, int) or wanted is bool or value > 0):
            found[key] = value
    return next((found[key] for key in _KEYS[name] if key in found), None)


def _kind(name: str) -> type:
    return bool if name in _SWITCHES else str if name in _WORDS else int


def _leaves(config: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and depth < _DEPTH:
            yield from _leaves(value, depth + 1)
        else:
            yield str(key), value


def _attribute(live: Live, name: str) -> Any:
    """Return what a model's own ``config`` object or a layer of it says, or None."""
    wanted = _kind(name)
    for module in live.outermost():
        values = getattr(getattr(module, "config", None), "__dict__", {})
        for key in _KEYS[name]:
            value = values.get(key) if isinstance(values, dict) else None
            if type(value) is wanted:
                return value
    if name == "heads":
        for module in live.outermost():
            for part in module.modules():
                if type(getattr(part, "num_heads", None)) is int:
                    return part.num_heads
    return None


def _embedding(live: Live) -> int | None:
    """Return the rows of the largest embedding: in a language model its vocabulary."""
    rows = [
        part.num_embeddings
        for module in live.outermost()
        for part in module.modules()
        if type(getattr(part, "num_embeddings", None)) is int
    ]
    return max(rows, default=None)


def _token_ids(found: list[tuple[FrameType, int]], micro_batch: int | None) -> tuple[int | None, int | None]:
    """Return batch and length of a two-dimensional tensor of whole numbers in the failing frames: token ids."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None, None
    for frame, _ in reversed(found):
        for value in names_of(frame).values() if frame.f_code.co_name != "<module>" else ():
            whole = isinstance(value, torch.Tensor) and value.dim() == 2 and value.dtype in (torch.int64, torch.int32)
            if whole and min(value.shape) > 0 and micro_batch in (None, int(value.shape[0])):
                return int(value.shape[0]), int(value.shape[1])
    return None, None


def _element_bytes(found: list[tuple[FrameType, int]], live: Live) -> int | None:
    """Return the element size of the innermost floating tensor in the frames, else of the model's parameters."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for frame, _ in reversed(found):
        for value in names_of(frame).values() if frame.f_code.co_name != "<module>" else ():
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1:
                return int(value.element_size())
    parameters = (one for module in live.modules for one in module.parameters() if one.is_floating_point())
    return next((int(one.element_size()) for one in parameters), None)


def _known(first: Any, second: Any) -> Any:
    return second if first is None else first
