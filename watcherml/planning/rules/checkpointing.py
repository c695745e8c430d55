"""Gradient checkpointing, where the configuration has a switch for it that is off."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Found, change
from watcherml.protocol.plan import Skipped

CAUTION = "Same result only if random numbers such as dropout are kept on recompute, which is torch's default."


def drafts(found: Found) -> tuple[list[Draft], list[Skipped]]:
    """Return the draft that switches checkpointing on."""
    switch = found.get("gradient_checkpointing")
    if switch is None:
        return [], [Skipped("gradient_checkpointing", "The configuration has no switch for checkpointing.")]
    if switch.value:
        return [], [Skipped("gradient_checkpointing", "Checkpointing is on already.")]
    draft = Draft(
        "checkpointing", "Switch gradient checkpointing on", (change(switch, True),), (switch,),
        "untouched", "checkpointing_on", ("EV-1", "EV-6"),
        "Activations are computed again in backward instead of being kept; about a third more compute.",
        (CAUTION,), tier=2,
    )  # fmt: skip
    return [draft], []
