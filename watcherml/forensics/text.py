"""Byte counts in a sentence."""

from __future__ import annotations


def amount(value: int | None) -> str:
    """Return ``12.20 GiB``, ``96.0 MiB`` or ``68.5 KiB``; ``an unknown amount`` for None."""
    if value is None:
        return "an unknown amount"
    for unit, size, digits in (("GiB", 2**30, 2), ("MiB", 2**20, 1), ("KiB", 2**10, 1)):
        if abs(value) >= size:
            return f"{value / size:.{digits}f} {unit}"
    return f"{value} bytes"
