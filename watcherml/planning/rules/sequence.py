"""Shorter sequences by halves. Another workload, so a person has to want it."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import value_of

NAME = "sequence_length"
_RUNGS = 3
_SHORTEST = 2


def drafts(situation: Situation) -> Drafts:
    """Return up to three halvings."""
    length = situation.found.get(NAME)
    if length is None:
        return [], []
    before = current = int(value_of(length))
    made = []
    for rung in range(_RUNGS):
        if current % 2 or current // 2 < _SHORTEST:
            break
        current //= 2
        made.append(
            Draft(
                f"sequence-{current}", f"Shorten sequences from {before} to {current}",
                (change(length, current),), (length,), "untouched", "sequence_halving", ("EV-1", "EV-6"),
                "Activations shrink with the length, attention scores with its square.",
                ("The model sees less context: metrics are those of another workload.",), tier=30 + rung,
            )
        )  # fmt: skip
    return (made, []) if made else left_out(NAME, f"{before} cannot be halved.")
