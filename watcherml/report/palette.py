"""Colours that read on white and on dark alike: middle tones for marks, their thin tint for areas.

Text never takes a colour from here. It keeps the page's own, which is right in every theme.
"""

from __future__ import annotations

from typing import Literal

Tone = Literal["good", "bad", "warn", "calm", "quiet"]

_RGB: dict[Tone, tuple[int, int, int]] = {
    "good": (46, 158, 110),
    "bad": (211, 80, 96),
    "warn": (200, 138, 30),
    "calm": (76, 134, 198),
    "quiet": (140, 140, 140),
}
# Parts of a memory bar, in the order in which they are stacked.
MEMORY_RGB: dict[str, tuple[int, int, int]] = {
    "allocated": (76, 134, 198),
    "reserved_unallocated": (122, 196, 202),
    "own_other": (104, 116, 206),
    "foreign": (200, 148, 60),
    "other": (200, 148, 60),
    "in_use": (76, 134, 198),
    "requested": (150, 120, 190),
    "shortfall": (211, 80, 96),
}

RULE = "1px solid rgba(128,128,128,.35)"


def mark(tone: Tone) -> str:
    """Return the full colour for a line, a bar or a border."""
    return _hex(_RGB[tone])


def tint(tone: Tone) -> str:
    """Return the same colour thin enough to stand behind text."""
    red, green, blue = _RGB[tone]
    return f"rgba({red},{green},{blue},.16)"


def memory_colour(key: str) -> str:
    """Return the colour of one part of a memory bar; ``free`` has none."""
    return _hex(MEMORY_RGB[key]) if key in MEMORY_RGB else "transparent"


def _hex(rgb: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
