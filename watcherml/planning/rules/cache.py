"""A key-value cache is for generation; training that keeps one pays for nothing."""

from __future__ import annotations

from watcherml.planning.rules.draft import Draft, Drafts, Situation, change, left_out
from watcherml.planning.spelling import value_of

NAME = "model_cache"


def drafts(situation: Situation) -> Drafts:
    """Return the draft that switches the cache off."""
    control = situation.found.get(NAME)
    if control is None:
        return [], []
    if not value_of(control):
        return left_out(NAME, "It is off already.")
    draft = Draft(
        "no-cache", "Switch the key-value cache off", (change(control, False),), (control,), "untouched", "cache_off",
        ("EV-1", "EV-6"), "Keys and values of earlier positions are not kept.",
        ("Code that generates text from the same model object becomes slower.",), tier=22,
    )  # fmt: skip
    return [draft], []
