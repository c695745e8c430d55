"""Byte counts in a sentence."""

from __future__ import annotations


def mebibytes(value: int | None) -> str:
    """Return ``12.2 GiB`` or ``96.0 MiB``; ``an unknown amount`` for None."""
    if value is None:
        return "an unknown amount"
    return f"{value / 2**30:.2f} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.1f} MiB"
