"""Shorter sequences by halves. Another workload, so a person has to want it."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Found, change
from watcherml.protocol.plan import Skipped

_RUNGS = 3
_SHORTEST = 2


def drafts(found: Found) -> tuple[list[Draft], list[Skipped]]:
    """Return up to three halvings."""
    length = found.get("sequence_length")
    if length is None:
        return [], []
    made = []
    current = int(length.value)
    for rung in range(_RUNGS):
        if current % 2 or current // 2 < _SHORTEST:
            break
        current //= 2
        made.append(
            Draft(
                f"sequence-{current}", f"Shorten sequences from {length.value} to {current}",
                (change(length, current),), (length,), "untouched", "sequence_halving", ("EV-1", "EV-6"),
                "Activations shrink with the length, attention scores with its square.",
                ("The model sees less context: metrics are those of another workload.",), tier=30 + rung,
            )
        )  # fmt: skip
    return made, [] if made else [Skipped("sequence_length", f"{length.value} cannot be halved.")]
