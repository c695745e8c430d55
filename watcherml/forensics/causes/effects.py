"""Which controls act on a cause, and which it rules out: the columns of the causes' table, once.

A rule that finds a cause says nothing about interventions; a planner that wants to know asks here. The names are the
capabilities'. A cause without a line says nothing about any control.
"""

from __future__ import annotations

from dataclasses import dataclass

_BATCH = ("micro_batch_size", "gradient_accumulation_steps")
_OPTIMIZER = ("optimizer_bits", "optimizer_state_offload")
_ATTENTION = ("attention_backend", "memory_efficient_attention")
_ALL = (
    *_BATCH, "gradient_checkpointing", "sequence_length", "precision", *_ATTENTION, "activation_offload",
    "parameter_offload", *_OPTIMIZER, "model_cache", "allocator_configuration",
)  # fmt: skip
_ACTIVATIONS = (
    *_BATCH, "gradient_checkpointing", "sequence_length", "precision", *_ATTENTION, "activation_offload",
)  # fmt: skip


@dataclass(frozen=True)
class Effect:
    """What a cause means for the controls."""

    supports: tuple[str, ...] = ()
    rules_out: tuple[str, ...] = ()
    # Why the controls of ``rules_out`` cannot help, as the end of a sentence.
    because: str = ""


EFFECTS: dict[str, Effect] = {
    "C0": Effect((), _ALL, "it was host memory that ran out"),
    "C1": Effect(_ACTIVATIONS),
    "C2": Effect((), _ALL, "one request alone exceeds the device"),
    "C3": Effect(_ACTIVATIONS),
    "C4": Effect((), _ALL, "another process holds the memory"),
    "C5": Effect(),
    "C6": Effect((), ("allocator_configuration",), "the memory is not the allocator's"),
    "C7": Effect((), ("allocator_configuration",), "the reserved memory is bound to private pools"),
    "C8": Effect(("allocator_configuration",)),
    "C9": Effect((), _BATCH, "the memory waits for another stream"),
    "C10": Effect((), (*_BATCH, "gradient_checkpointing", "allocator_configuration"),
                  "memory grows with every step, so this only delays the failure"),
    "C10b": Effect(),
    "C11": Effect((), _BATCH, "memory is held by reference cycles"),
    "C12": Effect(("precision", "parameter_offload"), (*_BATCH, "gradient_checkpointing", "sequence_length"),
                  "the model alone fills the device before the first batch"),
    "C12b": Effect((), _BATCH, "memory ran out while a checkpoint was loaded"),
    "C13": Effect((*_ATTENTION, *_BATCH, "sequence_length"), _OPTIMIZER, "attention scores are what did not fit"),
    "C14": Effect((*_BATCH, "sequence_length"), ("gradient_checkpointing",), "the logits are not recomputed by it"),
    "C15": Effect(_OPTIMIZER, (*_BATCH, "gradient_checkpointing", "sequence_length"),
                  "activations are gone when the optimizer makes its state"),
    "C15b": Effect((*_BATCH, "gradient_checkpointing", *_OPTIMIZER)),
    **{one: Effect((), (*_BATCH, "gradient_checkpointing", *_OPTIMIZER), "memory ran out in evaluation")
       for one in ("C16a", "C16b", "C16c")},
    "C17": Effect((*_BATCH, "sequence_length"), ("allocator_configuration",), "the largest batch is what did not fit"),
    "C18": Effect(),
    "C19": Effect(("model_cache",), _OPTIMIZER, "a key-value cache is what grew"),
    "C20": Effect((), ("gradient_checkpointing",), "checkpointing is on and saves nothing"),
    "C21": Effect(_ACTIVATIONS),
    "C22": Effect(("sequence_length", "precision", "activation_offload"), _BATCH, "the micro-batch is 1 already"),
    "C24": Effect((), _ALL, "other ranks hold the memory"),
    "C25": Effect((), _ALL, "the driver lends system memory"),
    "C26": Effect(),
}  # fmt: skip


def supported_by(cause_ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the controls that act on any of the causes, in the table's order."""
    return tuple(dict.fromkeys(name for one in cause_ids for name in EFFECTS.get(one, Effect()).supports))


def ruled_out_by(cause_id: str) -> tuple[tuple[str, str], ...]:
    """Return (control, reason) for each control that a cause rules out."""
    effect = EFFECTS.get(cause_id, Effect())
    return tuple((name, effect.because) for name in effect.rules_out)
