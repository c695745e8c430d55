"""The vocabulary of controls: names, aliases, authority, risk, and what a usable value is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from watcherml.protocol.proposal import Authority, Risk


@dataclass(frozen=True)
class Control:
    """One canonical capability.

    ``aliases`` are compared with the last key of a path, in lower case. ``usable`` tells whether a value can be
    changed by the planner; ``wanted`` says in words what it should have been.
    """

    name: str
    aliases: tuple[str, ...]
    authority: Authority
    risk: Risk
    semantic: bool
    usable: Callable[[Any], bool]
    wanted: str


def _count(low: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= low


CONTROLS: tuple[Control, ...] = (
    Control(
        "micro_batch_size",
        ("micro_batch_size", "batch_size", "per_device_train_batch_size", "train_batch_size",
         "train_micro_batch_size_per_gpu", "micro_batch"),
        "automatic", "low", False, _count(1), "a whole number of at least 1",
    ),
    Control(
        "gradient_accumulation_steps",
        ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "accumulation_steps"),
        "automatic", "low", False, _count(1), "a whole number of at least 1",
    ),
    Control(
        "gradient_checkpointing",
        ("gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing"),
        "automatic", "low", False, lambda value: type(value) is bool, "true or false",
    ),
    Control(
        "sequence_length",
        ("sequence_length", "max_seq_length", "max_sequence_length", "seq_len", "block_size", "context_length"),
        "approval_required", "medium", True, _count(2), "a whole number of at least 2",
    ),
)  # fmt: skip

BY_NAME: dict[str, Control] = {control.name: control for control in CONTROLS}
DeclaredAuthority = Literal["automatic", "approval_required"]
