"""Gradient checkpointing, where the configuration has a switch for it that is off."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import value_of

NAME = "gradient_checkpointing"
CAUTION = "Same result only if random numbers such as dropout are kept on recompute, which is torch's default."


def drafts(situation: Situation) -> Drafts:
    """Return the draft that switches checkpointing on."""
    switch = situation.found.get(NAME)
    if switch is None:
        return [], []
    if value_of(switch):
        return left_out(NAME, "Checkpointing is on already.")
    draft = Draft(
        "checkpointing", "Switch gradient checkpointing on", (change(switch, True),), (switch,),
        "untouched", "checkpointing_on", ("EV-1", "EV-6"),
        "Activations are computed again in backward instead of being kept; about a third more compute.",
        (CAUTION,), tier=2,
    )  # fmt: skip
    return [draft], []
